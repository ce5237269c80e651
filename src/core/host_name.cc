#include "core/host_name.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "core/unique_fd.h"

namespace tutti {

std::string hostName() {
  std::array<char, 256> text{};
  if (gethostname(text.data(), text.size() - 1) != 0) return {};
  const std::string name = text.data();
  return name.substr(0, name.find('.'));
}

std::string bootId() {
  std::array<char, 64> text{};
  const UniqueFd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t size = file ? read(file.get(), text.data(), text.size()) : 0;
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : std::string();
}

}  // namespace tutti
