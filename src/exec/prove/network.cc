#include "exec/prove/network.h"

#include <algorithm>
#include <numeric>

#include "connect/channels.h"
#include "core/format.h"
#include "exec/prove/collective.h"
#include "exec/record/describe.h"

namespace tutti::exec::prove {
namespace {

using algo::Buffer;
using algo::Kind;
using algo::Step;

std::vector<int32_t> rankOrder(int32_t ranks, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); seed != 0 && i > 1; --i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(order[i - 1], order[(seed >> 33) % i]);
  }
  return order;
}

/// Chains within nodes and double trees between them, as channels found on a machine have: a rank then has up to three children. The last
/// node is smaller where the ranks do not divide. Each track goes through the nodes' ranks in another order.
connect::Layout channelLayout(int32_t ranks, uint64_t seed, int32_t localRanks) {
  const std::vector<int32_t> order = rankOrder(ranks, seed);
  const size_t size = localRanks > 0 ? static_cast<size_t>(localRanks) : 1 + seed % 4;
  std::vector<connect::NodeGraphs> nodes;
  for (size_t first = 0; first < order.size(); first += size) {
    connect::NodeGraphs& node = nodes.emplace_back();
    node.ranks.assign(order.begin() + static_cast<std::ptrdiff_t>(first),
                      order.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, order.size())));
    std::vector<int32_t> ring = node.ranks;
    for (uint64_t track = 0; track < kTracks; ++track) {
      node.rings.push_back(ring);
      node.trees.emplace_back(ring.rbegin(), ring.rend());
      std::vector<int32_t> other;
      for (const int32_t place : rankOrder(static_cast<int32_t>(ring.size()), seed + track + 1))
        other.push_back(ring[static_cast<size_t>(place)]);
      ring = std::move(other);
    }
    node.treePattern = static_cast<topo::Pattern>(1 + seed / 4 % 3);  // balanced, split, one head
    std::sort(node.ranks.begin(), node.ranks.end());
  }
  const auto channels = connect::connectNodes(nodes, {});
  return channels ? connect::Layout::ofChannels(*channels, nodes) : connect::Layout::natural(ranks, localRanks);
}

connect::Layout layoutOf(const Case& c) {
  if (c.layoutSeed >= kChannelLayouts) return channelLayout(c.ranks, c.layoutSeed - kChannelLayouts, c.localRanks);
  return connect::Layout(rankOrder(c.ranks, c.layoutSeed), c.localRanks);
}

/// Pipes and signals of different programs are kept apart: the lanes that share one are then those of one algorithm.
uint64_t keyOf(size_t program, uint64_t kind, int32_t from, int32_t to) {
  return kind << 56 | program << 52 | static_cast<uint64_t>(from) << 26 | static_cast<uint64_t>(to);
}

/// The root as `rank` sees it: for SendRecv the other side.
int32_t rootOf(const Case& c, Collective collective, int32_t rank) {
  return collective == Collective::SendRecv ? (c.root - rank + c.ranks) % c.ranks : c.root;
}

bool sameNetwork(const Case& a, const Case& b) {
  return a.algorithm == b.algorithm && (a.operations > 1 ? a.then : nullptr) == (b.operations > 1 ? b.then : nullptr) &&
         a.ranks == b.ranks && a.root == b.root && a.inPlace == b.inPlace && a.layoutSeed == b.layoutSeed && a.localRanks == b.localRanks &&
         a.track == b.track;
}

}  // namespace

std::string Network::build(const Case& c) {
  if (built_ && sameNetwork(*built_, c)) return {};
  built_.reset();
  programs_.clear();
  pipes_.clear();
  signals_.clear();
  pipeNumbers_.clear();
  signalNumbers_.clear();
  links_.reset();
  const connect::Layout& layout = layout_.emplace(layoutOf(c));
  expressions_.reset(c.ranks);
  inPlace_ = c.inPlace;
  ranks_ = c.ranks;
  places_ = 0;
  lanesPerRank_ = std::max(1, c.algorithm->lanes(c.ranks));
  if (c.operations > 1 && c.then != nullptr) lanesPerRank_ = std::max(lanesPerRank_, c.then->lanes(c.ranks));

  for (const Subject* subject : {c.algorithm, c.operations > 1 ? c.then : nullptr}) {
    if (subject == nullptr) continue;
    Program& program = programs_.emplace_back();
    program.subject = subject;
    program.chunks = subject->chunks(c.ranks);
    program.firstPlace = places_;
    places_ += 2 * c.ranks * program.chunks;
    const Collective collective = subject->traits.collective;
    for (int32_t r = 0; r < c.ranks; ++r) program.views.push_back(layout.view(Rank(r), Rank(rootOf(c, collective, r)), ChannelId(c.track)));
    if (std::string failure = compile(program); !failure.empty()) return failure;
  }
  built_ = c;
  return {};
}

