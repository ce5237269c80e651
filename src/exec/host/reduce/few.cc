// The folds of a few elements, in the scalar definition of core/element.h, one element after the other: fewer instructions than it takes to
// bring them into vectors and back, and no load that waits for narrower stores.
#include <cstring>

#include "core/element.h"
#include "exec/host/reduce/kernels.h"

namespace tutti::exec::host {
namespace {

template <DataType type>
AccumulatorOf<type> load(const FoldArgs& args, int k, size_t at) {
  ElementOf<type> raw;
  std::memcpy(&raw, static_cast<const char*>(args.sources[k]) + (args.first + at) * sizeof raw, sizeof raw);
  return widen<type>(raw);
}

template <DataType type>
AccumulatorOf<type> loadScaled(const FoldArgs& args, int k, size_t at) {
  const AccumulatorOf<type> value = load<type>(args, k, at);
  if (k >= 32 || (args.scaledSources >> k & 1u) == 0) return value;
  return scale<type>(value, widen<type>(factorOf<type>(Scaling{.factor = args.factor, .hasFactor = true})));
}

template <DataType type, ReduceOp op, auto load>
void fold(const FoldArgs& args) {
  for (size_t at = 0; at < args.elems; ++at) {
    AccumulatorOf<type> acc = load(args, 0, at);
    for (int k = 1; k < args.numSources; ++k) acc = reduce<op>(acc, load(args, k, at));
    const ElementOf<type> result = narrow<type>(acc);
    std::memcpy(static_cast<char*>(args.dst) + at * sizeof result, &result, sizeof result);
  }
}

template <DataType type, ReduceOp op>
constexpr void fillOne(FoldTable& table) {
  constexpr FoldFn kUnscaled = &fold<type, op, &load<type>>;
  table.at[static_cast<int>(type)][static_cast<int>(op)] = {kUnscaled, kUnscaled, &fold<type, op, &loadScaled<type>>};
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

const FoldTable& fewFolds() { return kFolds; }

}  // namespace tutti::exec::host
