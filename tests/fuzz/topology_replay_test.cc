// The fuzzer's function without the fuzzer: its seeds, and tens of thousands of random changes of them.
#include <gtest/gtest.h>

#include <random>

#include "fuzz/target.h"

namespace tutti::fuzz::topology_replay_test {
namespace {

/// Changes that keep most of the structure: other bytes, words cut out, doubled or taken from another place.
void damage(std::string& text, std::mt19937& random) {
  for (unsigned i = 0; i < 1 + random() % 4; ++i) {
    if (text.empty()) return;
    const size_t at = random() % text.size();
    const size_t length = std::min<size_t>(random() % 40, text.size() - at);
    switch (random() % 4) {
      case 0: text[at] = "0123456789abcdefx<>\"/= -"[random() % 24]; break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(at, length)); break;
      default: text.insert(random() % text.size(), text.substr(at, length));
    }
  }
}

TEST(TopologyReplay, SeedsAreMachines) {
  for (const std::string& seed : seeds()) run(seed);
}

TEST(TopologyReplay, ChangedSeedsKeepThePromises) {
  std::mt19937 random(20'261'122);
  const std::vector<std::string> all = seeds();
  for (int i = 0; i < 20'000; ++i) {
    std::string text = all[random() % all.size()];
    damage(text, random);
    run(text);
  }
}

/// Digits alone change, so that every file stays well-formed and most are accepted.
TEST(TopologyReplay, ChangedNumbersKeepThePromises) {
  std::mt19937 random(11);
  const std::vector<std::string> all = seeds();
  for (int i = 0; i < 20'000; ++i) {
    std::string text = all[random() % all.size()];
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      const size_t at = text.find_first_of("0123456789", random() % text.size());
      if (at != std::string::npos) text[at] = "0123456789"[random() % 10];
    }
    run(text);
  }
}

}  // namespace
}  // namespace tutti::fuzz::topology_replay_test
