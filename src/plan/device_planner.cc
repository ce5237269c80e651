#include "plan/device_planner.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "exec/record/cost.h"
#include "plan/device_draft.h"

namespace tutti::plan {

using algo::Geometry;
using algo::Needs;
using exec::cuda::carriedBytes;
using exec::cuda::KernelId;
using exec::cuda::kernelInfo;
using exec::cuda::Protocol;
using exec::record::Algorithm;
using exec::record::Program;

namespace {

constexpr int32_t kChannelCounts[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128};

/// Slices of all the slots that an algorithm may fill, or of a part of one slot: where the same bytes go from rank to rank, short slices
/// are on their way sooner.
constexpr uint64_t kSlotParts[] = {0, 2, 4};
/// What the threads of a block store at once over a window of lines for each peer, a thread its part of four lines for one peer and of two
/// for several, where it moves (exec/cuda/brief_lines.cuh; what combines has one of several at once). Where every rank sends and receives,
/// slices of so much are faster than longer ones, as long as they are few: measured between two ranks and between four, and taken for
/// three. 0: nobody has measured it.
constexpr uint64_t kPartsOfLine = exec::cuda::kLineBytes / 16;
constexpr uint64_t batchBytes(int32_t ranks) {
  const uint64_t lines = ranks == 2 ? 4 : ranks <= 4 ? 2 : 0;
  return exec::cuda::mostLoneThreads(Protocol::Lines) / kPartsOfLine * lines * exec::cuda::kLineDataBytes;
}
static_assert(batchBytes(2) == 23040 && batchBytes(4) == 11520, "what was measured");
constexpr uint64_t mostBatches(int32_t ranks) { return ranks == 2 ? 6 : 3; }
bool sendsAndReceives(Collective collective) {
  return collective == Collective::AllReduce || collective == Collective::AllGather || collective == Collective::ReduceScatter ||
         collective == Collective::AllToAll;
}

/// What is tried first is preferred to what is faster by less than this: well-known algorithms, few channels, long slices.
constexpr double kWorthwhile = 1.01;

bool isMessage(const Shape& shape) { return shape.collective == Collective::SendRecv; }

tune::NcclProtocol ncclProtocol(KernelId kernel) {
  switch (kernelInfo(kernel).protocol) {
    case Protocol::Cells: return tune::NcclProtocol::LL;
    case Protocol::Lines: return tune::NcclProtocol::LL128;
    case Protocol::Simple: break;
  }
  return tune::NcclProtocol::Simple;
}

bool isWindow(const Algorithm& algorithm) { return algorithm.traits.needs == Needs::PeerMemory; }

size_t windowOf(KernelId kernel) { return static_cast<size_t>(exec::cuda::windowOf(kernelInfo(kernel).protocol)); }

/// Slots that a slice takes: as many as leave room for the slices that the algorithm has under way.
uint64_t piecesOf(const Algorithm& algorithm, int32_t slots) {
  return static_cast<uint64_t>(std::max(1, slots / std::max(algorithm.traits.minSlots, 2)));
}

int32_t ceilDivide(uint64_t value, uint64_t divisor) {
  return static_cast<int32_t>(std::min<uint64_t>((value + divisor - 1) / divisor, std::numeric_limits<int32_t>::max()));
}

}  // namespace

int32_t DeviceSettings::pipeChannels(Protocol protocol, uint8_t port) const {
  const bool isPlain = protocol == Protocol::Simple;
  int32_t most = maxChannels;
  if (port == algo::kUserPort || port == algo::kMessagePort) {
    most = std::min(most, messageChannels);
    if (isPlain) most = std::min(most, port == algo::kUserPort ? plainUserChannels : plainMessageChannels);
  } else if (isPlain) {
    most = std::min(most, port == algo::kStarPort ? plainStarChannels : plainChannels);
  }
  return std::max(1, most);
}

int32_t DeviceSettings::mostBlocksOf(Protocol protocol, Collective collective) const {
  if (protocol != Protocol::Simple) return maxChannels;
  const bool isEven = collective == Collective::AllGather || collective == Collective::ReduceScatter || collective == Collective::AllToAll;
  return std::min(maxChannels, isEven ? plainEvenBlocks : collective == Collective::Gather ? plainGatherBlocks : plainBlocks);
}

DevicePlanner::DevicePlanner(const connect::Layout& layout, Rank rank, const DeviceSettings& settings)
    : layout_(layout), rank_(rank), settings_(settings), model_(layout, settings.machine), adviser_(settings.tuner), fits_(layout) {}

bool DevicePlanner::isOnDevice(KernelId kernel) const {
  if (kernelInfo(kernel).protocol == Protocol::Lines && !settings_.hasLines) return false;
  if (kernel == KernelId::Bulk && !settings_.hasBulk) return false;
  if (kernel == KernelId::Simple && !settings_.hasSimple) return false;
  return settings_.mostBlocks[static_cast<size_t>(kernel)] > 0;
}

/// Sets the option's lanes and channels where nothing is in the way.
DevicePlanner::Obstacle DevicePlanner::examine(Option& option, const Shape& shape) {
  const algo::Traits& traits = option.algorithm->traits;
  const Protocol protocol = kernelInfo(option.kernel).protocol;
  if (!settings_.protocols.allows(shape.collective, protocolName(option.kernel))) return Obstacle::Protocol;
  if (!isOnDevice(option.kernel)) return Obstacle::Kernel;
  if (option.kernel == KernelId::Bulk && isOnDevice(KernelId::Simple) && reduces(shape.collective)) return Obstacle::Kernel;
  if (isWindow(*option.algorithm) && !settings_.hasWindows) return Obstacle::Window;
  if (!isWindow(*option.algorithm) && settings_.slots[static_cast<size_t>(protocol)] < traits.minSlots) return Obstacle::Slots;
  const DeviceFit& fit = fits_.of(*option.algorithm, option.kernel, shape.root);
  if (!fit.status.ok()) return Obstacle::Program;
  option.lanes = isMessage(shape) ? 1 : option.algorithm->lanes(layout_.ranks());
  const int32_t wanted = settings_.mostBlocksOf(protocol, shape.collective);
  const int32_t allowed = std::max(wanted, option.lanes);  // options() leaves out what needs more than the user allows
  option.mostChannels = std::min(settings_.mostBlocks[static_cast<size_t>(option.kernel)], allowed) / option.lanes;
  if (isWindow(*option.algorithm)) option.mostChannels = std::min(option.mostChannels, settings_.windowChannels[windowOf(option.kernel)]);
  for (int port = 0; port < 64; ++port)
    if ((fit.ports >> port & 1) != 0)
      option.mostChannels =
          std::min(option.mostChannels, settings_.pipeChannels(protocol, portOf(static_cast<uint8_t>(port), protocol, shape.collective)));
  return option.mostChannels < 1 ? Obstacle::Blocks : Obstacle::None;
}

/// All that can run, in the order of algo/list.h and of KernelId: within the user's bound on blocks, or, where nothing is, beyond it.
/// Whether one does never depends on the count, so that with `deterministic` all sizes have the same order of combining.
Result<std::vector<DevicePlanner::Option>> DevicePlanner::options(const Shape& shape, std::vector<Rejected>* rejected) {
  const bool inOrder = settings_.deterministic && reduces(shape.collective);
  auto allowed = tune::candidates(shape.collective, settings_.restrictions, false);
  if (!allowed) return tl::unexpected(allowed.error());
  if (inOrder) {
    // Its error names what leaves nothing in order. What it returns is too narrow: the best order may not run here, and the next one may.
    if (const auto strict = tune::candidates(shape.collective, settings_.restrictions, true); !strict)
      return tl::unexpected(strict.error());
    std::erase_if(*allowed, [](const Algorithm* a) { return a->traits.order == algo::Order::Layout; });
  }
  if (rejected != nullptr) {
    for (const Algorithm& a : exec::record::algorithms())
      if (a.traits.collective == shape.collective && std::find(allowed->begin(), allowed->end(), &a) == allowed->end())
        rejected->push_back({std::string(a.traits.name), "", "", 0, -1, tune::whyNot(a, settings_.restrictions)});
  }
  std::vector<Option> found;
  const auto remove = [&](auto&& isOut, std::string_view reason) {
    std::erase_if(found, [&](const Option& o) {
      if (isOut(o) && rejected != nullptr) rejected->push_back(rejection(o, std::string(reason)));
      return isOut(o);
    });
  };
  Hindrance nearest{Obstacle::Protocol, {allowed->front(), KernelId::Simple}};
  for (const Algorithm* algorithm : *allowed) {
    for (int k = 0; k < exec::cuda::kNumKernels; ++k) {
      Option option{algorithm, static_cast<KernelId>(k)};
      if (!carriesOut(option.kernel, *algorithm)) continue;
      const Obstacle obstacle = examine(option, shape);
      if (obstacle != Obstacle::None && rejected != nullptr) rejected->push_back(rejection(option, why({obstacle, option}, shape)));
      if (obstacle == Obstacle::None)
        found.push_back(option);
      else if (obstacle > nearest.obstacle)
        nearest = {obstacle, option};
    }
  }
  if (found.empty()) {
    const Status why = explain(nearest, *allowed, shape);
    if (!inOrder) return tl::unexpected(why);
    return fail(why.code(), "{} (TUTTI_DETERMINISTIC wants rank order)", why.text());
  }
  const auto isBeyond = [this](const Option& o) { return o.lanes > settings_.maxChannels; };
  if (!std::all_of(found.begin(), found.end(), isBeyond))
    remove(isBeyond, format("a channel takes more blocks than the {} that maxCTAs or NCCL_MAX_CTAS allow", settings_.maxChannels));
  if (inOrder) {
    algo::Order best = algo::Order::Layout;
    for (const Option& o : found) best = std::max(best, o.algorithm->traits.order);
    remove([best](const Option& o) { return o.algorithm->traits.order != best; }, "TUTTI_DETERMINISTIC wants a better order");
  }
  return found;
}

/// `slotParts`: one of kSlotParts.
DevicePlanner::Draft DevicePlanner::divide(const Option& option, const Shape& shape, int32_t channels, uint64_t slotParts) {
  const Algorithm& algorithm = *option.algorithm;
  const Protocol protocol = kernelInfo(option.kernel).protocol;
  const auto p = static_cast<size_t>(protocol);
  const uint64_t pieceBytes = carriedBytes(protocol, settings_.slotBytes[p]);
  Draft draft;
  draft.option = option;
  if (isWindow(algorithm)) {
    draft.sliceBytes = carriedBytes(protocol, exec::cuda::shareRoom(protocol, settings_.shareBytes[windowOf(option.kernel)]));
  } else {
    draft.sliceBytes = slotParts == 0 ? piecesOf(algorithm, settings_.slots[p]) * pieceBytes
                                      : std::max(pieceBytes / slotParts / algo::kShareAlignBytes, uint64_t{1}) * algo::kShareAlignBytes;
  }
  draft.geometry =
      algo::makeGeometry(algorithm.traits.division, shape.count, algorithm.chunks(layout_.ranks()), shape.type, channels, draft.sliceBytes);
  draft.cost = model_.estimate(algorithm, option.kernel, draft.geometry, shape.type, pieceBytes);
  draft.estimatedUs = draft.cost.sum();
  const uint64_t partBytes = draft.geometry.partElems * sizeOf(shape.type);
  // The constants are of the longer slices, and a choice between kernels should not change for this.
  if (const uint64_t batch = batchBytes(layout_.ranks());
      option.kernel == KernelId::LineWindow && sendsAndReceives(shape.collective) && batch != 0 && draft.sliceBytes > batch &&
      partBytes <= mostBatches(layout_.ranks()) * batch) {
    draft.sliceBytes = batch;
    draft.geometry =
        algo::makeGeometry(algorithm.traits.division, shape.count, algorithm.chunks(layout_.ranks()), shape.type, channels, batch);
  }
  return draft;
}

/// At least as many as the user wants and elements can use, at most as many as fit and are of use; both ends included.
std::vector<int32_t> DevicePlanner::channelsToTry(const Option& option, const Shape& shape) const {
  const algo::Traits& traits = option.algorithm->traits;
  const Geometry whole =
      algo::makeGeometry(traits.division, shape.count, option.algorithm->chunks(layout_.ranks()), shape.type, 1, 1 << 20);
  const uint64_t chunkBytes = std::min(whole.chunkElems, whole.totalElems) * sizeOf(shape.type);
  const int32_t used = std::clamp(ceilDivide(chunkBytes, algo::kShareAlignBytes), 1, option.mostChannels);
  const int32_t wanted = (settings_.minChannels + option.lanes - 1) / option.lanes;
  const int32_t least = std::clamp(wanted, 1, used);
  const uint64_t leastBytes = tune::costOf(settings_.machine, *option.algorithm, option.kernel, layout_.ranks()).leastBytes;
  const int32_t most = std::clamp(ceilDivide(chunkBytes, std::max<uint64_t>(leastBytes, 1)), least, used);
  std::set<int32_t> counts = {least, most};
  // As often as all tracks are used alike.
  for (int32_t count = layout_.tracks(); count < most && layout_.tracks() > 1 && !isWindow(*option.algorithm); count *= 2)
    if (count > least) counts.insert(count);
  for (const int32_t count : kChannelCounts)
    if (count > least && count < most) counts.insert(count);
  return {counts.begin(), counts.end()};
}

/// The same with as many blocks as a tuner wants, within what fits and what the user allows.
DevicePlanner::Draft DevicePlanner::withBlocks(const Draft& draft, const Shape& shape, int32_t blocks) {
  const Option& option = draft.option;
  const int32_t least = (settings_.minChannels + option.lanes - 1) / option.lanes;
  const int32_t channels = std::clamp(std::max((blocks + option.lanes - 1) / option.lanes, least), 1, option.mostChannels);
  Draft best = draft;
  best.estimatedUs = std::numeric_limits<double>::max();
  for (const uint64_t slotParts : kSlotParts) {
    if (slotParts != 0 && isWindow(*option.algorithm)) continue;
    const Draft other = divide(option, shape, channels, slotParts);
    if (other.geometry.isComplete() && other.estimatedUs < best.estimatedUs) best = other;
  }
  return best.estimatedUs < std::numeric_limits<double>::max() ? best : draft;
}

/// What the model holds to be the fastest, or the first that is hardly slower.
Result<DevicePlanner::Draft> DevicePlanner::draft(const Shape& shape, std::vector<Rejected>* rejected) {
  const auto found = options(shape, rejected);
  if (!found) return tl::unexpected(found.error());
  std::vector<Draft> drafts;
  double leastUs = std::numeric_limits<double>::max();
  for (const Option& option : *found) {
    for (const int32_t channels : channelsToTry(option, shape)) {
      for (const uint64_t slotParts : kSlotParts) {
        if (slotParts != 0 && isWindow(*option.algorithm)) continue;
        const Draft draft = divide(option, shape, channels, slotParts);
        if (!draft.geometry.isComplete()) continue;
        leastUs = std::min(leastUs, draft.estimatedUs);
        drafts.push_back(draft);
      }
    }
  }
  const auto rowOf = [](const Draft& d) {
    const auto family = tune::familyOf(*d.option.algorithm);
    return family ? std::optional<tune::Row>({*family, ncclProtocol(d.option.kernel)}) : std::nullopt;
  };
  const uint64_t bytes = drafts.empty() ? 0 : drafts.front().geometry.totalElems * sizeOf(shape.type);
  const tune::Advice advice = adviser_.about<Draft>(shape.collective, bytes, drafts, rowOf);
  auto chosen = std::find_if(drafts.begin(), drafts.end(), [&](const Draft& d) { return d.estimatedUs <= leastUs * kWorthwhile; });
  if (advice.isChanged) chosen = drafts.begin() + (advice.pick<Draft>(drafts, rowOf) - drafts.data());
  if (chosen == drafts.end())
    return fail(Code::InvalidUsage, "{} of {} elements is more than 2^31 slices: allow more channels or another algorithm",
                name(shape.collective), shape.count);
  for (const Option& option : *found) {
    if (rejected == nullptr || option.isSame(chosen->option)) continue;
    const Draft* best = nullptr;
    for (const Draft& d : drafts)
      if (d.option.isSame(option) && (best == nullptr || d.estimatedUs < best->estimatedUs)) best = &d;
    rejected->push_back(
        rejection(option, best == nullptr ? "would take more than 2^31 slices" : slower(best->estimatedUs, chosen->estimatedUs, advice)));
    if (best == nullptr) continue;
    rejected->back().channels = best->geometry.channels;
    rejected->back().estimatedUs = best->estimatedUs;
  }
  if (advice.channels > 0) *chosen = withBlocks(*chosen, shape, advice.channels);
  chosen->tuner = advice.said;
  // A message of no bytes still meets its partner.
  if (isMessage(shape)) chosen->geometry.slices = std::max(chosen->geometry.slices, 1);
  return *chosen;
}

/// Two ranks are each other's neighbours, and no two calls of theirs are under way at once: what goes straight from one to the other in
/// plain data (all-to-all, gather, scatter) takes the pipes that rings have, instead of memory for more. Of more ranks gather and scatter
/// may have pipes apart from all-to-all's.
uint8_t DevicePlanner::portOf(uint8_t port, Protocol protocol, Collective collective) const {
  if (port != algo::kMessagePort || protocol != Protocol::Simple) return port;
  if (layout_.ranks() == 2) return algo::kRingPort;
  const bool isStar = collective == Collective::Gather || collective == Collective::Scatter;
  return isStar && settings_.plainStarChannels > 0 ? algo::kStarPort : port;
}

/// By track; one where layouts make no difference.
std::vector<Program> DevicePlanner::programsOf(const Option& option, const Shape& shape) const {
  std::vector<Program> programs;
  const int32_t tracks = isWindow(*option.algorithm) || isMessage(shape) ? 1 : layout_.tracks();
  for (int32_t track = 0; track < tracks; ++track) {
    Program& program = programs.emplace_back(option.algorithm->record(layout_.view(rank_, shape.root, ChannelId(track))));
    for (auto& lane : program.lanes)
      for (algo::Step& step : lane) step.port = portOf(step.port, kernelInfo(option.kernel).protocol, shape.collective);
  }
  return programs;
}

Result<std::shared_ptr<DevicePlan>> DevicePlanner::makePlan(const Shape& shape) {
  const auto drafted = draft(shape, nullptr);
  if (!drafted) return tl::unexpected(drafted.error());
  const Option& option = drafted->option;
  const std::vector<Program> programs = programsOf(option, shape);

  auto plan = std::make_shared<DevicePlan>();
  plan->algorithm = option.algorithm->traits.name;
  plan->kernel = option.kernel;
  plan->needsWindow = isWindow(*option.algorithm);
  plan->estimatedUs = drafted->estimatedUs;
  exec::cuda::Work& work = plan->work;
  work.geometry = drafted->geometry;
  work.scaling = shape.scaling;
  work.lanes = static_cast<uint8_t>(option.lanes);
  work.firstLane = isMessage(shape) && shape.receives ? 1 : 0;
  work.algorithm = placeOf(*option.algorithm);
  if ((hasRoot(shape.collective) || isMessage(shape)) && shape.root.value < exec::cuda::kMaxLocalRanks)
    work.root = static_cast<uint8_t>(shape.root.value);
  work.type = shape.type;
  work.op = shape.op;
  std::vector<std::vector<algo::Step>> lanes;  // of all tracks
  for (const Program& program : programs) lanes.insert(lanes.end(), program.lanes.begin(), program.lanes.end());
  const auto tracks = static_cast<int32_t>(programs.size());
  auto packed = exec::cuda::packProgram(option.kernel, option.algorithm->traits.needs, lanes, rank_, tracks);
  if (!packed) return tl::unexpected(Status(packed.error()).at("plan"));
  plan->program = std::move(*packed);
  work.program.shape = plan->program.shape;
  const Protocol protocol = kernelInfo(option.kernel).protocol;
  const auto need = [&](const algo::Step& step, bool sends, Rank peer) {
    plan->pipes.push_back({protocol, step.port, sends, peer, fits_.tracksOf(rank_, step.port, sends, peer)});
  };
  for (int32_t track = 0; track < tracks; ++track) {
    const Program& program = programs[static_cast<size_t>(track)];
    for (int32_t lane = work.firstLane; lane < work.firstLane + work.lanes; ++lane) {
      for (const algo::Step& step : program.lanes[static_cast<size_t>(lane)]) {
        // Fewer channels than tracks: the track runs on none of them, and its pipes would have no bytes.
        if (step.kind != algo::Kind::Pipe || track >= settings_.pipeChannels(protocol, step.port)) continue;
        for (int32_t i = 0; i < step.from.count; ++i) need(step, false, step.from.at(i));
        for (int32_t i = 0; i < step.to.count; ++i) need(step, true, step.to.at(i));
      }
    }
  }
  std::sort(plan->pipes.begin(), plan->pipes.end());
  plan->pipes.erase(std::unique(plan->pipes.begin(), plan->pipes.end()), plan->pipes.end());
  return plan;
}

Result<double> DevicePlanner::estimateUs(const Shape& shape) {
  const auto drafted = draft(shape, nullptr);
  if (!drafted) return tl::unexpected(drafted.error());
  return drafted->estimatedUs;
}

Result<Summary> DevicePlanner::summarize(const Shape& shape, std::vector<Rejected>* rejected) {
  const auto drafted = draft(shape, rejected);
  if (!drafted) return tl::unexpected(drafted.error());
  const Option& option = drafted->option;
  std::vector<Program> programs = programsOf(option, shape);
  if (isMessage(shape)) programs.front().lanes[shape.receives ? 0 : 1].clear();
  Summary summary;
  summary.algorithm = option.algorithm->traits.name;
  summary.kernel = kernelInfo(option.kernel).name;
  summary.protocol = protocolName(option.kernel);
  summary.cost = drafted->cost;
  summary.tuner = drafted->tuner;
  summary.channels = drafted->geometry.channels;
  summary.rings = layout_.rings();
  summary.lanes = option.lanes;
  summary.slices = drafted->geometry.slices;
  const Protocol protocol = kernelInfo(option.kernel).protocol;
  summary.slots = isWindow(*option.algorithm) ? 2 : static_cast<uint32_t>(settings_.slots[static_cast<size_t>(protocol)]);
  summary.sliceBytes = drafted->sliceBytes;
  summary.estimatedUs = drafted->estimatedUs;
  for (int32_t channel = 0; channel < summary.channels; ++channel)
    summary.traffic += exec::record::countTraffic(programs[static_cast<size_t>(channel) % programs.size()], drafted->geometry,
                                                  sizeOf(shape.type), channel, layout_.ranks(), false);
  return summary;
}

}  // namespace tutti::plan
