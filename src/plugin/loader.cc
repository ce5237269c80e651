#include "plugin/loader.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "observe/log.h"

namespace tutti::plugin {
namespace {

using observe::Level;
using observe::Subsys;

constexpr size_t kLongestName = 256;

__attribute__((format(printf, 5, 6))) void logLine(int level, unsigned long flags, const char* file, int line, const char* text, ...) {
  const auto wanted = static_cast<Level>(level);
  const bool warning = wanted == Level::Warn;
  if (!warning && !observe::enabled(wanted, Subsys(flags))) return;
  char message[observe::kMaxLineBytes];
  va_list arguments;
  va_start(arguments, text);
  (void)vsnprintf(message, sizeof message, text == nullptr ? "" : text, arguments);
  va_end(arguments);
  if (warning) {
    observe::warn("{} ({}:{})", message, file == nullptr ? "" : file, line);
  } else {
    observe::log(wanted, Subsys(flags), "{}", message);
  }
}

}  // namespace

std::vector<std::string> filesOf(std::string_view name, std::string_view prefix) {
  if (name == "STATIC_PLUGIN") return {""};
  std::vector<std::string> files{std::string(name)};
  const bool isFile = name.starts_with("lib") && name.ends_with(".so");
  if (name.find('/') == std::string_view::npos && !isFile) files.push_back(format("lib{}-{}.so", prefix, name));
  return files;
}

Result<UniqueLibrary> open(std::string_view name, std::string_view prefix) {
  std::string problems;
  for (const std::string& file : filesOf(name, prefix)) {
    UniqueLibrary library(dlopen(file.empty() ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library) return library;
    const char* const why = dlerror();
    problems += format("{}{}", problems.empty() ? "" : "; ", why == nullptr ? file : why);
  }
  return fail(Code::SystemError, "{}", problems);
}

const void* symbolOf(const UniqueLibrary& library, const char* symbol) { return dlsym(library.get(), symbol); }

bool isName(const char* name) { return name != nullptr && strnlen(name, kLongestName) < kLongestName; }

Logger logger() { return logLine; }

Status statusOf(int code, std::string_view kind, std::string_view plugin, std::string_view what) {
  if (code == 0) return Status();
  const bool known = code >= static_cast<int>(Code::UnhandledCudaError) && code <= static_cast<int>(Code::RemoteError);
  return error(known ? static_cast<Code>(code) : Code::InternalError, "{} {}: {} failed with {}", kind, plugin, what, code);
}

}  // namespace tutti::plugin
