#include "conformance/matrix.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "conformance/harness.h"
#include "conformance/reference.h"
#include "core/format.h"
#include "exec/record/catalog.h"

namespace tutti::conformance {
namespace {

constexpr std::array<std::string_view, kNumKinds> kKindNames = {"AllReduce", "Reduce",   "Broadcast", "Bcast",   "ReduceScatter",
                                                                "AllGather", "AlltoAll", "Gather",    "Scatter", "Exchange"};
constexpr std::array<const char*, kNumKinds> kExplainNames = {"all_reduce", "reduce",     "broadcast", "broadcast", "reduce_scatter",
                                                              "all_gather", "all_to_all", "gather",    "scatter",   "send"};
constexpr std::array<std::string_view, kNumOperations> kOperationNames = {"sum", "prod",         "max",           "min",
                                                                          "avg", "premul(host)", "premul(device)"};

/// Elements after a 64-byte boundary, send and receive side.
constexpr std::array<std::pair<int, int>, 4> kOffsets = {{{0, 0}, {1, 0}, {3, 7}, {0, 1}}};

constexpr int kBigCount = 10;  // index of the one that overfills a pipe
constexpr int kNumCounts = 11;
constexpr uint64_t kSmallPipe = 65536;

uint64_t countAt(int index, const Column& column, int ranks, DataType type) {
  const auto n = static_cast<uint64_t>(ranks);
  const std::array<uint64_t, kNumCounts - 1> small = {0, 1, n - 1, n, n + 1, 7, 64, 257, 1000, 4099};
  if (index < kBigCount) return small[static_cast<size_t>(index)];
  const uint64_t pipe = pipeCapacityBytes() / sizeOf(type) + 13;
  if (pipeCapacityBytes() <= kSmallPipe) return column.kind == Kind::AllReduce ? pipe * n : pipe;
  // With large pipes: as much as a test of few ranks can afford, which still overfills the pipes of rings.
  if (ranks > 4) return 20011;
  const bool blocks = column.kind == Kind::ReduceScatter || column.kind == Kind::AllGather || column.kind == Kind::AlltoAll;
  return blocks ? pipe / n + 13 : pipe;
}

std::vector<int> rootsOf(const Column& column, int ranks) {
  if (!hasRoot(column.kind)) return {0};
  std::vector<int> roots = {0, 1, ranks / 2, ranks - 1};
  roots.erase(std::remove_if(roots.begin(), roots.end(), [&](int r) { return r >= ranks; }), roots.end());
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  return roots;
}

/// Sizes of the axes: type, operation, count, root, in place, offsets, data.
constexpr int kNumAxes = 7;
std::array<int, kNumAxes> axesOf(const Column& column, int ranks) {
  return {kNumDataTypes,
          reduces(column.kind) ? kNumOperations : 1,
          kNumCounts,
          static_cast<int>(rootsOf(column, ranks).size()),
          hasInPlace(column.kind) && column.kind != Kind::Bcast ? 2 : 1,
          static_cast<int>(kOffsets.size()),
          reduces(column.kind) ? 2 : 1};
}

Case makeCase(const Column& column, int ranks, const std::array<int, kNumAxes>& at, uint64_t seed) {
  Case c;
  c.kind = column.kind;
  c.algorithm = column.algorithm;
  c.ranks = ranks;
  c.type = static_cast<DataType>(at[0]);
  c.operation = at[1];
  c.count = countAt(at[2], column, ranks, c.type);
  c.root = rootsOf(column, ranks)[static_cast<size_t>(at[3])];
  c.inPlace = at[4] == 1 || column.kind == Kind::Bcast;
  const auto [send, recv] = kOffsets[static_cast<size_t>(at[5])];
  c.sendOffset = send;
  c.recvOffset = c.inPlace ? send : recv;
  c.data = reduces(column.kind) && at[6] == 0 ? Data::Ordinary : Data::Wild;
  c.seed = seed;
  c.nullUnused = seed % 2 == 0;
  return c;
}

uint64_t envOr(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  const uint64_t value = text != nullptr ? std::strtoull(text, nullptr, 10) : 0;
  return value == 0 ? otherwise : value;
}

}  // namespace

/// One column for every algorithm in algo/list.h, and one for each other way to call it.
const std::vector<Column>& columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> columns;
    for (const exec::record::Algorithm& a : exec::record::algorithms())
      for (int k = 0; k < kNumKinds; ++k)
        if (const Kind kind = static_cast<Kind>(k); collectiveOf(kind) == a.traits.collective)
          columns.push_back({kind, a.traits.name, format("{}:{}", name(a.traits.collective), a.traits.name), a.traits});
    return columns;
  }();
  return all;
}

