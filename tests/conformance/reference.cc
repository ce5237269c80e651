#include "conformance/reference.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "algo/geometry.h"
#include "conformance/harness.h"
#include "connect/layout.h"
#include "core/element.h"
#include "core/format.h"
#include "exec/prove/subject.h"

namespace tutti::conformance {
namespace {

template <class F>
auto withType(DataType type, F&& f) {
  switch (type) {
    case DataType::I8: return f.template operator()<DataType::I8>();
    case DataType::U8: return f.template operator()<DataType::U8>();
    case DataType::I32: return f.template operator()<DataType::I32>();
    case DataType::U32: return f.template operator()<DataType::U32>();
    case DataType::I64: return f.template operator()<DataType::I64>();
    case DataType::U64: return f.template operator()<DataType::U64>();
    case DataType::F16: return f.template operator()<DataType::F16>();
    case DataType::F32: return f.template operator()<DataType::F32>();
    case DataType::F64: return f.template operator()<DataType::F64>();
    case DataType::BF16: return f.template operator()<DataType::BF16>();
    case DataType::F8E4M3: return f.template operator()<DataType::F8E4M3>();
    case DataType::F8E5M2: break;
  }
  return f.template operator()<DataType::F8E5M2>();
}

template <DataType type>
ElementOf<type> elementOf(double value) {
  if constexpr (type == DataType::F64) {
    return value;
  } else if constexpr (type == DataType::F32) {
    return static_cast<float>(value);
  } else if constexpr (isInteger(type)) {
    return static_cast<ElementOf<type>>(value);
  } else {
    return narrow<type>(static_cast<float>(value));
  }
}

ReduceOp coreOp(int operation) { return operation < kAvg ? static_cast<ReduceOp>(operation) : ReduceOp::Sum; }

/// One rank's contribution, range by range, and the folding of several, as element.h states.
template <DataType type>
class Fold {
 public:
  using Element = ElementOf<type>;
  using Values = std::vector<Element>;

  Fold(const Case& c, const std::vector<Contents>& inputs) : case_(c), inputs_(inputs) {
    for (int r = 0; r < c.ranks; ++r) {
      Scaling scaling;
      if (c.operation >= kPreMulHost) scaling.hasFactor = true, scaling.factor = scalarOf(c, r);
      if (c.operation == kAvg && c.ranks > 1) {  // the average of one is that one, unscaled
        if constexpr (isInteger(type)) {
          scaling.divisor = c.ranks;
        } else {
          const Element inverse = elementOf<type>(1.0 / c.ranks);
          scaling.hasFactor = true;
          std::memcpy(&scaling.factor, &inverse, sizeof inverse);
        }
      }
      scalings_.push_back(scaling);
    }
  }

  Values contribution(int rank, uint64_t begin, uint64_t end) const {
    Values values(end - begin);
    if (!values.empty())
      std::memcpy(values.data(), inputs_[static_cast<size_t>(rank)].data() + begin * sizeof(Element), values.size() * sizeof(Element));
    const Scaling& scaling = scalings_[static_cast<size_t>(rank)];
    if (!scaling.hasFactor) return values;
    const auto factor = widen<type>(factorOf<type>(scaling));
    for (Element& v : values) v = narrow<type>(scale<type>(widen<type>(v), factor));
    return values;
  }

  /// In the order given, rounded once.
  Values combine(const std::vector<Values>& sources) const {
    switch (coreOp(case_.operation)) {
      case ReduceOp::Sum: return combineWith<ReduceOp::Sum>(sources);
      case ReduceOp::Prod: return combineWith<ReduceOp::Prod>(sources);
      case ReduceOp::Max: return combineWith<ReduceOp::Max>(sources);
      case ReduceOp::Min: break;
    }
    return combineWith<ReduceOp::Min>(sources);
  }

  void finish(Values& values) const {
    for (Element& v : values) v = divide<type>(v, scalings_[0].divisor);
  }

