#include "bench/output.h"

#include <cerrno>
#include <cstring>

#include "core/format.h"

namespace tutti::bench {

Result<File> openOutput(const std::string& path) {
  File file(nullptr, std::fclose);
  if (path.empty()) return file;
  file.reset(std::fopen(path.c_str(), "we"));
  if (!file) return fail(Code::SystemError, "cannot write {}: {}", path, std::strerror(errno));
  return file;
}

Status writeOutput(File file, const std::string& path, const std::string& text) {
  if (!file) return {};
  const bool isWritten = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (std::fclose(file.release()) == 0 && isWritten) return {};
  return error(Code::SystemError, "cannot write {}: {}", path, std::strerror(errno));
}

std::string pathFor(const std::string& path, std::string_view operation) {
  const size_t dot = path.rfind('.');
  const size_t slash = path.rfind('/');
  const bool hasEnding = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  const size_t at = hasEnding ? dot : path.size();
  return format("{}-{}{}", path.substr(0, at), operation, path.substr(at));
}

}  // namespace tutti::bench
