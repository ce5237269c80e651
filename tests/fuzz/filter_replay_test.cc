// The fuzzer's function without the fuzzer: what users write, and random changes of it.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fuzz/target.h"

namespace tutti::fuzz::filter_replay_test {
namespace {

TEST(FilterReplay, WhatUsersWriteAndChangesOfItKeepThePromises) {
  const std::vector<std::string> all = seeds();
  for (const std::string& seed : all) run(seed);
  std::mt19937 random(4711);
  constexpr char kAlphabet[] = "^,;: \0rRtT\xff";
  for (int i = 0; i < 50'000; ++i) {
    std::string text = all[random() % all.size()];
    for (unsigned change = 0; change < 1 + random() % 4; ++change) {
      const size_t at = random() % (text.size() + 1);
      switch (random() % 3) {
        case 0: text.insert(at, 1, kAlphabet[random() % (sizeof kAlphabet - 1)]); break;
        case 1: text.erase(at, random() % 6); break;
        default: text.insert(at, all[random() % all.size()]);
      }
    }
    run(text);
  }
  run(std::string(1 << 16, ','));
  run(std::string(1 << 16, ';'));
  run("allreduce:" + std::string(1 << 16, '^'));
}

}  // namespace
}  // namespace tutti::fuzz::filter_replay_test
