#include "plan/planner.h"

#include <algorithm>

#include "plan/host_sizes.h"

namespace tutti::plan {

using algo::Geometry;
using algo::Kind;
using exec::host::BoundLane;
using exec::host::BoundStep;
using exec::host::HostPlan;
using exec::record::Algorithm;
using exec::record::Loans;
using exec::record::Program;
using exec::record::Step;

namespace {

/// What a process stages values in at most: a pipe as it is unless its user says otherwise, which is not for all ranks to know.
constexpr uint64_t kStagedBytes = 1 << 20;

/// A process's part of a call from which on it writes its results to the outputs of all ranks that offer them. `bench_mpi all_reduce
/// --from 64K --to 8M`, of 2, 4 and 8 ranks, with and without `--buffers ncclmem`.
constexpr uint64_t kLeastPlacedBytes = 256 << 10;

constexpr uint64_t kMostCellBytes = 1 << 20;

bool movesMessages(Collective collective) {
  return collective == Collective::SendRecv || collective == Collective::AllToAll || collective == Collective::Gather ||
         collective == Collective::Scatter;
}

}  // namespace

std::string slower(double us, double bestUs, const tune::Advice& advice) {
  if (us < bestUs && !advice.isChanged) return format("faster by {:.3g} us, too little to count: the first is taken", bestUs - us);
  if (us < bestUs) return format("faster by {:.3g} us, but the tuner has another wish ({})", bestUs - us, advice.said);
  const double more = us - bestUs;
  if (more <= bestUs / 100) return "no faster: of equals the first is taken";
  return format("slower by {:.3g} us, {:.3g} times", more, us / bestUs);
}

struct Planner::Draft {
  const Algorithm* algorithm = nullptr;
  Geometry geometry;
  std::vector<Program> programs;  // by track: channels on the same one run the same steps, on pipes of their own
  const Program& program(int32_t channel) const { return programs[static_cast<size_t>(channel) % programs.size()]; }
  connect::PipeSize pipes;
  uint8_t firstPort = 0;
  uint64_t sliceBytes = 0;
  Loans loans = Loans::None;
  tune::Cost cost;
  double estimatedUs = 0;
  std::string tuner;
};

/// A window has ranks² cells in all; the total is bounded, so that many ranks get small cells and more slices. What is copied by system
/// call needs no cell, unless a pair turns out to be unable to; room that is not used is no memory.
uint64_t Planner::cellBytes(bool copies) const {
  const auto ranks = static_cast<uint64_t>(layout_.ranks());
  const uint64_t bytes = copies ? std::max(settings_.sharedBytes, settings_.copiedBytes) : settings_.sharedBytes;
  return settings_.spansProcesses ? std::clamp<uint64_t>(bytes / ranks, 4096, kMostCellBytes)
                                  : std::clamp<uint64_t>(262144 / ranks, 512, 16384);
}

/// Whether processes copy a call's values by system call where both permit it.
bool Planner::copies(const algo::Traits& traits, const Shape& shape, uint64_t bytes) const {
  if (traits.fansOut) return false;  // its readers would all be in the kernel for the pages of one process at once
  const bool fitsCalls = settings_.copiedBytes / static_cast<uint64_t>(layout_.ranks()) >= exec::host::kCopyCallBytes;
  const bool isFaster = !reduces(shape.collective) && copiesFaster(shape.collective, bytes);
  return settings_.copies != 0 && fitsCalls && isFaster;
}

/// What the call has in the cache of a rank.
uint64_t Planner::held(Collective collective, uint64_t bytes) const {
  const uint64_t staged = settings_.spansProcesses ? std::min(bytes, kStagedBytes) : 0;
  return footprint(collective, bytes, static_cast<uint64_t>(layout_.ranks())) + staged;
}

/// Whether the call's buffers are too large to stay in the cache until their owner looks at them again. Where they would, results stored
/// past it have to be fetched, and two ranks near each other take twice as long. Half may be others'. Of a message: all of it, with 32 MiB
/// of cache `bench_mpi sendrecv` of 8 MiB takes 0.9 of the time through it, of 16 MiB (`--buffers ncclmem`) 1.2.
bool Planner::isPastCache(Collective collective, uint64_t bytes) const {
  if (settings_.pastCacheBytes > 0) return bytes >= settings_.pastCacheBytes;
  const uint64_t own = collective == Collective::SendRecv ? settings_.cacheShare : settings_.cacheShare / 2;
  return bytes >= kPastAnyCache || held(collective, bytes) > own;
}

/// Whether its calls try both ways. Of messages the two sides need not make the same calls.
bool Planner::triesCache(Collective collective, uint64_t bytes) const {
  const bool isOpen = settings_.pastCacheBytes == 0 && collective != Collective::SendRecv && bytes < kPastAnyCache;
  const uint64_t needed = held(collective, bytes);
  return isOpen && needed > settings_.cacheShare / 2 && needed <= 2 * settings_.cacheShare;
}

/// How the call would be cut for the algorithm.
Planner::Draft Planner::divide(const Algorithm& algorithm, const Shape& shape, int32_t wanted) {
  const int32_t ranks = layout_.ranks();
  const algo::Traits& traits = algorithm.traits;
  const bool window = traits.needs == algo::Needs::PeerMemory;
  const bool messages = !window && movesMessages(shape.collective);
  Draft draft;
  draft.algorithm = &algorithm;
  // A contribution that is scaled has to be written down; any other can be read where it lies.
  const bool lends = window && traits.lends && !shape.scaling.hasFactor;
  // What is lent is in the caches of its readers' core while all ranks are at it; never less than a slot carries.
  const uint64_t lentSlice =
      std::max(settings_.lentBytes / static_cast<uint64_t>(ranks), std::min(settings_.lentBytes, settings_.sliceBytes));
  const bool shares = settings_.spansProcesses;
  const auto parts = static_cast<uint64_t>(traits.division == algo::Division::Blocks ? algorithm.chunks(ranks) : 1);
  const uint64_t bytes = shape.count * parts * sizeOf(shape.type);
  const uint64_t windowSlice = lends && !shares ? lentSlice : cellBytes(lends && copies(traits, shape, bytes));
  const uint64_t stagedSlice = messages && settings_.spansHosts ? settings_.farMessageBytes : settings_.sliceBytes;
  const uint64_t pipeSlice = messages && !shares ? settings_.messageBytes : stagedSlice;
  draft.sliceBytes = window ? windowSlice : pipeSlice;
  draft.pipes = {std::max(settings_.slots, static_cast<uint32_t>(traits.minSlots)), messages && !shares ? 4096 : stagedSlice};
  draft.firstPort = traits.fansOut ? kFanPorts : 0;
  if (shape.collective == Collective::Broadcast && !window && shares && !settings_.spansHosts && !copies(traits, shape, bytes)) {
    draft.pipes = fine(draft.pipes);
    if (!traits.fansOut) draft.firstPort = kFinePorts;
    draft.sliceBytes = std::clamp<uint64_t>(bytes / 4, draft.pipes.slotBytes / 2, draft.pipes.slotBytes);
  }
  const bool isCrowded = ranks > settings_.machine.cores;
  // Not of a caller's own messages: where the two sides disagree about the length, one pipe has to bring that to light.
  const bool isLongExchange = shape.collective == Collective::AllToAll && bytes >= kPastAnyCache;
  if (messages && shares && !settings_.spansHosts && (settings_.copies == 0 || isLongExchange) && !isCrowded) {
    draft.pipes = shorter(draft.pipes, ranks);
    draft.sliceBytes = draft.pipes.slotBytes;
    if (settings_.copies != 0) draft.firstPort = kFinePorts;  // beside the pipes of shorter calls
  }
  const int32_t channels = window || messages ? 1 : wanted;
  draft.geometry = algo::makeGeometry(traits.division, shape.count, algorithm.chunks(ranks), shape.type, channels, draft.sliceBytes);
  // As if all had buffers that others can write to: what is not placed moves as much as if it were read, through windows.
  const bool isLong = shares && bytes / static_cast<uint64_t>(ranks) >= kLeastPlacedBytes;
  if (lends) draft.loans = traits.places && (isLong || isPastCache(shape.collective, bytes)) ? Loans::Placed : Loans::Read;
  const tune::Passing copied = copies(traits, shape, bytes) ? tune::Passing::BySystemCall : tune::Passing::ThroughCopies;
  const tune::Passing passing = shares ? copied : tune::Passing::InPlace;
  draft.cost = model_.estimate(algorithm, draft.geometry, draft.geometry.totalElems * sizeOf(shape.type), draft.loans, passing);
  draft.estimatedUs = draft.cost.sum();
  return draft;
}

/// Those that the user wants at least; where hosts have several nets, one on each for what is long enough to fill a slice on all of them.
int32_t Planner::channelsFor(const Shape& shape) const {
  const int32_t tracks = std::min(layout_.tracks(), settings_.maxChannels);
  const bool isLong = shape.count * sizeOf(shape.type) >= static_cast<uint64_t>(tracks) * settings_.sliceBytes;
  return layout_.spreadsOverNets() && isLong ? std::max(settings_.channels, tracks) : settings_.channels;
}

namespace {
constexpr std::string_view kNeedsMemory = "needs memory that all ranks see, and they are on several hosts";
}  // namespace

/// Why the algorithm is only taken if nothing else is allowed; empty: it need not be.
std::string_view Planner::whyLast(const Algorithm& algorithm, const Shape& shape, const std::vector<const Algorithm*>& allowed) const {
  const algo::Traits& traits = algorithm.traits;
  const auto isThereOne = [&](const auto& suits) { return std::any_of(allowed.begin(), allowed.end(), suits); };
  if (traits.farOnly && !settings_.spansHosts && isThereOne([](const Algorithm* a) { return !a->traits.farOnly; }))
    return "is for ranks of several hosts: taken on one if nothing else is allowed";
  if (traits.fansOut && !isWorthFanning(shape.count * sizeOf(shape.type), layout_.ranks(), settings_.machine.cores) &&
      isThereOne([](const Algorithm* a) { return !a->traits.fansOut; }))
    return "has its root write to each rank, which takes its time: for longer values, or if nothing else is allowed";
  // A call on a host returns when its rank has done its part: callers feel it when that is late. Where kernels run, the launch costs more.
  if (traits.detains && isThereOne([](const Algorithm* a) { return !a->traits.detains; }))
    return "makes ranks that only give wait for those that take: taken if nothing else is allowed";
  return {};
}

/// The algorithm that the model holds to be the fastest of those that are allowed; of equals the first.
Result<Planner::Draft> Planner::draft(const Shape& shape, std::vector<Rejected>* rejected) {
  const auto allowed = tune::candidates(shape.collective, settings_.restrictions, settings_.deterministic, !settings_.spansHosts);
  if (!allowed) return tl::unexpected(allowed.error());
  const auto reject = [&](const Algorithm& algorithm, std::string reason) {
    if (rejected != nullptr) rejected->push_back({std::string(algorithm.traits.name), "", "", 0, -1, std::move(reason)});
  };
  if (rejected != nullptr) {
    for (const Algorithm& a : exec::record::algorithms())
      if (a.traits.collective == shape.collective && std::find(allowed->begin(), allowed->end(), &a) == allowed->end())
        reject(a, settings_.spansHosts && a.traits.needsSharedMemory() ? std::string(kNeedsMemory)
                                                                       : tune::whyNot(a, settings_.restrictions));
  }
  const int32_t channels = channelsFor(shape);
  std::vector<Draft> drafts;
  Draft best;
  std::string_view unfit;
  std::string_view tooMany;
  bool isTooLong = false;
  for (const Algorithm* algorithm : *allowed) {
    if (settings_.spansHosts && algorithm->traits.needsSharedMemory()) {
      unfit = algorithm->traits.name;
      reject(*algorithm, std::string(kNeedsMemory));
      continue;
    }
    if (const std::string_view why = whyLast(*algorithm, shape, *allowed); !why.empty()) {
      reject(*algorithm, std::string(why));
      continue;
    }
    if (!algorithm->traits.runsOn(layout_.nodes(), layout_.ranks() / layout_.nodes())) {
      tooMany = algorithm->traits.name;
      const std::string_view of = algorithm->traits.usesNodes ? "nodes, and as many ranks of each" : "ranks";
      reject(*algorithm, format("is for at most {} {}", algorithm->traits.mostAtOnce, of));
      continue;
    }
    Draft draft = divide(*algorithm, shape, channels);
    if (!draft.geometry.isComplete()) {
      isTooLong = true;
      reject(*algorithm, "would take more than 2^31 slices: TUTTI_SLICE_BYTES may be raised");
      continue;
    }
    drafts.push_back(std::move(draft));
  }
  // Host devices have one protocol, which does what Simple does.
  const auto rowOf = [](const Draft& d) {
    const auto family = tune::familyOf(*d.algorithm);
    return family ? std::optional<tune::Row>({*family, tune::NcclProtocol::Simple}) : std::nullopt;
  };
  const uint64_t bytes = drafts.empty() ? 0 : drafts.front().geometry.totalElems * sizeOf(shape.type);
  const tune::Advice advice = adviser_.about<Draft>(shape.collective, bytes, drafts, rowOf);
  if (const Draft* const first = advice.pick<Draft>(drafts, rowOf)) best = *first;
  if (best.algorithm != nullptr && advice.channels > 0) {
    Draft other = divide(*best.algorithm, shape, std::min(advice.channels, settings_.maxChannels));
    if (other.geometry.isComplete()) best = std::move(other);
  }
  best.tuner = advice.said;
  for (const Draft& draft : drafts)
    if (rejected != nullptr && draft.algorithm != best.algorithm)
      rejected->push_back({std::string(draft.algorithm->traits.name), "", "", draft.geometry.channels, draft.estimatedUs,
                           slower(draft.estimatedUs, best.estimatedUs, advice)});
  if (best.algorithm == nullptr && !unfit.empty())
    return fail(Code::InvalidUsage, "algorithm {} needs memory that all ranks see, and they are on several hosts: allow another one",
                unfit);
  if (best.algorithm == nullptr && !tooMany.empty() && !isTooLong)
    return fail(Code::InvalidUsage, "algorithm {} is for fewer ranks than {} on {} nodes: allow another one", tooMany, layout_.ranks(),
                layout_.nodes());
  if (best.algorithm == nullptr)
    return fail(Code::InvalidUsage, "{} elements are more than 2^31 slices: raise TUTTI_SLICE_BYTES, or choose another algorithm",
                shape.count);
  // A message of no bytes still meets its partner.
  if (shape.collective == Collective::SendRecv) best.geometry.slices = std::max(best.geometry.slices, 1);
  for (int32_t track = 0; track < layout_.tracks(); ++track) {
    Program& program = best.programs.emplace_back(best.algorithm->record(layout_.view(rank_, shape.root, ChannelId(track))));
    // Of a message's two lanes, each side runs one; a message to itself is a copy, in the sending lane.
    if (shape.collective == Collective::SendRecv) program.lanes[shape.receives ? 0 : 1].clear();
  }
  return best;
}

Result<std::shared_ptr<const HostPlan>> Planner::makePlan(const Shape& shape) {
  const auto drafted = draft(shape, nullptr);
  if (!drafted) return tl::unexpected(drafted.error());

  auto plan = std::make_shared<HostPlan>();
  plan->algorithm = drafted->algorithm->traits.name;
  plan->collective = shape.collective;
  plan->geometry = drafted->geometry;
  plan->reduction = {shape.type, shape.op, shape.scaling};
  plan->elementBytes = sizeOf(shape.type);
  plan->rank = rank_;
  plan->ranks = layout_.ranks();
  const uint64_t bytes = plan->geometry.totalElems * plan->elementBytes;
  plan->pastCache = isPastCache(shape.collective, bytes);
  if (triesCache(shape.collective, bytes)) plan->cacheChoice = std::make_unique<exec::host::CacheChoice>();
  plan->usesWindow = drafted->algorithm->traits.needs == algo::Needs::PeerMemory;
  plan->rounds = plan->usesWindow ? drafted->algorithm->traits.rounds : 0;
  plan->lends = drafted->loans != Loans::None;
  plan->places = drafted->loans == Loans::Placed;
  plan->copies = copies(drafted->algorithm->traits, shape, bytes) ? settings_.copies : 0;
  if (reduces(shape.collective)) plan->reduceFn = exec::host::selectReduce(shape.type, shape.op, settings_.simd);
  if (Status status = bind(*drafted, *plan); !status.ok())  // what others have done says enough
    return tl::unexpected(status.code() == Code::RemoteError ? std::move(status) : std::move(status).at("bind plan"));
  return std::shared_ptr<const HostPlan>(std::move(plan));
}

namespace {

/// Marks what `self` stores in a round if all others get the same.
void fanOutStores(std::vector<BoundStep>& steps, Rank self, int32_t ranks) {
  for (BoundStep& step : steps) {
    if (step.kind != Kind::Store || step.peer == self) continue;
    const auto isAlike = [&](const BoundStep& other) {
      return other.kind == Kind::Store && other.round == step.round && other.peer != self && other.reduce == step.reduce &&
             other.src.chunk == step.src.chunk && other.src.buffer == step.src.buffer;
    };
    step.fansOut = ranks > 2 && std::count_if(steps.begin(), steps.end(), isAlike) == ranks - 1;
  }
}

}  // namespace

Status Planner::bind(const Draft& draft, HostPlan& plan) {
  for (int32_t channel = 0; channel < draft.geometry.channels; ++channel) {
    std::vector<BoundLane>& lanes = plan.channels.emplace_back();
    for (const auto& steps : draft.program(channel).lanes) {
      BoundLane& lane = lanes.emplace_back();
      for (const Step& step : steps) {
        const auto bound = bindStep(step, ChannelId(channel), draft, lane);
        if (!bound) return bound.error();
        lane.steps.push_back(*bound);
      }
      if (plan.lends) fanOutStores(lane.steps, rank_, layout_.ranks());
      lane.sendEnds = lane.targets;
      std::sort(lane.sendEnds.begin(), lane.sendEnds.end());
      lane.sendEnds.erase(std::unique(lane.sendEnds.begin(), lane.sendEnds.end()), lane.sendEnds.end());
    }
  }
  for (int32_t r = 0; plan.lends && r < plan.ranks; ++r) {
    plan.neighbours.push_back(connections_.neighbour(Rank(r)));
    const auto window = connections_.window(Rank(r), cellBytes(true));
    if (!window) return window.error();
    plan.windows.push_back(*window);
    plan.stores.push_back(Rank(r) == rank_ ? nullptr : connections_.stores(Rank(r)));
  }
  if (plan.places) plan.results = connections_.results();
  return {};
}

/// The step with its pipes' ends, which are added to the lane's.
Result<BoundStep> Planner::bindStep(const Step& step, ChannelId channel, const Draft& draft, BoundLane& lane) {
  BoundStep bound;
  bound.kind = step.kind;
  bound.reduce = step.reduce;
  bound.lane = step.lane;
  bound.round = step.round;
  bound.src = step.src;
  bound.dst = step.dst;
  if (step.kind == Kind::Give || step.kind == Kind::Take) return bound;
  if (step.kind != Kind::Pipe) {
    // Store and Arrive work on the peer's window, the others on the own one.
    const bool remote = step.kind == Kind::Store || step.kind == Kind::Arrive;
    bound.peer = remote ? step.to.at(0) : step.from.count > 0 ? step.from.at(0) : rank_;
    const auto window = connections_.window(remote ? bound.peer : rank_, cellBytes(true));
    if (!window) return tl::unexpected(window.error());
    bound.window = *window;
    if (step.kind == Kind::Store && bound.peer != rank_) bound.stores = connections_.stores(bound.peer);
    return bound;
  }
  if (std::max(step.from.count, step.to.count) > exec::host::kMostLinks)
    return fail(Code::InternalError, "a step has more than {} peers", exec::host::kMostLinks);
  bound.numFrom = static_cast<int8_t>(step.from.count);
  bound.numTo = static_cast<int8_t>(step.to.count);
  const auto firstOf = [&](Rank sender) { return Rank((sender.value + 1) % layout_.ranks()); };
  bound.fansOut = draft.algorithm->traits.fansOut && step.to.count > 1 && step.to.at(0) == firstOf(rank_);
  bound.firstFrom = static_cast<uint32_t>(lane.sources.size());
  bound.firstTo = static_cast<uint32_t>(lane.targets.size());
  for (int32_t i = 0; i < step.from.count; ++i) {
    const auto end = connections_.recvEnd(channel, static_cast<uint8_t>(draft.firstPort + step.port), step.from.at(i), draft.pipes);
    if (!end) return tl::unexpected(end.error());
    lane.sources.push_back({*end, step.from.at(i), connections_.neighbour(step.from.at(i))});
    const Rank first = firstOf(step.from.at(i));
    if (!draft.algorithm->traits.fansOut || first == rank_) continue;
    const auto lead = connections_.lead(channel, static_cast<uint8_t>(draft.firstPort + step.port), step.from.at(i), first, draft.pipes);
    if (!lead) return tl::unexpected(lead.error());
    lane.sources.back().lead = *lead;
  }
  for (int32_t i = 0; i < step.to.count; ++i) {
    const auto end = connections_.sendEnd(channel, static_cast<uint8_t>(draft.firstPort + step.port), step.to.at(i), draft.pipes);
    if (!end) return tl::unexpected(end.error());
    if (settings_.spansProcesses && (*end)->slotBytes() < draft.sliceBytes)
      return fail(
          Code::InvalidUsage,
          "rank {} reads slots of {} bytes and rank {} would write {}: TUTTI_SLICE_BYTES, NCCL_BUFFSIZE and TUTTI_SLOTS have to be the "
          "same for both",
          step.to.at(i).value, (*end)->slotBytes(), rank_.value, draft.sliceBytes);
    lane.targets.push_back(*end);
  }
  // Whoever asked for a pipe first said how many slots it has. Of one that has more than the lead, the reader might be further behind.
  const transport::local::SendEnd* const lead = bound.fansOut ? lane.targets[bound.firstTo] : nullptr;
  for (size_t i = bound.firstTo; bound.fansOut && i < lane.targets.size(); ++i) bound.fansOut = lane.targets[i]->slots() <= lead->slots();
  return bound;
}

Result<Summary> Planner::summarize(const Shape& shape, std::vector<Rejected>* rejected) {
  const auto drafted = draft(shape, rejected);
  if (!drafted) return tl::unexpected(drafted.error());
  Summary summary;
  summary.algorithm = drafted->algorithm->traits.name;
  summary.channels = drafted->geometry.channels;
  summary.rings = layout_.rings();
  summary.lanes = static_cast<int32_t>(drafted->program(0).lanes.size());
  summary.slices = drafted->geometry.slices;
  summary.slots = drafted->algorithm->traits.needs == algo::Needs::PeerMemory ? 2 : drafted->pipes.slots;
  summary.sliceBytes = drafted->sliceBytes;
  summary.cost = drafted->cost;
  summary.tuner = drafted->tuner;
  summary.estimatedUs = drafted->estimatedUs;
  for (int32_t channel = 0; channel < summary.channels; ++channel)
    summary.traffic += exec::record::countTraffic(drafted->program(channel), drafted->geometry, sizeOf(shape.type), channel,
                                                  layout_.ranks(), true, drafted->loans);
  return summary;
}

}  // namespace tutti::plan
