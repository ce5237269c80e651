#include "comm/constants.h"

#include "config/params.h"
#include "observe/log.h"
#include "tune/store.h"

namespace tutti::comm {

const tune::Platform* Constants::get() {
  std::call_once(looked_, [this] {
    const std::string given = config::get<config::Param::TuttiCacheDir>();
    const std::string folder = given == "none" ? "" : tune::cacheFolder(given);
    if (folder.empty()) return;
    const std::string key = tune::machineKey();
    auto stored = tune::readStored(folder, key);
    if (!stored) {
      observe::warn("{}; algorithms are chosen by built-in constants: tutti tune measures new ones", stored.error().text());
      return;
    }
    stored_ = std::move(*stored);
    path_ = tune::storedPath(folder, key);
    if (stored_) digest_ = tune::digestOf(*stored_);
  });
  return stored_ ? &*stored_ : nullptr;
}

void Constants::tellUse(std::string_view name) {
  if (const tune::Platform* const own = get(); own != nullptr && own->name == name)
    observe::info(observe::Subsys::Init | observe::Subsys::Tuning,
                  "algorithms are chosen by the constants \"{}\", measured on this machine: {}", name, path_);
}

uint32_t Constants::digest() {
  (void)get();
  return digest_;
}

void Constants::tellDifference() {
  std::call_once(told_, [] {
    observe::warn("the ranks' machines have different constants (tutti tune): algorithms are chosen by built-in ones");
  });
}

}  // namespace tutti::comm
