// The fuzzer's function without the fuzzer: its seeds, and thousands of random changes of them.
#include <gtest/gtest.h>

#include <random>

#include "fuzz/target.h"

namespace tutti::fuzz::channels_replay_test {
namespace {

TEST(ChannelsReplay, SeedsKeepThePromises) {
  for (const std::string& seed : seeds()) run(seed);
}

/// Digits change, and now and then a piece is cut out or doubled: most files stay well-formed.
TEST(ChannelsReplay, ChangedSeedsKeepThePromises) {
  std::mt19937 random(20'261'123);
  const std::vector<std::string> all = seeds();
  for (int i = 0; i < 4000; ++i) {
    std::string text = all[random() % all.size()];
    for (unsigned change = 0; change < 1 + random() % 4; ++change) {
      const size_t at = text.find_first_of("0123456789", random() % text.size());
      if (at != std::string::npos) text[at] = "0123456789"[random() % 10];
    }
    if (random() % 8 == 0) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(random() % 30, text.size() - at);
      if (random() % 2 == 0) text.erase(at, length);
      else text.insert(at, text.substr(at, length));
    }
    run(text);
  }
}

}  // namespace
}  // namespace tutti::fuzz::channels_replay_test
