// The fuzzer's function without the fuzzer: what users write, and random changes of it.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fuzz/filter_fuzz.h"

namespace tutti::fuzz {
namespace {

void run(const std::string& text) { parseFilters(reinterpret_cast<const uint8_t*>(text.data()), text.size()); }

TEST(FilterReplay, WhatUsersWriteAndChangesOfItKeepThePromises) {
  const std::vector<std::string> seeds = {"Ring",
                                          "^tree,PAT",
                                          "allreduce:tree;broadcast:ring",
                                          "ring;allreduce:^tree,nvls",
                                          ";;",
                                          ":",
                                          "^",
                                          "LL,Simple",
                                          "allgather:pat;reducescatter:pat;ring",
                                          ""};
  for (const std::string& seed : seeds) run(seed);
  std::mt19937 random(4711);
  constexpr char kAlphabet[] = "^,;: \0rRtT\xff";
  for (int i = 0; i < 50'000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (unsigned change = 0; change < 1 + random() % 4; ++change) {
      const size_t at = random() % (text.size() + 1);
      switch (random() % 3) {
        case 0: text.insert(at, 1, kAlphabet[random() % (sizeof kAlphabet - 1)]); break;
        case 1: text.erase(at, random() % 6); break;
        default: text.insert(at, seeds[random() % seeds.size()]);
      }
    }
    run(text);
  }
  run(std::string(1 << 16, ','));
  run(std::string(1 << 16, ';'));
  run("allreduce:" + std::string(1 << 16, '^'));
}

}  // namespace
}  // namespace tutti::fuzz
