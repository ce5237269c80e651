#include "reference.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "algo/list.h"
#include "core/element.h"
#include "exec/host/reduce/reduce.h"

namespace tutti::probe {
namespace {

/// A chunk's worth of one rank's contribution, or of a partial sum.
struct Part {
  std::shared_ptr<Bytes> bytes;
  uint64_t factor = 0;
  bool isRaw = false;  ///< still to be scaled
};

/// Evaluates an algorithm's `order` for a whole chunk.
class ArraySum {
 public:
  ArraySum(const Question& q, const std::vector<Bytes>& inputs, uint64_t begin, uint64_t elems)
      : q_(q),
        inputs_(inputs),
        begin_(begin),
        elems_(elems),
        fold_(exec::host::selectReduce(q.reduction.type, q.reduction.op, exec::host::detectSimd())) {}

  Part leaf(Rank rank) const {
    const size_t size = sizeOf(q_.reduction.type);
    const auto r = static_cast<size_t>(rank.value);
    const std::byte* from = inputs_[r].data() + begin_ * size;
    return {std::make_shared<Bytes>(from, from + elems_ * size), q_.factors.empty() ? 0 : q_.factors[r], q_.reduction.scaling.hasFactor};
  }
  template <class... More>
  Part add(const Part& first, const More&... more) const {
    return combine({first, more...}, false);
  }
  Part addRanks(int32_t ranks) const {
    std::vector<Part> parts;
    for (int32_t r = 0; r < ranks; ++r) parts.push_back(leaf(Rank(r)));
    return combine(parts, false);
  }
  template <class Operand>
  Part addEach(int32_t n, Operand&& operand) const {
    std::vector<Part> parts;
    for (int32_t i = 0; i < n; ++i) parts.push_back(operand(i));
    return n == 1 ? parts[0] : combine(parts, false);
  }
  Bytes finish(const Part& part) const { return *combine({part}, true).bytes; }

 private:
  Part combine(std::vector<Part> parts, bool isLast) const {
    const size_t size = sizeOf(q_.reduction.type);
    for (Part& part : parts) {  // ranks may have factors of their own, so each is scaled by itself
      if (!part.isRaw) continue;
      Reduction scaling = q_.reduction;
      scaling.scaling.factor = part.factor;
      auto scaled = std::make_shared<Bytes>(elems_ * size);
      const void* source = part.bytes->data();
      fold_(scaled->data(), &source, 1, elems_, scaling, 1, false);
      part = {scaled, 0, false};
    }
    std::vector<const void*> sources;
    for (const Part& part : parts) sources.push_back(part.bytes->data());
    Part sum{std::make_shared<Bytes>(elems_ * size), 0, false};
    fold_(sum.bytes->data(), sources.data(), static_cast<int>(sources.size()), elems_, q_.reduction, 0, isLast);
    return sum;
  }

