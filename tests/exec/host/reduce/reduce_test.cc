// Every level against the scalar definition, bit for bit: all pairs of 8-bit codes, all 16-bit codes against chosen ones,
// special and random values of the wide types, and every way to call a ReduceFn.
#include "exec/host/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "scalar_reference.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace tutti::exec::host::reduce_test {
namespace {

constexpr DataType kTypes[] = {DataType::I8, DataType::U8, DataType::I32, DataType::U32, DataType::I64, DataType::U64,
                               DataType::F16, DataType::F32, DataType::F64, DataType::BF16, DataType::F8E4M3,
                               DataType::F8E5M2};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min};

Reduction reductionOf(DataType type, ReduceOp op = ReduceOp::Sum) { return {.type = type, .op = op, .scaling = {}}; }

std::vector<SimdLevel> supportedLevels() {
  std::vector<SimdLevel> levels;
  for (int k = 0; k < kNumSimdLevels; ++k) {
    if (isSupported(static_cast<SimdLevel>(k))) levels.push_back(static_cast<SimdLevel>(k));
  }
  return levels;
}

std::string describe(const Reduction& reduction, SimdLevel level) {
  return std::string(name(reduction.type)) + " " + std::string(name(reduction.op)) + " " + name(level);
}

template <class T>
void append(Buffer& out, T value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

/// Compares every level with the reference on two whole operands.
void expectSame(const Reduction& reduction, const Buffer& a, const Buffer& b) {
  const size_t elems = a.size() / sizeOf(reduction.type);
  Buffer expected(a.size()), got(a.size());
  reference(reduction, expected.data(), {a.data(), b.data()}, elems);
  const void* const sources[] = {a.data(), b.data()};
  for (const SimdLevel level : supportedLevels()) {
    selectReduce(reduction.type, reduction.op, level)(got.data(), sources, 2, elems, reduction, 0, true);
    if (std::memcmp(got.data(), expected.data(), got.size()) == 0) continue;
    const size_t at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    const size_t first = at / sizeOf(reduction.type) * sizeOf(reduction.type);
    uint64_t values[4] = {};
    const Buffer* const buffers[] = {&a, &b, &got, &expected};
    for (int k = 0; k < 4; ++k) std::memcpy(&values[k], buffers[k]->data() + first, sizeOf(reduction.type));
    ADD_FAILURE() << describe(reduction, level) << std::hex << ": " << values[0] << ", " << values[1] << " gave " << values[2]
                  << ", not " << values[3];
    return;
  }
}

TEST(ReduceTest, AllPairsOfBytes) {
  Buffer a(65536), b(65536);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<unsigned char>(i), b[i] = static_cast<unsigned char>(i >> 8);
  for (const DataType type : {DataType::I8, DataType::U8, DataType::F8E4M3, DataType::F8E5M2}) {
    for (const ReduceOp op : kOps) expectSame(reductionOf(type, op), a, b);
  }
}

/// Specials of both 16-bit floats (each type sees the other's as ordinary values), their neighbours, and random codes.
std::vector<uint16_t> chosenCodes() {
  std::vector<uint16_t> codes;
  for (const int magnitude : {0x0000, 0x0001, 0x0002, 0x007f, 0x0080, 0x0081, 0x03ff, 0x0400, 0x0401, 0x1000, 0x3c00, 0x3f80,
                              0x3c01, 0x3f81, 0x5bff, 0x7800, 0x7bfe, 0x7bff, 0x7c00, 0x7c01, 0x7dff, 0x7e00, 0x7f00, 0x7f7e,
                              0x7f7f, 0x7f80, 0x7f81, 0x7fbf, 0x7fc0, 0x7fff}) {
    codes.push_back(static_cast<uint16_t>(magnitude));
    codes.push_back(static_cast<uint16_t>(magnitude | 0x8000));
  }
  std::mt19937 random(1);
  while (codes.size() < 288) codes.push_back(static_cast<uint16_t>(random()));
  return codes;
}

TEST(ReduceTest, AllHalfWordsWithChosenOnes) {
  Buffer a(2 * 65536), b(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<uint16_t>(i);
    std::memcpy(&a[2 * i], &code, 2);
  }
  for (const DataType type : {DataType::F16, DataType::BF16}) {
    for (const uint16_t code : chosenCodes()) {
      for (size_t i = 0; i < b.size(); i += 2) std::memcpy(&b[i], &code, 2);
      for (const ReduceOp op : kOps) expectSame(reductionOf(type, op), a, b);
      if (HasFailure()) return;
    }
  }
}

template <class Bits>
std::vector<Bits> specials() {
  constexpr int kMantissa = sizeof(Bits) == 4 ? 23 : 52, kWidth = 8 * sizeof(Bits);
  constexpr Bits kInf = ((Bits{1} << (kWidth - 1 - kMantissa)) - 1) << kMantissa, kOne = (kInf >> 1) & ~((Bits{1} << kMantissa) - 1);
  std::vector<Bits> values = {0, 1, 2, 3, (Bits{1} << kMantissa) - 1, Bits{1} << kMantissa, (Bits{1} << kMantissa) + 1, kOne,
                              kOne + 1, kOne - 1, kInf - 1, kInf, kInf + 1, kInf + (Bits{1} << (kMantissa - 1)),
                              ~Bits{0} >> 1, kInf - (Bits{1} << kMantissa), Bits{0xffff}, Bits{0x10000}};
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(values[i] | Bits{1} << (kWidth - 1));
  return values;
}

template <class Bits>
void expectSameOnWide(std::initializer_list<DataType> types) {
  Buffer a, b;
  for (const Bits x : specials<Bits>()) {
    for (const Bits y : specials<Bits>()) append(a, x), append(b, y);
  }
  std::mt19937_64 random(2);
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<Bits>(random());
    append(a, x);
    // Near partners too: sums that cancel, and exponents apart by about a mantissa.
    append(b, i % 3 == 0 ? static_cast<Bits>(random()) : static_cast<Bits>(x ^ (random() >> (i % 64))));
  }
  for (const DataType type : types) {
    for (const ReduceOp op : kOps) expectSame(reductionOf(type, op), a, b);
  }
}

