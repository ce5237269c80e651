// The fuzzer's function without the fuzzer: its seeds, and thousands of random changes of them.
#include <gtest/gtest.h>

#include <random>

#include "bootstrap/samples.h"
#include "fuzz/target.h"

namespace tutti::fuzz::frames_replay_test {
namespace {

TEST(FramesReplay, SeedsKeepThePromises) {
  for (const std::string& seed : seeds()) run(seed);
}

TEST(FramesReplay, ChangedSeedsKeepThePromises) {
  std::mt19937 random(20'261'130);
  const std::vector<std::string> all = seeds();
  for (int i = 0; i < 30'000; ++i) {
    std::string bytes = all[random() % all.size()];
    bootstrap::samples::damage(bytes, random);
    run(bytes);
  }
}

}  // namespace
}  // namespace tutti::fuzz::frames_replay_test
