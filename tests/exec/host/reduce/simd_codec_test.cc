// One NaN among ordinary numbers: wherever it lies, however it came about, it leaves a fold as the canonical one and changes
// nothing beside it. (Where many lie together, reduce_test.cc could not tell which of them was noticed.)
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "exec/host/reduce/reduce.h"

namespace tutti::exec::host::simd_codec_test {
namespace {

struct Format {
  DataType type;
  uint16_t one, two, infinity, nan;  ///< `nan` is not the canonical one
};
constexpr Format kFormats[] = {{DataType::BF16, 0x3f80, 0x4000, 0x7f80, 0xffc1}, {DataType::F16, 0x3c00, 0x4000, 0x7c00, 0xfe01}};
constexpr uint16_t kCanonical = 0x7fff;
constexpr uint16_t kMinus = 0x8000;

using Elements = std::vector<uint16_t>;

struct Call {
  SimdLevel level;
  size_t elems;
  int numSources;
  bool isScaled;   ///< by one
  bool isInPlace;  ///< onto the last source
};

/// Sums ones, but at `at` the first two sources hold `a` and `b`.
Elements sum(const Format& format, const Call& call, size_t at, uint16_t a, uint16_t b) {
  std::vector<Elements> sources(static_cast<size_t>(call.numSources), Elements(call.elems, format.one));
  sources[0][at] = a;
  sources[1][at] = b;
  std::vector<const void*> pointers;
  for (const Elements& source : sources) pointers.push_back(source.data());
  Elements apart(call.elems);
  Elements& out = call.isInPlace ? sources.back() : apart;
  const Reduction reduction{.type = format.type, .op = ReduceOp::Sum, .scaling = {.factor = format.one, .hasFactor = call.isScaled}};
  selectReduce(format.type, ReduceOp::Sum, call.level)(out.data(), pointers.data(), call.numSources, call.elems, reduction,
                                                       call.isScaled ? ~0U : 0U, true);
  return out;
}

void checkEveryPlace(const Format& format, const Call& call) {
  const uint16_t ordinary = sum(format, call, 0, format.one, format.one)[0];
  const std::array<std::array<uint16_t, 2>, 3> pairs = {{{format.nan, format.one},
                                                        {format.one, format.nan},
                                                        {format.infinity, static_cast<uint16_t>(format.infinity | kMinus)}}};
  for (const auto& [a, b] : pairs)
    for (size_t at = 0; at < call.elems; ++at) {
      const Elements out = sum(format, call, at, a, b);
      for (size_t i = 0; i < call.elems; ++i)
        ASSERT_EQ(out[i], i == at ? kCanonical : ordinary)
            << name(format.type) << ' ' << name(call.level) << ", " << call.numSources << " sources, element " << i << ", NaN at " << at;
    }
}

TEST(SimdCodec, OneNanIsNoticedWhereverItLies) {
  for (const Format& format : kFormats)
    for (const SimdLevel level : {SimdLevel::Portable, SimdLevel::Sse4, SimdLevel::Avx2, SimdLevel::Avx512})
      for (const int numSources : {2, 3, 4})
        for (const bool isScaled : {false, true})
          if (isSupported(level)) checkEveryPlace(format, {level, 150, numSources, isScaled, numSources == 3});
}

TEST(SimdCodec, InfinitiesAreNoNans) {
  for (const Format& format : kFormats)
    for (const SimdLevel level : {SimdLevel::Portable, SimdLevel::Sse4, SimdLevel::Avx2, SimdLevel::Avx512}) {
      if (!isSupported(level)) continue;
      const Call call{level, 150, 2, false, false};
      const auto least = static_cast<uint16_t>(format.infinity | kMinus);
      EXPECT_EQ(sum(format, call, 70, format.infinity, format.one)[70], format.infinity);
      EXPECT_EQ(sum(format, call, 70, format.one, least)[70], least);
      EXPECT_EQ(sum(format, call, 70, format.one, format.one)[70], format.two);
      const auto largest = static_cast<uint16_t>(format.infinity - 1);
      EXPECT_EQ(sum(format, call, 70, largest, largest)[70], format.infinity) << "overflow";
    }
}

}  // namespace
}  // namespace tutti::exec::host::simd_codec_test
