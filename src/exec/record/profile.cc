#include "exec/record/profile.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace tutti::exec::record {
namespace {

/// When a point of the programs is reached: the slowest steps first.
struct Time {
  int32_t farHops = 0;
  int32_t hops = 0;
  int32_t messages = 0;
  auto operator<=>(const Time&) const = default;
};

/// A pipe, arrivals of one rank at another, or hand-overs between lanes: who, whom, and what tells parallel ones apart.
using Edge = std::tuple<int32_t, int32_t, int32_t>;

class Clockwork {
 public:
  Clockwork(const std::vector<Program>& programs, std::span<const algo::LayoutView> views) : views_(views) {
    for (size_t r = 0; r < programs.size(); ++r)
      for (size_t l = 0; l < programs[r].lanes.size(); ++l)
        lanes_.push_back({static_cast<int32_t>(r), static_cast<int32_t>(l), &programs[r].lanes[l], 0, {}});
  }

  /// The time at which the last lane ends. Programs that the prover accepts always end.
  Time run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Lane& lane : lanes_)
        while (lane.next < lane.steps->size() && take(lane, (*lane.steps)[lane.next])) ++lane.next, moved = true;
    }
    Time end;
    for (const Lane& lane : lanes_) end = std::max(end, lane.now);
    return end;
  }

 private:
  struct Lane {
    int32_t rank;
    int32_t number;
    const std::vector<Step>* steps;
    size_t next;
    Time now;
  };
  struct Queue {
    std::vector<Time> sent;
    size_t taken = 0;
  };
  static constexpr int32_t kArrival = -1;
  static constexpr int32_t kHandOver = -2;

  bool take(Lane& lane, const Step& step) {
    const auto edge = [&](int32_t from, int32_t to) -> Queue& { return queues_[{from, to, step.port}]; };
    if (step.kind == Kind::Take) return receive(lane, queues_[{laneKey(lane.rank, step.lane), lane.number, kHandOver}], {});
    if (step.kind == Kind::Await)
      return receive(lane, queues_[{step.from.at(0).value, lane.rank, kArrival}], way(step.from.at(0).value, lane.rank));
    if (step.kind == Kind::Give) queues_[{laneKey(lane.rank, lane.number), step.lane, kHandOver}].sent.push_back(lane.now);
    if (step.kind == Kind::Arrive) {
      ++lane.now.messages;
      queues_[{lane.rank, step.to.at(0).value, kArrival}].sent.push_back(lane.now);
    }
    if (step.kind != Kind::Pipe) return true;
    for (int32_t i = 0; i < step.from.count; ++i) {
      const Queue& queue = edge(step.from.at(i).value, lane.rank);
      if (queue.taken == queue.sent.size()) return false;
    }
    for (int32_t i = 0; i < step.from.count; ++i)
      receive(lane, edge(step.from.at(i).value, lane.rank), way(step.from.at(i).value, lane.rank));
    for (int32_t i = 0; i < step.to.count; ++i) {
      ++lane.now.messages;
      edge(lane.rank, step.to.at(i).value).sent.push_back(lane.now);
    }
    return true;
  }

  Time way(int32_t from, int32_t to) const {
    if (from == to) return {};
    const bool isFar = views_[static_cast<size_t>(from)].grid.node != views_[static_cast<size_t>(to)].grid.node;
    return isFar ? Time{1, 0, 0} : Time{0, 1, 0};
  }
  static bool receive(Lane& lane, Queue& queue, Time way) {
    if (queue.taken == queue.sent.size()) return false;
    Time then = queue.sent[queue.taken++];
    then.farHops += way.farHops;
    then.hops += way.hops;
    lane.now = std::max(lane.now, then);
    ++lane.now.messages;
    return true;
  }
  static int32_t laneKey(int32_t rank, int32_t lane) { return rank << 12 | lane; }

  const std::span<const algo::LayoutView> views_;
  std::vector<Lane> lanes_;
  std::map<Edge, Queue> queues_;
};

struct Sent {
  uint64_t toOthers = 0;
  uint64_t toOtherNodes = 0;
};

/// Bytes that a rank sends in the only slice; `arriving`, by rank, grows by what reaches others.
Sent bytesSent(const Program& program, const algo::Geometry& geometry, int32_t rank, std::span<const algo::LayoutView> views,
               std::span<uint64_t> arriving) {
  const auto nodeOf = [views](int32_t r) { return views[static_cast<size_t>(r)].grid.node; };
  Sent sum;
  for (const auto& lane : program.lanes) {
    for (const Step& step : lane) {
      if (step.kind != Kind::Pipe && step.kind != Kind::Store) continue;
      const algo::ChunkRef ref = step.dst.buffer != algo::Buffer::None ? step.dst : step.src;
      const uint64_t bytes = geometry.range(ref.chunk, 0, 0).elems;
      for (int32_t i = 0; i < step.to.count; ++i) {
        const int32_t to = step.to.at(i).value;
        if (to == rank) continue;
        sum.toOthers += bytes;
        arriving[static_cast<size_t>(to)] += bytes;
        sum.toOtherNodes += nodeOf(to) != nodeOf(rank) ? bytes : 0;
      }
    }
  }
  return sum;
}

}  // namespace

Profile profileOf(const Algorithm& algorithm, std::span<const algo::LayoutView> views, Loans loans, bool passesByReference) {
  const auto ranks = static_cast<int32_t>(views.size());
  const int32_t chunks = algorithm.chunks(ranks);
  // Large enough that shares are even, small enough for one slice.
  const uint64_t chunkBytes = algo::kShareAlignBytes * 16;
  const uint64_t count = algorithm.traits.division == algo::Division::Shares ? chunkBytes * static_cast<uint64_t>(chunks) : chunkBytes;
  const algo::Geometry geometry = algo::makeGeometry(algorithm.traits.division, count, chunks, DataType::U8, 1, chunkBytes);

  const auto shareOf = [&geometry](const Traffic& traffic) {
    return static_cast<double>(traffic.bytesRead + traffic.bytesWritten) / static_cast<double>(geometry.totalElems);
  };

  Profile profile;
  std::vector<Program> programs;
  std::map<int32_t, uint64_t> leaving;  // by node
  std::vector<uint64_t> arriving(views.size());
  for (const algo::LayoutView& view : views) {
    programs.push_back(algorithm.record(view));
    const Sent sent = bytesSent(programs.back(), geometry, view.rank.value, views, arriving);
    leaving[view.grid.node] += sent.toOtherNodes;
    profile.crossing = std::max(profile.crossing, static_cast<double>(sent.toOthers) / static_cast<double>(geometry.totalElems));
    for (const auto& lane : programs.back().lanes) profile.steps = std::max(profile.steps, static_cast<int32_t>(lane.size()));
    const double share = shareOf(countTraffic(programs.back(), geometry, 1, 0, ranks, passesByReference, loans));
    profile.traffic += share;
    profile.busiest = std::max(profile.busiest, share);
    for (const auto& lane : programs.back().lanes)
      profile.lane = std::max(profile.lane, shareOf(countTraffic({{lane}}, geometry, 1, 0, ranks, passesByReference, loans)));
  }
  const Time end = Clockwork(programs, views).run();
  profile.farHops = end.farHops;
  for (const auto& [node, bytes] : leaving)
    profile.leaving = std::max(profile.leaving, static_cast<double>(bytes) / static_cast<double>(geometry.totalElems));
  profile.arriving = static_cast<double>(*std::ranges::max_element(arriving)) / static_cast<double>(geometry.totalElems);
  profile.hops = end.hops;
  profile.messages = end.messages;
  return profile;
}

}  // namespace tutti::exec::record