  /// The value of an expression over elements [begin, end): every node folds its operands in their order and rounds once.
  Values evaluate(const exec::prove::Expressions& all, exec::prove::Expr expr, uint64_t begin, uint64_t end) const {
    const auto operands = all.operandsOf(expr);
    if (operands.empty()) return contribution(static_cast<int>(expr), begin, end);
    std::vector<Values> sources;
    for (const exec::prove::Expr operand : operands) sources.push_back(evaluate(all, operand, begin, end));
    return combine(sources);
  }

 private:
  template <ReduceOp op>
  Values combineWith(const std::vector<Values>& sources) const {
    Values result = sources[0];
    if (sources.size() == 1) return result;
    for (size_t i = 0; i < result.size(); ++i) {
      auto acc = widen<type>(result[i]);
      for (size_t s = 1; s < sources.size(); ++s) acc = reduce<op>(acc, widen<type>(sources[s][i]));
      result[i] = narrow<type>(acc);
    }
    return result;
  }

  const Case& case_;
  const std::vector<Contents>& inputs_;
  std::vector<Scaling> scalings_;
};

/// The whole reduction, chunk by chunk in the order that the algorithm states for the chunk on the channel's track, which the prover has
/// compared with its steps.
template <DataType type>
Contents reduceAll(const Case& c, const std::vector<Contents>& inputs, int32_t channels) {
  const Fold<type> fold(c, inputs);
  const exec::prove::Subject* algorithm = exec::prove::findSubject(collectiveOf(c.kind), c.algorithm);
  const int32_t chunks = algorithm->chunks(c.ranks);
  const uint64_t total = algorithm->traits.division == algo::Division::Blocks ? c.count * static_cast<uint64_t>(c.ranks) : c.count;
  const algo::Geometry geometry = algo::makeGeometry(algorithm->traits.division, c.count, chunks, type, channels, 4096);
  const connect::Layout layout = layoutOf()(c.ranks);
  exec::prove::Expressions expressions;
  expressions.reset(c.ranks);
  exec::prove::OrderBuilder builder(expressions);

  Contents result(total * sizeof(ElementOf<type>));
  for (int32_t channel = 0; channel < channels; ++channel) {
    std::vector<algo::LayoutView> views;
    for (int r = 0; r < c.ranks; ++r) views.push_back(layout.view(Rank(r), Rank(c.root), ChannelId(channel)));
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const uint64_t first = std::min(geometry.chunkElems * static_cast<uint64_t>(chunk), total);
      const uint64_t last = std::min(first + geometry.chunkElems, total);
      const uint64_t begin = std::min(first + geometry.partElems * static_cast<uint64_t>(channel), last);
      const uint64_t end = std::min(begin + geometry.partElems, last);
      if (begin == end) continue;
      typename Fold<type>::Values sum = fold.evaluate(expressions, algorithm->order(builder, chunk, views.data()), begin, end);
      fold.finish(sum);
      std::memcpy(result.data() + begin * sizeof(sum[0]), sum.data(), sum.size() * sizeof(sum[0]));
    }
  }
  return result;
}

Contents slice(const Contents& bytes, size_t begin, size_t size) {
  return {bytes.begin() + static_cast<std::ptrdiff_t>(begin), bytes.begin() + static_cast<std::ptrdiff_t>(begin + size)};
}

/// What rank `rank` receives in a collective that moves.
Contents movedTo(const Case& c, const std::vector<Contents>& inputs, int rank) {
  const size_t block = c.count * sizeOf(c.type);
  const auto root = static_cast<size_t>(c.root);
  const auto self = static_cast<size_t>(rank);
  const auto join = [&](const std::function<Contents(size_t)>& part) {
    Contents all;
    for (size_t r = 0; r < inputs.size(); ++r) {
      const Contents piece = part(r);
      all.insert(all.end(), piece.begin(), piece.end());
    }
    return all;
  };
  switch (c.kind) {
    case Kind::Broadcast:
    case Kind::Bcast: return inputs[root];
    case Kind::AllGather: return join([&](size_t r) { return inputs[r]; });
    case Kind::AlltoAll: return join([&](size_t r) { return slice(inputs[r], self * block, block); });
    case Kind::Gather: return self == root ? join([&](size_t r) { return inputs[r]; }) : Contents();
    case Kind::Scatter: return slice(inputs[root], self * block, block);
    case Kind::Exchange: return inputs[(self + inputs.size() - 1) % inputs.size()];
    default: return {};
  }
}

}  // namespace

