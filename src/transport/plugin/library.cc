#include "transport/plugin/library.h"

#include <map>
#include <utility>

#include "plugin/loader.h"

namespace tutti::transport::plugin {
namespace {

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

namespace {

/// Those that have been initialised, by their networks.
struct Initialised {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Library>> libraries;
};
/// Never destroyed: what they run may outlive main().
Initialised& initialised() {
  static auto* const all = new Initialised();  // NOLINT(cppcoreguidelines-owning-memory)
  return *all;
}

}  // namespace

Result<std::shared_ptr<Library>> Library::load(std::string_view name, int newest) {
  std::shared_ptr<Library> library(new Library());
  auto opened = tutti::plugin::open(name, "nccl-net");
  if (!opened) return tl::unexpected(std::move(opened).error());
  library->library_ = std::move(*opened);
  const auto found = tutti::plugin::find(library->library_, versions(), newest);
  library->raw_ = found.raw;
  if (library->raw_ == nullptr) return fail(Code::InvalidUsage, "{} exports no network of version 8 to {}", name, newest);
  {
    const std::lock_guard lock(initialised().mutex);
    if (const auto kept = initialised().libraries.find(found.raw); kept != initialised().libraries.end()) return kept->second;
  }
  library->version_ = found.version;
  const char* const own = library->version_->name(library->raw_);
  if (!tutti::plugin::isName(own)) return fail(Code::InvalidUsage, "{} has no name", name);
  library->networkName_ = own;
  if (!library->version_->complete(library->raw_)) {
    return fail(Code::InvalidUsage, "{} of {} lacks functions that every network has", library->version_->symbol, name);
  }
  return library;
}

void Library::forgetForTest() {
  const std::lock_guard lock(initialised().mutex);
  initialised().libraries.clear();
}

Status Library::init(const net::Use& use, void** context) {
  *context = nullptr;
  const std::lock_guard lock(mutex_);
  if (!version_->initPerComm && initialised_) return Status();
  const int code = version_->init(raw_, context, use, tutti::plugin::logger());
  if (code == 0 && !initialised_) {
    const std::lock_guard keeping(initialised().mutex);
    initialised().libraries.emplace(raw_, shared_from_this());
    initialised_ = true;
  }
  return statusOf(code, networkName_, "init");
}

Status statusOf(int code, std::string_view plugin, std::string_view what) {
  return tutti::plugin::statusOf(code, "network", plugin, what);
}

}  // namespace tutti::transport::plugin
