// The fuzzer's function without the fuzzer: its seeds, and hundreds of thousands of random changes of them.
#include <gtest/gtest.h>

#include <random>

#include "bootstrap/samples.h"
#include "fuzz/bootstrap_fuzz.h"

namespace tutti::bootstrap {
namespace {

TEST(Replay, SeedsKeepThePromises) {
  for (const auto& seed : fuzz::seeds()) fuzz::run(seed);
}

TEST(Replay, ChangedSeedsKeepThePromises) {
  std::mt19937 random(20'261'121);
  const auto seeds = fuzz::seeds();
  for (int i = 0; i < 400'000; ++i) {
    std::vector<std::byte> bytes = seeds[random() % seeds.size()];
    samples::damage(bytes, random);
    fuzz::run(bytes);
  }
}

TEST(Replay, NoiseKeepsThePromises) {
  std::mt19937 random(7);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes(random() % 200);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random() % 3 == 0 ? random() : 0);
    fuzz::run(bytes);
  }
}

}  // namespace
}  // namespace tutti::bootstrap
