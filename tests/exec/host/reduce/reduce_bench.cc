// Speed of the host reductions: GB/s of output per type, level and working set, and what a byte of bf16 and fp16 costs
// against one of fp32. Not a test. Usage: reduce_bench [all]; `all` adds the other operations, source counts and scaling.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "exec/host/reduce/reduce.h"

using namespace tutti;
using namespace tutti::exec::host;

namespace {

constexpr DataType kTypes[] = {DataType::F32, DataType::BF16, DataType::F16, DataType::F64, DataType::F8E4M3,
                               DataType::F8E5M2, DataType::I8, DataType::I32, DataType::I64};

struct Shape {
  const char* label;
  size_t bytes;  // of one operand
  bool nonTemporal;
};
// The sets of three operands fit the first, second and third level of a usual cache, and none.
constexpr Shape kShapes[] = {{"8K", 8 << 10, false}, {"64K", 64 << 10, false}, {"2M", 2 << 20, false},
                             {"64M", 64 << 20, false}, {"64M nt", 64 << 20, true}};

struct Bench {
  DataType type;
  ReduceOp op = ReduceOp::Sum;
  SimdLevel level;
  int numSources = 2;
  uint32_t scaled = 0;
  int divisor = 1;
};

/// Each float's own 1, so that scaling keeps the values ordinary; for integers any factor does.
uint64_t oneOf(DataType type) {
  switch (type) {
    case DataType::F16: return 0x3c00;
    case DataType::BF16: return 0x3f80;
    case DataType::F32: return 0x3f800000;
    case DataType::F64: return 0x3ff0000000000000;
    case DataType::F8E4M3: return 0x38;
    case DataType::F8E5M2: return 0x3c;
    default: return 3;
  }
}

/// Operands on cache lines, as allocators of large buffers give them, but not all at the same place in their pages.
class Operands {
 public:
  static constexpr int kCount = 9;
  Operands() : memory_(kCount * kStride + 64) {
    auto* const base = memory_.data() + -reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    for (size_t k = 0; k < kCount; ++k) {
      at_[k] = base + k * kStride;
      for (size_t i = 0; i < kBytes; ++i) at_[k][i] = static_cast<char>(0x30 + (i * 7 + k * 13) % 16);  // ordinary numbers in every format
    }
  }
  char* operator[](int k) const { return at_[k]; }

 private:
  static constexpr size_t kBytes = 64 << 20, kStride = kBytes + 4096 + 448;
  std::vector<char> memory_;
  char* at_[kCount];
};

/// GB/s of output, the best of several rounds: short ones where the operands are small, because others share the machine.
double measure(const Bench& bench, const Shape& shape, const Operands& buffers) {
  using Clock = std::chrono::steady_clock;
  const ReduceFn reduce = selectReduce(bench.type, bench.op, bench.level, shape.nonTemporal);
  const void* sources[16];
  for (int k = 0; k < bench.numSources; ++k) sources[k] = buffers[k + 1];
  Reduction reduction{
      .type = bench.type,
      .op = bench.op,
      .scaling = {.factor = bench.scaled ? oneOf(bench.type) : 0, .hasFactor = bench.scaled != 0, .divisor = bench.divisor}};
  const size_t elems = shape.bytes / sizeOf(bench.type);
  double best = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < 40 && Clock::now() - begin < std::chrono::milliseconds(300); ++round) {
    size_t calls = 0;
    const auto start = Clock::now();
    double seconds = 0;
    do {
      reduce(buffers[0], sources, bench.numSources, elems, reduction, bench.scaled, true);
      ++calls;
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    } while (seconds < 0.002);
    best = std::max(best, static_cast<double>(calls * shape.bytes) / seconds / 1e9);
  }
  return best;
}

void printRow(const char* label, const Bench& bench, const Operands& buffers, double* base) {
  std::printf("%-9s %-22s", name(bench.level), label);
  int column = 0;
  for (const Shape& shape : kShapes) {
    const double rate = measure(bench, shape, buffers);
    if (base[column] == 0) base[column] = rate;
    std::printf(" %8.2f (%4.2f)", rate, base[column] / rate);
    ++column;
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  const Operands buffers;
  std::printf("GB/s of output by bytes per operand; in brackets the time per byte against fp32\n%-9s %-22s", "level", "type op");
  for (const Shape& shape : kShapes) std::printf(" %15s", shape.label);
  std::printf("\n");
  for (const SimdLevel level : {SimdLevel::Avx512, SimdLevel::Avx2, SimdLevel::Sse4, SimdLevel::Portable}) {
    if (!isSupported(level)) continue;
    double base[std::size(kShapes)] = {};
    for (const DataType type : kTypes) {
      char label[64];
      const auto print = [&](const char* what, Bench bench) {
        std::snprintf(label, sizeof label, "%.*s %s", static_cast<int>(name(type).size()), name(type).data(), what);
        printRow(label, bench, buffers, base);
      };
      print("sum", {.type = type, .level = level});
      if (!all) continue;
      print("max", {.type = type, .op = ReduceOp::Max, .level = level});
      print("prod", {.type = type, .op = ReduceOp::Prod, .level = level});
      print("sum of 3", {.type = type, .level = level, .numSources = 3});
      print("sum of 8", {.type = type, .level = level, .numSources = 8});
      print("scaled sum", {.type = type, .level = level, .scaled = 3});
      if (isInteger(type)) print("avg", {.type = type, .level = level, .divisor = 3});
    }
  }
}