  const Question& q_;
  const std::vector<Bytes>& inputs_;
  uint64_t begin_;
  uint64_t elems_;
  exec::host::ReduceFn fold_;
};

template <class A>
Bytes reducedAs(const Question& q, const std::vector<Bytes>& inputs, const std::vector<algo::LayoutView>& views, int32_t chunk,
                uint64_t begin, uint64_t elems) {
  if constexpr (requires(ArraySum & sum) { A::order(sum, 0, views.data()); }) {
    ArraySum sum(q, inputs, begin, elems);
    if (views.size() == 1) return sum.finish(sum.leaf(Rank(0)));
    return sum.finish(A::order(sum, chunk, views.data()));
  } else {
    return {};
  }
}

using ReduceChunk = Bytes (*)(const Question&, const std::vector<Bytes>&, const std::vector<algo::LayoutView>&, int32_t, uint64_t,
                              uint64_t);

/// By place in algo/list.h.
const std::vector<ReduceChunk>& chunkReducers() {
  static const std::vector<ReduceChunk> all = [] {
    std::vector<ReduceChunk> list;
    algo::AllAlgorithms::forEach([&]<class A>() { list.push_back(&reducedAs<A>); });
    return list;
  }();
  return all;
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The bits of a floating-point element of ordinary size: exponents over a range in which sums round often.
uint64_t ordinary(DataType type, uint64_t h) {
  const uint64_t spread = h & 7;
  const uint64_t sign = h >> 3 & 1;
  switch (type) {
    case DataType::F64: return sign << 63 | (1020 + spread) << 52 | h >> 12;
    case DataType::F32: return sign << 31 | (123 + spread) << 23 | h >> 41;
    case DataType::BF16: return sign << 15 | (123 + spread) << 7 | h >> 57;
    case DataType::F16: return sign << 15 | (11 + spread) << 10 | h >> 54;
    case DataType::F8E4M3: return sign << 7 | (4 + (spread & 3)) << 3 | h >> 61;
    case DataType::F8E5M2: return sign << 7 | (12 + spread) << 2 | h >> 62;
    default: return h >> 4;
  }
}

}  // namespace

uint64_t inputElems(const Question& q, int32_t ranks, int32_t rank) {
  const auto n = static_cast<uint64_t>(ranks);
  switch (exec::record::algorithms()[static_cast<size_t>(q.algorithm)].traits.collective) {
    case Collective::ReduceScatter:
    case Collective::AllToAll: return q.count * n;
    case Collective::Scatter: return rank == q.root ? q.count * n : 0;
    case Collective::Broadcast: return rank == q.root ? q.count : 0;
    default: return q.count;
  }
}

uint64_t outputElems(const Question& q, int32_t ranks, int32_t rank) {
  const auto n = static_cast<uint64_t>(ranks);
  switch (exec::record::algorithms()[static_cast<size_t>(q.algorithm)].traits.collective) {
    case Collective::AllGather:
    case Collective::AllToAll: return q.count * n;
    case Collective::Gather: return rank == q.root ? q.count * n : 0;
    case Collective::Reduce: return rank == q.root ? q.count : 0;
    default: return q.count;
  }
}

std::vector<Bytes> expectedOutputs(const Question& q, const std::vector<Bytes>& inputs, const std::vector<algo::LayoutView>& views) {
  const exec::record::Algorithm& algorithm = exec::record::algorithms()[static_cast<size_t>(q.algorithm)];
  const auto ranks = static_cast<int32_t>(views.size());
  const uint64_t block = q.count * sizeOf(q.reduction.type);
  const auto root = static_cast<size_t>(q.root);
  std::vector<Bytes> outputs(inputs.size());
  const auto reduceChunk = chunkReducers()[static_cast<size_t>(q.algorithm)];
  switch (algorithm.traits.collective) {
    case Collective::AllReduce:
    case Collective::Reduce: {
      const algo::Geometry g = algo::makeGeometry(algo::Division::Shares, q.count, algorithm.chunks(ranks), q.reduction.type, 1, 1 << 20);
      Bytes whole;
      for (int32_t c = 0; c < algorithm.chunks(ranks); ++c) {
        const uint64_t begin = std::min(g.chunkElems * static_cast<uint64_t>(c), q.count);
        const uint64_t elems = std::min(g.chunkElems, q.count - begin);
        const Bytes part = reduceChunk(q, inputs, views, c, begin, elems);
        whole.insert(whole.end(), part.begin(), part.end());
      }
      for (size_t r = 0; r < outputs.size(); ++r)
        if (algorithm.traits.collective == Collective::AllReduce || r == root) outputs[r] = whole;
      break;
    }
    case Collective::ReduceScatter:
      for (size_t r = 0; r < outputs.size(); ++r) outputs[r] = reduceChunk(q, inputs, views, static_cast<int32_t>(r), q.count * r, q.count);
      break;
    case Collective::Broadcast:
      for (Bytes& out : outputs) out = inputs[root];
      break;
    case Collective::AllGather:
      for (Bytes& out : outputs)
        for (const Bytes& in : inputs) out.insert(out.end(), in.begin(), in.end());
      break;
    case Collective::Gather:
      for (const Bytes& in : inputs) outputs[root].insert(outputs[root].end(), in.begin(), in.end());
      break;
    case Collective::AllToAll:
      for (size_t r = 0; r < outputs.size(); ++r)
        for (const Bytes& in : inputs) outputs[r].insert(outputs[r].end(), in.data() + r * block, in.data() + (r + 1) * block);
      break;
    case Collective::Scatter:
      for (size_t r = 0; r < outputs.size(); ++r) outputs[r].assign(inputs[root].data() + r * block, inputs[root].data() + (r + 1) * block);
      break;
    case Collective::SendRecv:
      for (size_t r = 0; r < outputs.size(); ++r) outputs[r] = inputs[(r + outputs.size() - 1) % outputs.size()];
      break;
  }
  return outputs;
}

Bytes makeValues(DataType type, uint64_t elems, uint64_t seed) {
  const size_t size = sizeOf(type);
  Bytes values(elems * size);
  for (uint64_t i = 0; i < elems; ++i) {
    const uint64_t h = mix(seed ^ mix(i));
    const uint64_t bits = isInteger(type) || (h & 15) == 0 ? mix(h) : ordinary(type, mix(h));
    std::memcpy(values.data() + i * size, &bits, size);
  }
  return values;
}

uint64_t inverseOf(DataType type, int32_t n) {
  const double exact = 1.0 / n;
  const auto single = static_cast<float>(exact);
  const auto bitsOf = [](auto element) {
    uint64_t bits = 0;
    std::memcpy(&bits, &element, sizeof element);
    return bits;
  };
  switch (type) {
    case DataType::F64: return bitsOf(exact);
    case DataType::F32: return bitsOf(single);
    case DataType::F16: return bitsOf(narrow<DataType::F16>(single));
    case DataType::BF16: return bitsOf(narrow<DataType::BF16>(single));
    case DataType::F8E4M3: return bitsOf(narrow<DataType::F8E4M3>(single));
    case DataType::F8E5M2: return bitsOf(narrow<DataType::F8E5M2>(single));
    default: return 1;
  }
}

}  // namespace tutti::probe
