#include "tune/plugin/versions.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::tune::plugin::versions_test {
namespace {

/// What the plugin of a version was told last.
struct Seen {
  size_t ranks = 0;
  size_t bytes = 0;
  int collective = -1;
  uint64_t commId = 0;
  int finished = 0;
};
Seen seen;

template <class Tuner>
Tuner makeTuner() {
  Tuner tuner{};
  tuner.name = "Fake";
  const auto finish = +[](void*) {
    ++seen.finished;
    return 0;
  };
  if constexpr (Tuner::kVersion == 5) {
    tuner.init = [](void** context, uint64_t id, size_t ranks, size_t, abi::Logger, abi::NvlDomainsV5*, abi::ConstantsV5*) {
      *context = &seen;
      seen.ranks = ranks;
      seen.commId = id;
      return 0;
    };
    tuner.finalize = finish;
  } else {
    tuner.init = [](size_t ranks, size_t, abi::Logger, void** context) {
      *context = &seen;
      seen.ranks = ranks;
      return 0;
    };
    tuner.destroy = finish;
  }
  return tuner;
}

/// Version 4 and 5 have the same question.
int answer(void* context, int collective, size_t bytes, float** costs, int* channels) {
  static_cast<Seen*>(context)->bytes = bytes;
  static_cast<Seen*>(context)->collective = collective;
  if (costs != nullptr) reinterpret_cast<float*>(costs)[1 * 3 + 2] = 0;
  *channels = 7;
  return 0;
}

template <class Tuner>
void expectAdapted(Tuner tuner) {
  seen = {};
  if constexpr (Tuner::kVersion == 2) {
    tuner.getCollInfo = [](void* context, int collective, size_t bytes, int, int, int, int* algorithm, int* protocol, int* channels) {
      *algorithm = 1;
      *protocol = 2;
      return answer(context, collective, bytes, nullptr, channels);
    };
  } else if constexpr (Tuner::kVersion == 3) {
    tuner.getCollInfo = [](void* context, int collective, size_t bytes, int, float** costs, int, int, int* channels) {
      return answer(context, collective, bytes, costs, channels);
    };
  } else {
    tuner.getCollInfo = [](void* context, int collective, size_t bytes, int, float** costs, int, int, int, int* channels) {
      return answer(context, collective, bytes, costs, channels);
    };
  }
  for (const Version& version : versions()) {
    if (version.number != Tuner::kVersion) continue;
    EXPECT_TRUE(version.complete(&tuner));
    EXPECT_STREQ(version.name(&tuner), "Fake");
    Start start;
    start.ranks = 12;
    start.commId = 99;
    void* context = nullptr;
    EXPECT_EQ(version.init(&tuner, start, &context), 0);
    EXPECT_EQ(seen.ranks, 12u);
    std::array<float, 21> table{};
    table.fill(5);
    int channels = 0;
    EXPECT_EQ(version.ask(&tuner, context, {4, 1000, table.data()}, &channels), 0);
    EXPECT_EQ(seen.bytes, 1000u);
    EXPECT_EQ(seen.collective, 4);
    EXPECT_EQ(channels, 7);
    for (size_t i = 0; i < table.size(); ++i) EXPECT_EQ(table[i], i == 5 ? 0 : 5) << i;
    EXPECT_EQ(version.finalize(&tuner, context), 0);
    EXPECT_EQ(seen.finished, 1);
    tuner.getCollInfo = nullptr;
    EXPECT_FALSE(version.complete(&tuner));
    return;
  }
  ADD_FAILURE() << "no version " << Tuner::kVersion;
}

TEST(TunerVersions, AreAdaptedFromOneTable) {
  expectAdapted(makeTuner<abi::TunerV2>());
  expectAdapted(makeTuner<abi::TunerV3>());
  expectAdapted(makeTuner<abi::TunerV4>());
  expectAdapted(makeTuner<abi::TunerV5>());
  int before = 6;
  for (const Version& version : versions()) {
    EXPECT_EQ(version.number, --before) << "newest first";
    EXPECT_EQ(version.symbol, "ncclTunerPlugin_v" + std::to_string(version.number));
  }
  EXPECT_EQ(before, 2);
}

}  // namespace
}  // namespace tutti::tune::plugin::versions_test
