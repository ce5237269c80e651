// The scalar definition and the best level against CUDA's own host code for its 16- and 8-bit floats: all codes, and sums of
// all pairs of 16-bit codes. All 2^32 pairs take minutes (TUTTI_TEST_FULL=1); otherwise a slice by a fixed stride.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "core/element.h"
#include "exec/host/reduce/reduce.h"

namespace tutti::exec::host::cuda_oracle_test {
namespace {

struct CudaHalf {
  static constexpr DataType kType = DataType::F16;
  using Raw = __half_raw;
  static float widen(uint16_t bits) { return __half2float(of(bits)); }
  static uint16_t narrow(float x) { return Raw(__float2half_rn(x)).x; }
  static uint16_t add(uint16_t a, uint16_t b) { return Raw(__hadd(of(a), of(b))).x; }
  static __half of(uint16_t bits) {
    Raw raw;
    raw.x = bits;
    return raw;
  }
};

struct CudaBfloat16 {
  static constexpr DataType kType = DataType::BF16;
  using Raw = __nv_bfloat16_raw;
  static float widen(uint16_t bits) { return __bfloat162float(of(bits)); }
  static uint16_t narrow(float x) { return Raw(__float2bfloat16_rn(x)).x; }
  static uint16_t add(uint16_t a, uint16_t b) { return Raw(__hadd(of(a), of(b))).x; }
  static __nv_bfloat16 of(uint16_t bits) {
    Raw raw;
    raw.x = bits;
    return raw;
  }
};

template <class Cuda>
class CudaOracleTest : public testing::Test {};
using Types = testing::Types<CudaHalf, CudaBfloat16>;
TYPED_TEST_SUITE(CudaOracleTest, Types);

TYPED_TEST(CudaOracleTest, ConversionsAgreeOnAllCodes) {
  constexpr DataType type = TypeParam::kType;
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const float ours = toFloat(ElementOf<type>{bits}), theirs = TypeParam::widen(bits);
    if (element::isNan(theirs)) {
      ASSERT_TRUE(element::isNan(ours)) << code;
    } else {
      ASSERT_EQ(element::bitsOf(ours), element::bitsOf(theirs)) << code;
    }
  }
}

TYPED_TEST(CudaOracleTest, RoundingAgreesOnAllUpperHalvesAndAwkwardLowerOnes) {
  constexpr DataType type = TypeParam::kType;
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu, 0x8000u, 0x8001u,
                               0xefffu, 0xf000u, 0xffffu}) {
      const float x = element::floatOf(high << 16 | low);
      ASSERT_EQ(narrow<type>(x).bits, TypeParam::narrow(x)) << std::hex << (high << 16 | low);
    }
  }
}

/// Sums of `a` with all codes, by the best level, against CUDA's host addition.
template <class Cuda>
void checkSumsWith(uint16_t a, const std::vector<uint16_t>& codes) {
  static std::vector<uint16_t> same(65536), got(65536);
  std::fill(same.begin(), same.end(), a);
  const void* const sources[] = {same.data(), codes.data()};
  const Reduction reduction{.type = Cuda::kType, .op = ReduceOp::Sum, .scaling = {}};
  selectReduce(Cuda::kType, ReduceOp::Sum, detectSimd())(got.data(), sources, 2, codes.size(), reduction, 0, true);
  for (size_t b = 0; b < codes.size(); ++b) {
    ASSERT_EQ(got[b], Cuda::add(a, static_cast<uint16_t>(b))) << std::hex << a << " + " << b;
  }
}

TYPED_TEST(CudaOracleTest, SumsAgreeOnPairs) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  const bool full = std::getenv("TUTTI_TEST_FULL") != nullptr;
  const uint32_t stride = full ? 1 : 127;  // odd: the slice meets all exponents and both signs
  for (uint32_t a = 0; a < 65536 && !this->HasFailure(); a += stride) {
    checkSumsWith<TypeParam>(static_cast<uint16_t>(a), codes);
  }
}

template <DataType type>
void checkFp8(__nv_fp8_interpretation_t interpretation) {
  const auto theirs = [&](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, interpretation); };
  for (uint32_t code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float value = toFloat(ElementOf<type>{bits});
    const __half half(__nv_cvt_fp8_to_halfraw(bits, interpretation));
    if (__hisnan(half)) {
      ASSERT_TRUE(element::isNan(value)) << code;
    } else {
      ASSERT_EQ(element::bitsOf(value), element::bitsOf(__half2float(half))) << code;
    }
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 509) {
    const float x = element::floatOf(static_cast<uint32_t>(bits));
    ASSERT_EQ(narrow<type>(x).bits, theirs(x)) << std::hex << bits;
  }
  for (uint32_t high = 0; high < 1u << 16; ++high) {  // ties and their neighbours
    for (const uint32_t low : {0u, 1u, 0xffffu}) {
      const float x = element::floatOf(high << 16 | low);
      ASSERT_EQ(narrow<type>(x).bits, theirs(x)) << std::hex << (high << 16 | low);
    }
  }
}

TEST(CudaFp8OracleTest, ConversionsAgree) {
  checkFp8<DataType::F8E4M3>(__NV_E4M3);
  checkFp8<DataType::F8E5M2>(__NV_E5M2);
}

}  // namespace
}  // namespace tutti::exec::host::cuda_oracle_test
