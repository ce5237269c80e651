#include "config/files.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace tutti::config {
namespace {

constexpr size_t kMaxBytes = 1023;

struct CloseFile {
  void operator()(FILE* file) const { std::fclose(file); }
};

/// What getline() allocates and grows.
struct LineBuffer {
  LineBuffer() = default;
  LineBuffer(const LineBuffer&) = delete;
  LineBuffer& operator=(const LineBuffer&) = delete;
  ~LineBuffer() { std::free(text); }
  char* text = nullptr;
  size_t room = 0;
};

void takeLine(std::string_view line) {
  if (line.starts_with('#')) return;
  const size_t divider = line.find('=');
  if (divider == std::string_view::npos || divider == 0) return;
  const std::string name(line.substr(0, std::min(divider, kMaxBytes)));
  const std::string value(line.substr(divider + 1, kMaxBytes));
  setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

}  // namespace

bool loadFile(const char* path) {
  const std::unique_ptr<FILE, CloseFile> file(std::fopen(path, "re"));
  if (!file) return false;
  LineBuffer line;
  ssize_t bytes;
  while ((bytes = getline(&line.text, &line.room, file.get())) >= 0) {
    std::string_view text(line.text, static_cast<size_t>(bytes));
    if (text.ends_with('\n')) text.remove_suffix(1);
    takeLine(text.substr(0, text.find('\0')));
  }
  return true;
}

std::string findUserFile() {
  if (const char* named = std::getenv("NCCL_CONF_FILE"); named && *named) return named;
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found || !found->pw_dir) return {};
  return std::string(found->pw_dir) + "/.nccl.conf";
}

}  // namespace tutti::config