std::string Network::compile(Program& program) {
  const Collective collective = program.subject->traits.collective;
  if (reduces(collective)) {
    if (program.subject->order == nullptr) return "states no order of its reduction";
    OrderBuilder builder(expressions_);
    for (int32_t chunk = 0; chunk < program.chunks; ++chunk)
      program.orders.push_back(program.subject->order(builder, chunk, program.views.data()));
  }
  program.laneBegin.reserve(static_cast<size_t>(lanes()) + 1);
  for (int32_t rank = 0; rank < ranks_; ++rank) {
    const record::Program recorded = program.subject->record(program.views[static_cast<size_t>(rank)]);
    if (rank == 0) program.steps.reserve(recorded.steps() * static_cast<size_t>(ranks_));
    for (int32_t lane = 0; lane < lanesPerRank_; ++lane) {
      program.laneBegin.push_back(static_cast<uint32_t>(program.steps.size()));
      if (static_cast<size_t>(lane) >= recorded.lanes.size()) continue;
      const int32_t number = rank * lanesPerRank_ + lane;
      std::string failure = compileLane(program, number, recorded.lanes[static_cast<size_t>(lane)]);
      if (!failure.empty()) return failure;
    }
  }
  program.laneBegin.push_back(static_cast<uint32_t>(program.steps.size()));
  return {};
}

std::string Network::compileLane(Program& program, int32_t lane, const std::vector<Step>& steps) {
  for (size_t i = 0; i < steps.size(); ++i) {
    FlatStep flat;
    if (const std::string failure = resolve(program, lane, steps[i], flat); !failure.empty())
      return format("rank {} lane {} step {}: {}: {}", rankOf(lane), lane % lanesPerRank_, i, record::describe(steps[i]), failure);
    program.steps.push_back(flat);
  }
  return {};
}

std::string Network::resolve(const Program& program, int32_t lane, const Step& step, FlatStep& flat) {
  const int32_t rank = rankOf(lane);
  if (step.round >= std::max(1, program.subject->traits.rounds))
    return format("round {}, but its traits say {}", step.round, program.subject->traits.rounds);
  flat.kind = step.kind;
  flat.round = step.round;
  flat.reduce = step.reduce;
  flat.srcIsInput = step.src.buffer == Buffer::In;
  flat.srcChunk = step.src.chunk;
  flat.dstChunk = step.dst.chunk;
  if (std::string failure = resolveChunk(program, rank, step.src, flat.src); !failure.empty()) return failure;
  if (std::string failure = resolveChunk(program, rank, step.dst, flat.dst); !failure.empty()) return failure;
  if (step.dst.buffer == Buffer::In) return "writes to the input";
  flat.sendsReference = step.kind == Kind::Pipe && step.to.count > 0 && (flat.dst >= 0 || step.from.count == 0);
  return resolvePeers(lane, step, flat);
}

std::string Network::resolveChunk(const Program& program, int32_t rank, const algo::ChunkRef& ref, int32_t& place) const {
  place = -1;
  if (ref.buffer == Buffer::None) return {};
  const Collective collective = program.subject->traits.collective;
  const int32_t root = program.views[static_cast<size_t>(rank)].root.value;
  const bool output = ref.buffer == Buffer::Out;
  const auto chunksOf = output ? outputChunks : inputChunks;
  const int32_t limit = chunksOf(collective, rank, root, program.chunks);
  if (ref.chunk < 0 || ref.chunk >= limit)
    return format("{}[{}] does not exist: {} gives rank {} {} chunk{} of {}", output ? "out" : "in", ref.chunk, name(collective), rank,
                  limit, limit == 1 ? "" : "s", output ? "output" : "input");
  place = output ? outputPlace(program, rank, ref.chunk) : program.place(rank, false, ref.chunk);
  return {};
}

int32_t Network::outputPlace(const Program& program, int32_t rank, int32_t chunk) const {
  const int32_t root = program.views[static_cast<size_t>(rank)].root.value;
  const int32_t alias = inPlace_ ? inPlaceChunk(program.subject->traits.collective, rank, root, chunk) : -1;
  return alias >= 0 ? program.place(rank, false, alias) : program.place(rank, true, chunk);
}

