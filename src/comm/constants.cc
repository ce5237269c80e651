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
    auto stored = tune::readStored(folder, tune::machineKey());
    if (!stored) {
      observe::warn("{}; algorithms are chosen by built-in constants: tutti tune measures new ones", stored.error().text());
      return;
    }
    stored_ = std::move(*stored);
    if (stored_) digest_ = tune::digestOf(*stored_);
  });
  return stored_ ? &*stored_ : nullptr;
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
