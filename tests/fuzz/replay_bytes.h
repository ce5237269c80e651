// For targets that read bytes: the fuzzer's function without the fuzzer; its seeds, and hundreds of thousands of random changes of them.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "bootstrap/samples.h"
#include "fuzz/target.h"

namespace tutti::fuzz {
TEST(Replay, SeedsKeepThePromises) {
  for (const std::string& seed : seeds()) run(seed);
}

TEST(Replay, ChangedSeedsKeepThePromises) {
  std::mt19937 random(20'261'121);
  const std::vector<std::string> all = seeds();
  for (int i = 0; i < 400'000; ++i) {
    std::string bytes = all[random() % all.size()];
    bootstrap::samples::damage(bytes, random);
    run(bytes);
  }
}

TEST(Replay, NoiseKeepsThePromises) {
  std::mt19937 random(7);
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes(random() % 200, 0);
    for (char& one : bytes) one = static_cast<char>(random() % 3 == 0 ? random() : 0);
    run(bytes);
  }
}

}  // namespace tutti::fuzz