TEST(ReduceTest, WideTypesOnSpecialAndRandomValues) {
  expectSameOnWide<uint32_t>({DataType::I32, DataType::U32, DataType::F32});
  expectSameOnWide<uint64_t>({DataType::I64, DataType::U64, DataType::F64});
}

/// Random bits tempered so that folds of nine sources are not all NaN or infinity.
Buffer randomElements(DataType type, size_t elems, std::mt19937_64& random) {
  Buffer out;
  for (size_t i = 0; i < elems; ++i) {
    const uint64_t bits = random();
    const bool isWild = bits % 16 == 0;
    const auto value = static_cast<float>(static_cast<int64_t>(bits >> 20)) * 0x1p-43f;
    switch (sizeOf(type)) {
      case 1: append(out, static_cast<uint8_t>(isWild ? bits >> 8 : (bits >> 8) & 0xbf)); break;
      case 2:
        if (isWild) append(out, static_cast<uint16_t>(bits >> 8));
        else if (type == DataType::F16) append(out, toHalf(value));
        else append(out, toBfloat16(value));
        break;
      case 4: isWild || type != DataType::F32 ? append(out, static_cast<uint32_t>(bits >> 8)) : append(out, value); break;
      default: isWild || type != DataType::F64 ? append(out, bits) : append(out, static_cast<double>(value)); break;
    }
  }
  return out;
}

struct Call {
  int numSources;
  size_t elems;
  size_t misalignment = 0;  // bytes
  int inPlace = -1;         // index of the source that is dst too, or -1
  uint32_t scaled = 0;
  bool finish = false;
  bool nonTemporal = false;
};

