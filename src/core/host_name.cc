#include "core/host_name.h"

#include <unistd.h>

#include <array>

namespace tutti {

std::string hostName() {
  std::array<char, 256> text{};
  if (gethostname(text.data(), text.size() - 1) != 0) return {};
  const std::string name = text.data();
  return name.substr(0, name.find('.'));
}

}  // namespace tutti