bool Column::runsOn(int ranks) const {
  const int32_t nodes = layoutOf()(ranks).nodes();
  return traits.runsOn(nodes, ranks / nodes);
}

Collective collectiveOf(Kind kind) {
  constexpr std::array<Collective, kNumKinds> kCollectives = {
      Collective::AllReduce, Collective::Reduce,   Collective::Broadcast, Collective::Broadcast, Collective::ReduceScatter,
      Collective::AllGather, Collective::AllToAll, Collective::Gather,    Collective::Scatter,   Collective::SendRecv};
  return kCollectives[static_cast<size_t>(kind)];
}

int32_t nodeRanks() {
  static const auto ranks = static_cast<int32_t>(envOr("TUTTI_NODE_RANKS", 0));
  return ranks;
}

uint64_t caseCount(const Column& column, int ranks) {
  uint64_t product = 1;
  for (const int size : axesOf(column, ranks)) product *= static_cast<uint64_t>(size);
  return product;
}

Case caseAt(const Column& column, int ranks, uint64_t index) {
  const uint64_t seed = mix(mix(index, static_cast<uint64_t>(ranks)), static_cast<uint64_t>(column.kind));
  std::array<int, kNumAxes> at{};
  const auto sizes = axesOf(column, ranks);
  for (size_t a = 0; a < at.size(); ++a) {
    at[a] = static_cast<int>(index % static_cast<uint64_t>(sizes[a]));
    index /= static_cast<uint64_t>(sizes[a]);
  }
  return makeCase(column, ranks, at, seed);
}

std::vector<Case> sampleCases(const Column& column, int ranks, int size, uint64_t seed) {
  Random random(mix(seed, mix(hashBytes(column.algorithm.data(), column.algorithm.size()),
                              mix(static_cast<uint64_t>(column.kind), static_cast<uint64_t>(ranks)))));
  const auto sizes = axesOf(column, ranks);
  std::array<std::vector<int>, kNumAxes> picks;
  for (size_t a = 0; a < picks.size(); ++a) {
    while (picks[a].size() < static_cast<size_t>(size)) {
      std::vector<int> values(static_cast<size_t>(sizes[a]));
      std::iota(values.begin(), values.end(), 0);
      for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
      picks[a].insert(picks[a].end(), values.begin(), values.end());
    }
  }
  std::vector<Case> cases;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    std::array<int, kNumAxes> at{};
    for (size_t a = 0; a < at.size(); ++a) at[a] = picks[a][i];
    cases.push_back(makeCase(column, ranks, at, random.next()));
  }
  return cases;
}

std::string describe(const Case& c) {
  return format("{} {} ranks {} {}{}{} count {} root {} {} offsets {},{} {} {} seed {}", kindName(c.kind), c.algorithm, c.ranks,
                name(c.type), reduces(c.kind) ? " " : "", reduces(c.kind) ? kOperationNames[static_cast<size_t>(c.operation)] : "", c.count,
                c.root, c.inPlace ? "in place" : "out of place", c.sendOffset, c.recvOffset, c.data == Data::Wild ? "wild" : "ordinary",
                c.nullUnused ? "null unused" : "", c.seed);
}

std::string_view kindName(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }
const char* explainName(Kind kind) { return kExplainNames[static_cast<size_t>(kind)]; }

bool reduces(Kind kind) { return kind == Kind::AllReduce || kind == Kind::Reduce || kind == Kind::ReduceScatter; }
bool hasRoot(Kind kind) {
  return kind == Kind::Reduce || kind == Kind::Broadcast || kind == Kind::Bcast || kind == Kind::Gather || kind == Kind::Scatter;
}
bool hasInPlace(Kind kind) { return kind != Kind::AlltoAll && kind != Kind::Exchange; }

uint64_t sendElems(const Case& c) {
  const bool all = c.kind == Kind::ReduceScatter || c.kind == Kind::AlltoAll || c.kind == Kind::Scatter;
  return all ? c.count * static_cast<uint64_t>(c.ranks) : c.count;
}
uint64_t recvElems(const Case& c) {
  const bool all = c.kind == Kind::AllGather || c.kind == Kind::AlltoAll || c.kind == Kind::Gather;
  return all ? c.count * static_cast<uint64_t>(c.ranks) : c.count;
}

uint64_t pipeCapacityBytes() {
  static const uint64_t bytes = envOr("TUTTI_SLOTS", 8) * envOr("TUTTI_SLICE_BYTES", 262144);
  return bytes;
}

}  // namespace tutti::conformance