/// One call at one level, in guarded memory.
void checkCall(const Reduction& reduction, SimdLevel level, const Call& call, std::mt19937_64& random) {
  const size_t bytes = call.elems * sizeOf(reduction.type);
  constexpr size_t kGuard = 96;
  std::vector<Buffer> memory;
  std::vector<const unsigned char*> originals;
  std::vector<Buffer> copies;
  for (int k = 0; k < call.numSources; ++k) copies.push_back(randomElements(reduction.type, call.elems, random));
  for (const Buffer& copy : copies) originals.push_back(copy.data());
  for (int k = 0; k <= call.numSources; ++k) {
    Buffer& buffer = memory.emplace_back(bytes + 2 * kGuard, 0xa5);
    if (k < call.numSources) std::copy_n(copies[k].data(), bytes, buffer.data() + kGuard + (call.misalignment * (k + 1)) % 64);
  }
  std::vector<const void*> sources;
  for (int k = 0; k < call.numSources; ++k) sources.push_back(memory[k].data() + kGuard + (call.misalignment * (k + 1)) % 64);
  const int target = call.inPlace >= 0 ? call.inPlace : call.numSources;
  Buffer whole = memory[target];
  const size_t at = kGuard + (call.misalignment * (target + 1)) % 64;
  reference(reduction, whole.data() + at, originals, call.elems, call.scaled, call.finish);
  selectReduce(reduction.type, reduction.op, level, call.nonTemporal)(memory[target].data() + at, sources.data(),
      call.numSources, call.elems, reduction, call.scaled, call.finish);
  ASSERT_TRUE(memory[target] == whole) << describe(reduction, level) << " sources " << call.numSources << " elems " << call.elems
      << " misaligned " << call.misalignment << " in place " << call.inPlace << " scaled " << call.scaled << " finish "
      << call.finish << " nt " << call.nonTemporal;
}

Scaling scalingOf(DataType type, std::mt19937_64& random) {
  Scaling scaling{.hasFactor = true};
  const Buffer factor = randomElements(type, 1, random);
  std::memcpy(&scaling.factor, factor.data(), factor.size());
  const int32_t divisors[] = {2, 3, 7, 8, 127, 128, 255, 256, 1000, 100000, std::numeric_limits<int32_t>::max()};
  if (isInteger(type)) scaling.divisor = divisors[random() % std::size(divisors)];
  return scaling;
}

TEST(ReduceTest, EveryWayToCall) {
  std::mt19937_64 random(3);
  const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 31, 33, 63, 65, 100, 127, 129, 257, 515, 1031};
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const SimdLevel level : supportedLevels()) {
        for (int numSources = 1; numSources <= 9; ++numSources) {
          for (int repeat = 0; repeat < 12; ++repeat) {
            Call call{.numSources = numSources, .elems = counts[random() % std::size(counts)]};
            call.misalignment = repeat % 3 == 0 ? 0 : repeat % 3 == 1 ? sizeOf(type) : random() % 64;
            call.inPlace = static_cast<int>(random() % (numSources + 1)) - 1;
            call.scaled = repeat % 2 == 0 ? 0 : static_cast<uint32_t>(random());
            call.finish = random() % 2 == 0;
            call.nonTemporal = repeat % 4 == 0;
            if (call.nonTemporal) call.elems += 5000;
            Reduction reduction = reductionOf(type, op);
            if (repeat % 4 != 3) reduction.scaling = scalingOf(type, random);
            ASSERT_NO_FATAL_FAILURE(checkCall(reduction, level, call, random));
          }
        }
      }
    }
  }
}

TEST(ReduceTest, ManySources) {
  std::mt19937_64 random(4);
  for (const SimdLevel level : supportedLevels()) {
    for (const DataType type : {DataType::F16, DataType::I32}) {
      const Reduction reduction = reductionOf(type);
      checkCall(reduction, level, {.numSources = 70, .elems = 333, .misalignment = 2, .inPlace = 40}, random);
    }
  }
}

TEST(ReduceTest, DividesEveryByteAndAwkwardIntegers) {
  Buffer bytes(256);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
  Buffer words, longs;
  for (const uint32_t x : specials<uint32_t>()) append(words, x), append(words, x * 3), append(words, 0u - x);
  for (const uint64_t x : specials<uint64_t>()) append(longs, x), append(longs, x * 3), append(longs, 0u - x);
  for (const DataType type : kTypes) {
    if (!isInteger(type)) continue;
    const Buffer& data = sizeOf(type) == 1 ? bytes : sizeOf(type) == 4 ? words : longs;
    const size_t elems = data.size() / sizeOf(type);
    for (int64_t divisor = 1; divisor <= std::numeric_limits<int32_t>::max(); divisor += divisor < 600 ? 1 : divisor / 3) {
      Reduction reduction = reductionOf(type);
      reduction.scaling.divisor = static_cast<int32_t>(divisor);
      Buffer expected(data.size()), got(data.size());
      reference(reduction, expected.data(), {data.data()}, elems, 0, true);
      const void* const sources[] = {data.data()};
      selectReduce(type, ReduceOp::Sum, detectSimd())(got.data(), sources, 1, elems, reduction, 0, true);
      ASSERT_EQ(got, expected) << name(type) << " / " << divisor;
    }
  }
}

