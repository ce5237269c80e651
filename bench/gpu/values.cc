#include "gpu/values.h"

#include <algorithm>
#include <cmath>

#include "bench/float_format.h"

namespace tutti::bench::gpu {
namespace {

constexpr uint32_t kMostDraws = 1024;  // tables of this size stay in a GPU's L1

uint64_t encodeAs(DataType type, double value) {
  if (!isInteger(type)) return encode(formatOf(type), value);
  const uint64_t mask = ~uint64_t{0} >> (64 - 8 * sizeOf(type));
  return static_cast<uint64_t>(static_cast<int64_t>(std::trunc(value))) & mask;
}

/// Whole numbers from 0 to one less are exact.
uint32_t exactNumbers(DataType type) {
  if (isInteger(type)) return type == DataType::I8 ? 128 : type == DataType::U8 ? 256 : kMostDraws;
  return static_cast<uint32_t>(std::min(std::ldexp(1.0, formatOf(type).precision()) + 1, double{kMostDraws}));
}

}  // namespace

Codes makeCodes(DataType type, std::optional<RedOp> op, int ranks) {
  const bool combinesBySum = op && *op != RedOp::Max && *op != RedOp::Min;
  const uint32_t count = static_cast<uint32_t>(ranks);
  uint32_t range = exactNumbers(type);
  if (combinesBySum) range = *op == RedOp::Prod ? 2 : std::max(2u, (range - 1) / count + 1);
  Codes codes{type, !op || combinesBySum ? Combine::Sum : *op == RedOp::Max ? Combine::Max : Combine::Min, ranks, {}, {}};
  const auto valueOf = [&](uint32_t draw) { return op && *op == RedOp::Prod ? std::ldexp(1.0, static_cast<int>(draw)) : draw; };
  for (uint32_t draw = 0; draw < range; ++draw) codes.inputs.push_back(encodeAs(type, valueOf(draw)));
  const uint32_t results = combinesBySum ? (range - 1) * count + 1 : range;
  for (uint32_t combined = 0; combined < results; ++combined) {
    const double value = valueOf(combined);
    codes.results.push_back(encodeAs(type, op && *op == RedOp::Avg ? value / ranks : value));
  }
  return codes;
}

Expectation expectationOf(const Operation& operation, uint64_t count, int rank, int ranks, int root) {
  Expectation expectation;
  expectation.isReduced = operation.isReduction;
  expectation.blockCount = std::max<uint64_t>(count, 1);
  expectation.sourceIsBlock = !operation.isReduction && operation.receivesBlocks;
  if (operation.sendsBlocks) expectation.base = count * static_cast<uint64_t>(rank);
  expectation.source = operation.op == Op::SendRecv ? (rank + ranks - 1) % ranks : root;
  return expectation;
}

}  // namespace tutti::bench::gpu
