// The folds in the scalar definition of core/element.h, for processors without a level of their own and as the tests' oracle
// of last resort. Works on short rows of accumulators, which compilers vectorise where the type allows it.
#include <algorithm>
#include <cstring>

#include "core/element.h"
#include "exec/host/reduce/kernels.h"

namespace tutti::exec::host {
namespace {

constexpr size_t kRow = 128;

template <DataType type>
void loadRow(const FoldArgs& args, int k, size_t at, size_t count, AccumulatorOf<type>* row) {
  ElementOf<type> raw[kRow];
  const auto* source = static_cast<const char*>(args.sources[k]) + (args.first + at) * sizeof raw[0];
  std::memcpy(raw, source, count * sizeof raw[0]);
  for (size_t i = 0; i < count; ++i) row[i] = widen<type>(raw[i]);
  if (k >= 32 || (args.scaledSources >> k & 1u) == 0) return;
  const auto factor = widen<type>(factorOf<type>(Scaling{.factor = args.factor, .hasFactor = true}));
  for (size_t i = 0; i < count; ++i) row[i] = scale<type>(row[i], factor);
}

template <DataType type, ReduceOp op>
void fold(const FoldArgs& args) {
  AccumulatorOf<type> acc[kRow], next[kRow];
  ElementOf<type> result[kRow];
  for (size_t at = 0; at < args.elems; at += kRow) {
    const size_t count = std::min(kRow, args.elems - at);
    loadRow<type>(args, 0, at, count, acc);
    for (int k = 1; k < args.numSources; ++k) {
      loadRow<type>(args, k, at, count, next);
      for (size_t i = 0; i < count; ++i) acc[i] = reduce<op>(acc[i], next[i]);
    }
    for (size_t i = 0; i < count; ++i) result[i] = narrow<type>(acc[i]);
    std::memcpy(static_cast<char*>(args.dst) + at * sizeof result[0], result, count * sizeof result[0]);
  }
}

template <DataType type, ReduceOp op>
constexpr void fillOne(FoldTable& table) {
  table.at[static_cast<int>(type)][static_cast<int>(op)] = {&fold<type, op>, &fold<type, op>, &fold<type, op>};
}

template <int kType = 0>
constexpr void fillFrom(FoldTable& table) {
  if constexpr (kType < kNumDataTypes) {
    constexpr auto type = static_cast<DataType>(kType);
    fillOne<type, ReduceOp::Sum>(table);
    fillOne<type, ReduceOp::Prod>(table);
    fillOne<type, ReduceOp::Max>(table);
    fillOne<type, ReduceOp::Min>(table);
    fillFrom<kType + 1>(table);
  }
}

constexpr FoldTable makeTable() {
  FoldTable table{};
  fillFrom(table);
  return table;
}

constexpr FoldTable kFolds = makeTable();

}  // namespace

const FoldTable& portableFolds() { return kFolds; }

}  // namespace tutti::exec::host