TEST(ReduceTest, AverageWrapsThenTruncates) {
  const int8_t a[] = {100, -3, -1, 127}, b[] = {100, 0, 0, 1};
  const void* const sources[] = {a, b};
  int8_t got[4];
  Reduction average = reductionOf(DataType::I8);
  average.scaling.divisor = 2;
  selectReduce(DataType::I8, ReduceOp::Sum, detectSimd())(got, sources, 2, 4, average, 0, true);
  EXPECT_EQ(got[0], -28);
  EXPECT_EQ(got[1], -1);
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], -64);
}

TEST(ReduceTest, LoneSourceMovesEveryBit) {
  const uint32_t in[] = {0x7f800001u, 0xffc12345u, 0x80000000u};
  const void* const sources[] = {in};
  for (const SimdLevel level : supportedLevels()) {
    uint32_t out[3] = {};
    selectReduce(DataType::F32, ReduceOp::Max, level)(out, sources, 1, 3, reductionOf(DataType::F32, ReduceOp::Max), 0, true);
    EXPECT_EQ(std::memcmp(in, out, sizeof in), 0) << name(level);
  }
}

#if defined(__SSE2__)
TEST(ReduceTest, CallersFloatEnvironmentDoesNotMatter) {
  std::mt19937_64 random(5);
  const unsigned saved = _mm_getcsr();
  constexpr unsigned kFlushAndRoundUp = 0x1f80 | 0x8040 | 0x4000;
  for (const DataType type : {DataType::F16, DataType::F32, DataType::F64, DataType::BF16, DataType::F8E4M3}) {
    const Buffer a = randomElements(type, 1000, random), b = randomElements(type, 1000, random);
    Buffer tiny = a;
    for (size_t i = sizeOf(type) - 1; i < tiny.size(); i += sizeOf(type)) tiny[i] &= 0x80;  // mostly subnormals
    Buffer expected(a.size()), got(a.size());
    for (const Buffer* other : {&b, &std::as_const(tiny)}) {
      reference(reductionOf(type), expected.data(), {tiny.data(), other->data()}, 1000);
      const void* const sources[] = {tiny.data(), other->data()};
      for (const SimdLevel level : supportedLevels()) {
        _mm_setcsr(kFlushAndRoundUp);
        selectReduce(type, ReduceOp::Sum, level)(got.data(), sources, 2, 1000, reductionOf(type), 0, true);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);
        EXPECT_EQ(got, expected) << name(type) << " " << name(level);
        EXPECT_EQ(after & ~0x3fu, kFlushAndRoundUp);
      }
    }
  }
}
#endif

TEST(ReduceTest, CopiesAnySizeAndAlignment) {
  Buffer from(70000), to;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 31 >> 3);
  for (const bool nonTemporal : {false, true}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{4095}, size_t{4096}, size_t{4113}, size_t{65537}}) {
      for (size_t shift = 0; shift < 20; shift += 3) {
        to.assign(from.size() + 64, 0x5a);
        copyBytes(to.data() + shift, from.data() + shift / 2, bytes, nonTemporal);
        ASSERT_EQ(std::memcmp(to.data() + shift, from.data() + shift / 2, bytes), 0);
        ASSERT_EQ(std::count(to.begin(), to.begin() + shift, 0x5a), static_cast<ptrdiff_t>(shift));
        ASSERT_EQ(to[shift + bytes], 0x5a);
      }
    }
    copyBytes(to.data(), to.data(), to.size(), nonTemporal);
  }
}

TEST(ReduceTest, DetectsASupportedLevel) {
  EXPECT_TRUE(isSupported(SimdLevel::Portable));
  EXPECT_TRUE(isSupported(detectSimd()));
  for (const SimdLevel level : supportedLevels()) EXPECT_LE(level, detectSimd());
}

}  // namespace
}  // namespace tutti::exec::host::reduce_test