Contents makeInput(const Case& c, int rank) {
  Random random(mix(c.seed, static_cast<uint64_t>(rank) + 1));
  Contents bytes(sendElems(c) * sizeOf(c.type));
  if (c.data == Data::Wild || isInteger(c.type)) {
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t word = random.next();
      std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, bytes.size() - i));
    }
    return bytes;
  }
  // Products stay within reach of the narrowest type when the factors are near one.
  const bool product = c.operation == 1;
  withType(c.type, [&]<DataType type>() {
    for (size_t i = 0; i < bytes.size(); i += sizeof(ElementOf<type>)) {
      const auto value = elementOf<type>(product ? random.between(0.75, 1.25) : random.between(-2.0, 2.0));
      std::memcpy(bytes.data() + i, &value, sizeof value);
    }
  });
  return bytes;
}

uint64_t scalarOf(const Case& c, int rank) {
  Random random(mix(c.seed ^ 0x5ca1a5ull, static_cast<uint64_t>(rank)));
  uint64_t bits = random.next();
  if (isInteger(c.type)) return sizeOf(c.type) == 8 ? bits : bits & ((uint64_t{1} << 8 * sizeOf(c.type)) - 1);
  bits = 0;
  withType(c.type, [&]<DataType type>() {
    const auto value = elementOf<type>(random.between(-1.5, 1.5));
    std::memcpy(&bits, &value, sizeof value);
  });
  return bits;
}

std::vector<Contents> expectedOutput(const Case& c, const std::vector<Contents>& inputs, int32_t channels) {
  std::vector<Contents> outputs(inputs.size());
  if (!reduces(c.kind)) {
    for (int r = 0; r < c.ranks; ++r) outputs[static_cast<size_t>(r)] = movedTo(c, inputs, r);
    return outputs;
  }
  const Contents all = withType(c.type, [&]<DataType type>() { return reduceAll<type>(c, inputs, channels); });
  const size_t block = c.count * sizeOf(c.type);
  for (int r = 0; r < c.ranks; ++r) {
    Contents& out = outputs[static_cast<size_t>(r)];
    if (c.kind == Kind::AllReduce || (c.kind == Kind::Reduce && r == c.root)) out = all;
    if (c.kind == Kind::ReduceScatter) out = slice(all, static_cast<size_t>(r) * block, block);
  }
  return outputs;
}

std::string firstDifference(const Case& c, const std::byte* got, const Contents& wanted) {
  if (wanted.empty() || std::memcmp(got, wanted.data(), wanted.size()) == 0) return {};
  size_t differing = 0;
  size_t first = wanted.size();
  const size_t size = sizeOf(c.type);
  for (size_t i = 0; i < wanted.size(); i += size) {
    if (std::memcmp(got + i, wanted.data() + i, size) == 0) continue;
    first = std::min(first, i);
    ++differing;
  }
  uint64_t is = 0;
  uint64_t should = 0;
  std::memcpy(&is, got + first, size);
  std::memcpy(&should, wanted.data() + first, size);
  return format("{} of {} elements differ; element {} is {:#x}, should be {:#x}", differing, wanted.size() / size, first / size, is,
                should);
}

LayoutOf& layoutOf() {
  static LayoutOf source = [](int ranks) {
    if (!placesRanks()) return connect::Layout::natural(ranks, nodeRanks());
    std::vector<connect::RankPlace> places;
    for (int32_t r = 0; r < ranks; ++r) places.push_back({.numa = r % 2});
    return connect::Layout::byPlace(places);
  };
  return source;
}

}  // namespace tutti::conformance