std::string Network::resolvePeers(int32_t lane, const Step& step, FlatStep& flat) {
  const int32_t rank = rankOf(lane);
  for (const algo::Peers* peers : {&step.from, &step.to})
    for (int32_t i = 0; i < peers->count; ++i) {
      const int32_t peer = peers->at(i).value;
      if (peer < 0 || peer >= ranks_) return format("rank {} does not exist", peer);
      if (peer == rank && (step.kind == Kind::Arrive || step.kind == Kind::Await)) return "talks to itself";
      for (int32_t j = 0; j < i; ++j)
        if (peers->at(j).value == peer) return format("names rank {} twice", peer);
    }
  const size_t numFrom = static_cast<size_t>(std::max(1, step.from.count));
  int32_t* const from = links_.makeArray<int32_t>(numFrom + static_cast<size_t>(std::max(1, step.to.count))).data();
  int32_t* const to = from + numFrom;
  flat.from = from;
  flat.to = to;
  if (step.kind == Kind::Give || step.kind == Kind::Take) {
    if (step.lane < 0 || step.lane >= lanesPerRank_) return format("lane {} does not exist", static_cast<int>(step.lane));
    const int32_t other = rank * lanesPerRank_ + step.lane;
    const bool gives = step.kind == Kind::Give;
    int32_t& signal = gives ? to[0] : from[0];
    signal = gives ? signalBetween(true, lane, other) : signalBetween(true, other, lane);
    Signal& s = signals_[static_cast<size_t>(signal)];
    s.giver = gives ? lane : other;
    s.taker = gives ? other : lane;
    return {};
  }
  flat.numFrom = static_cast<int8_t>(step.from.count);
  flat.numTo = static_cast<int8_t>(step.to.count);
  if (step.kind == Kind::Store) to[0] = step.to.at(0).value;
  if (step.kind == Kind::Load) from[0] = step.from.at(0).value;
  if (step.kind == Kind::Arrive) {
    to[0] = signalBetween(false, rank, step.to.at(0).value);
    return bind(signals_[static_cast<size_t>(to[0])].giver, lane, "sends arrivals to the same rank");
  }
  if (step.kind == Kind::Await) {
    from[0] = signalBetween(false, step.from.at(0).value, rank);
    return bind(signals_[static_cast<size_t>(from[0])].taker, lane, "awaits the same rank");
  }
  if (step.kind != Kind::Pipe) return {};
  for (int32_t i = 0; i < step.from.count; ++i) {
    from[i] = pipeBetween(step.port, step.from.at(i).value, rank);
    std::string failure = bind(pipes_[static_cast<size_t>(from[i])].reader, lane, "receives from the same pipe");
    if (!failure.empty()) return failure;
  }
  for (int32_t i = 0; i < step.to.count; ++i) {
    to[i] = pipeBetween(step.port, rank, step.to.at(i).value);
    std::string failure = bind(pipes_[static_cast<size_t>(to[i])].writer, lane, "sends into the same pipe");
    if (!failure.empty()) return failure;
  }
  return {};
}

std::string Network::bind(int32_t& bound, int32_t lane, std::string_view what) const {
  if (bound < 0) bound = lane;
  return bound == lane ? std::string() : format("lane {} of the rank {} too", bound % lanesPerRank_, what);
}

int32_t Network::pipeBetween(uint8_t port, int32_t from, int32_t to) {
  const auto [it, isNew] = pipeNumbers_.try_emplace(keyOf(programs_.size(), port, from, to), static_cast<int32_t>(pipes_.size()));
  if (isNew) pipes_.push_back({from, to, -1, -1});
  return it->second;
}

int32_t Network::signalBetween(bool handOver, int32_t from, int32_t to) {
  const auto [it, isNew] =
      signalNumbers_.try_emplace(keyOf(programs_.size(), handOver ? 1 : 0, from, to), static_cast<int32_t>(signals_.size()));
  if (isNew) signals_.emplace_back();
  return it->second;
}

std::string Network::placeName(int32_t place) const {
  for (const Program& p : programs_) {
    const int32_t index = place - p.firstPlace;
    if (index < 0 || index >= 2 * ranks_ * p.chunks) continue;
    const int32_t buffer = index / p.chunks;
    return format("rank {}'s {}[{}]", buffer / 2, buffer % 2 == 0 ? "in" : "out", index % p.chunks);
  }
  return "?";
}

}  // namespace tutti::exec::prove
