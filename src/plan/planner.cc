#include "plan/planner.h"

#include <algorithm>

#include "algo/sendrecv.h"

namespace tutti::plan {

using algo::Geometry;
using algo::Kind;
using exec::host::BoundLane;
using exec::host::BoundStep;
using exec::host::HostPlan;
using exec::record::Algorithm;
using exec::record::Program;
using exec::record::Step;

namespace {

/// A window has ranks² cells in all; the total is bounded, so that many ranks get small cells and more slices.
uint64_t cellBytes(int32_t ranks) { return std::clamp<uint64_t>(262144 / static_cast<uint64_t>(ranks), 512, 16384); }

/// Buffers from here on do not stay in the cache until their owner looks at them again. `tutti bench all_gather` with 2 ranks shows
/// where stores past the cache begin to pay.
constexpr uint64_t kPastCacheBytes = 16 << 20;

bool movesMessages(Collective collective) {
  return collective == Collective::SendRecv || collective == Collective::AllToAll || collective == Collective::Gather ||
         collective == Collective::Scatter;
}

}  // namespace

struct Planner::Draft {
  const Algorithm* algorithm = nullptr;
  Geometry geometry;
  algo::LayoutView view;
  Program program;  // every channel runs the same steps on its own pipes
  connect::PipeSize pipes;
  uint64_t sliceBytes = 0;
};

Result<Planner::Draft> Planner::draft(const Shape& shape) const {
  const int32_t ranks = layout_.ranks();
  const bool blocks = shape.collective == Collective::AllGather || shape.collective == Collective::ReduceScatter;
  const uint64_t bytes = shape.count * sizeOf(shape.type) * (blocks ? static_cast<uint64_t>(ranks) : 1);
  const auto chosen = tune::choose(shape.collective, bytes, ranks, settings_.restrictions);
  if (!chosen) return tl::unexpected(chosen.error());

  Draft draft;
  draft.algorithm = *chosen;
  const algo::Traits& traits = draft.algorithm->traits;
  const bool messages = movesMessages(shape.collective);
  const bool window = traits.needs == algo::Needs::PeerMemory;
  draft.sliceBytes = window ? cellBytes(ranks) : messages ? settings_.messageBytes : settings_.sliceBytes;
  draft.pipes = {settings_.slots, messages ? 4096 : settings_.sliceBytes};
  const int32_t channels = window || messages ? 1 : settings_.channels;
  draft.geometry = algo::makeGeometry(traits.division, shape.count, draft.algorithm->chunks(ranks), shape.type, channels, draft.sliceBytes);
  if (!draft.geometry.isComplete())
    return fail(Code::InvalidUsage,
                "{} elements in slices of {} bytes are more than 2^31 slices: raise TUTTI_SLICE_BYTES, or choose another algorithm",
                shape.count, draft.sliceBytes);
  // A message of no bytes still meets its partner.
  if (shape.collective == Collective::SendRecv) draft.geometry.slices = std::max(draft.geometry.slices, 1);
  draft.view = layout_.view(rank_, shape.root);
  draft.program = draft.algorithm->record(draft.view);
  // Of a message's two lanes, each side runs one; a message to itself is a copy, in the sending lane.
  if (shape.collective == Collective::SendRecv) draft.program.lanes[shape.receives ? 0 : 1].clear();
  return draft;
}

Result<std::shared_ptr<const HostPlan>> Planner::makePlan(const Shape& shape) {
  const auto drafted = draft(shape);
  if (!drafted) return tl::unexpected(drafted.error());

  auto plan = std::make_shared<HostPlan>();
  plan->algorithm = drafted->algorithm->traits.name;
  plan->collective = shape.collective;
  plan->geometry = drafted->geometry;
  plan->reduction = {shape.type, shape.op, shape.scaling};
  plan->elementBytes = sizeOf(shape.type);
  plan->rank = rank_;
  plan->ranks = layout_.ranks();
  plan->pastCache = drafted->geometry.totalElems * plan->elementBytes >= kPastCacheBytes;
  plan->usesWindow = drafted->algorithm->traits.needs == algo::Needs::PeerMemory;
  if (reduces(shape.collective)) plan->reduceFn = exec::host::selectReduce(shape.type, shape.op, settings_.simd);
  if (Status status = bind(*drafted, *plan); !status.ok()) return tl::unexpected(std::move(status).at("bind plan"));
  return std::shared_ptr<const HostPlan>(std::move(plan));
}

Status Planner::bind(const Draft& draft, HostPlan& plan) {
  for (int32_t channel = 0; channel < draft.geometry.channels; ++channel) {
    std::vector<BoundLane>& lanes = plan.channels.emplace_back();
    for (const auto& steps : draft.program.lanes) {
      BoundLane& lane = lanes.emplace_back();
      for (const Step& step : steps) {
        const auto bound = bindStep(step, ChannelId(channel), draft);
        if (!bound) return bound.error();
        lane.steps.push_back(*bound);
        for (int i = 0; i < bound->numTo; ++i)
          if (std::find(lane.sendEnds.begin(), lane.sendEnds.end(), bound->to[i]) == lane.sendEnds.end())
            lane.sendEnds.push_back(bound->to[i]);
      }
    }
  }
  return {};
}

Result<BoundStep> Planner::bindStep(const Step& step, ChannelId channel, const Draft& draft) {
  BoundStep bound;
  bound.kind = step.kind;
  bound.reduce = step.reduce;
  bound.lane = step.lane;
  bound.src = step.src;
  bound.dst = step.dst;
  if (step.kind != Kind::Pipe) {
    // Store and Arrive work on the peer's window, Await and LoadReduce on the own one.
    const bool remote = step.kind == Kind::Store || step.kind == Kind::Arrive;
    if (step.kind == Kind::Give || step.kind == Kind::Take) return bound;
    bound.peer = step.kind == Kind::Await ? step.from.rank[0] : rank_;
    const auto window = connections_.window(remote ? step.to.rank[0] : rank_, cellBytes(layout_.ranks()));
    if (!window) return tl::unexpected(window.error());
    bound.window = *window;
    return bound;
  }
  bound.numFrom = static_cast<int8_t>(step.from.count);
  bound.numTo = static_cast<int8_t>(step.to.count);
  for (int i = 0; i < step.from.count; ++i) {
    const auto end = connections_.recvEnd(channel, step.port, step.from.rank[i], draft.pipes);
    if (!end) return tl::unexpected(end.error());
    bound.from[i] = *end;
    bound.fromRank[i] = step.from.rank[i];
  }
  for (int i = 0; i < step.to.count; ++i) {
    const auto end = connections_.sendEnd(channel, step.port, step.to.rank[i], draft.pipes);
    if (!end) return tl::unexpected(end.error());
    bound.to[i] = *end;
  }
  return bound;
}

Result<Summary> Planner::summarize(const Shape& shape) const {
  const auto drafted = draft(shape);
  if (!drafted) return tl::unexpected(drafted.error());
  Summary summary;
  summary.algorithm = drafted->algorithm->traits.name;
  summary.channels = drafted->geometry.channels;
  summary.lanes = static_cast<int32_t>(drafted->program.lanes.size());
  summary.slices = drafted->geometry.slices;
  summary.slots = drafted->algorithm->traits.needs == algo::Needs::PeerMemory ? 2 : settings_.slots;
  summary.sliceBytes = drafted->sliceBytes;
  for (int32_t channel = 0; channel < summary.channels; ++channel)
    summary.traffic += exec::record::countTraffic(drafted->program, drafted->geometry, sizeOf(shape.type), channel, layout_.ranks(), true);
  return summary;
}

}  // namespace tutti::plan
