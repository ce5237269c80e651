#include "transport/plugin/library.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "observe/log.h"

namespace tutti::transport::plugin {
namespace {

using observe::Level;
using observe::Subsys;

constexpr size_t kLongestName = 256;

/// What plugins log with.
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

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<std::string> pluginNames(std::string_view list) {
  if (trim(list).empty()) return {"libnccl-net.so"};
  std::vector<std::string> names;
  while (!list.empty() && names.size() < kMostNames) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view name = trim(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (name == "none") return {};
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> filesOf(std::string_view name) {
  if (name == "STATIC_PLUGIN") return {""};
  std::vector<std::string> files{std::string(name)};
  const bool isFile = name.starts_with("lib") && name.ends_with(".so");
  if (name.find('/') == std::string_view::npos && !isFile) files.push_back(format("libnccl-net-{}.so", name));
  return files;
}

void LibraryTraits::close(Type handle) noexcept { (void)dlclose(handle); }

Result<std::shared_ptr<Library>> Library::load(std::string_view name, int newest) {
  std::shared_ptr<Library> library(new Library());
  std::string problems;
  for (const std::string& file : filesOf(name)) {
    library->handle_.reset(dlopen(file.empty() ? nullptr : file.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (library->handle_) break;
    const char* const why = dlerror();
    problems += format("{}{}", problems.empty() ? "" : "; ", why == nullptr ? file : why);
  }
  if (!library->handle_) return fail(Code::SystemError, "{}", problems);
  for (const Version& version : versions()) {
    if (version.number > newest) continue;
    library->raw_ = dlsym(library->handle_.get(), version.symbol);
    library->version_ = &version;
    if (library->raw_ != nullptr) break;
  }
  if (library->raw_ == nullptr) return fail(Code::InvalidUsage, "{} exports no network of version 8 to {}", name, newest);
  const char* const own = library->version_->name(library->raw_);
  if (own == nullptr || strnlen(own, kLongestName) == kLongestName) return fail(Code::InvalidUsage, "{} has no name", name);
  library->networkName_ = own;
  if (!library->version_->complete(library->raw_)) {
    return fail(Code::InvalidUsage, "{} of {} lacks functions that every network has", library->version_->symbol, name);
  }
  return library;
}

Status Library::init(uint64_t commId, void** context) {
  *context = nullptr;
  const std::lock_guard lock(mutex_);
  if (!version_->initPerComm && initialised_) return Status();
  const int code = version_->init(raw_, context, commId, logLine);
  initialised_ = code == 0;
  return statusOf(code, networkName_, "init");
}

Status statusOf(int code, std::string_view plugin, std::string_view what) {
  if (code == 0) return Status();
  const bool known = code >= static_cast<int>(Code::UnhandledCudaError) && code <= static_cast<int>(Code::RemoteError);
  return error(known ? static_cast<Code>(code) : Code::InternalError, "network {}: {} failed with {}", plugin, what, code);
}

}  // namespace tutti::transport::plugin
