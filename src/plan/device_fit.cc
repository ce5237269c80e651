#include "plan/device_fit.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "exec/cuda/pipe.h"

namespace tutti::plan {

using exec::cuda::KernelId;
using exec::record::Algorithm;

namespace {

constexpr uint8_t kMessagePorts[] = {algo::kMessagePort, algo::kUserPort};

/// Of messages to all and from all, and of a ring.
constexpr int32_t endsOfRanks(int32_t ranks) { return static_cast<int32_t>(std::size(kMessagePorts)) * 2 * (ranks - 1) + 2; }
static_assert(algo::kStarPort < algo::kPorts);
static_assert(algo::kPorts * 2 * (kMostStarRanks - 1) <= exec::cuda::kMostEnds);
static_assert(endsOfRanks(kMostDeviceRanks) <= exec::cuda::kMostEnds && endsOfRanks(kMostDeviceRanks + 1) > exec::cuda::kMostEnds);

/// Whether slices are handed over to a lane that has no place for it.
bool handsOverTooFar(const exec::record::Program& program) {
  for (const auto& lane : program.lanes)
    for (const algo::Step& step : lane)
      if (step.kind == algo::Kind::Give && step.lane >= exec::cuda::kHandOverLanes) return true;
  return false;
}

/// `use(port, sends, peer)` for each end of a pipe that the program uses, as often as it does.
template <class Use>
void forEachEnd(const exec::record::Program& program, const Use& use) {
  for (const auto& lane : program.lanes) {
    for (const algo::Step& step : lane) {
      if (step.kind != algo::Kind::Pipe) continue;
      for (int32_t i = 0; i < step.from.count; ++i) use(step.port, false, step.from.at(i).value);
      for (int32_t i = 0; i < step.to.count; ++i) use(step.port, true, step.to.at(i).value);
    }
  }
}

}  // namespace

Status fitRanks(int32_t ranks) {
  if (ranks <= kMostDeviceRanks) return {};
  return error(
      Code::InvalidUsage,
      "{} ranks on GPUs of one host: this version of tutti connects at most {}. Rings and messages between all of them are {} ends "
      "of pipes on a channel, and kernels hold {}; TUTTI_DEVICE=host computes on CPUs",
      ranks, kMostDeviceRanks, endsOfRanks(ranks), exec::cuda::kMostEnds);
}

/// Gives the ends of each rank on each track away, in the order of algo/list.h, for all roots.
void DeviceFits::setAside() {
  isSetAside_ = true;
  const int32_t ranks = layout_.ranks();
  if (ranks > kMostDeviceRanks) return;  // no such communicator is opened
  const int32_t tracks = layout_.tracks();
  const auto at = [ranks](int32_t track, int32_t rank) {
    return static_cast<size_t>(track) * static_cast<size_t>(ranks) + static_cast<size_t>(rank);
  };
  std::vector<Ends> taken(at(tracks, 0));
  for (int32_t track = 0; track < tracks; ++track)
    for (int32_t r = 0; r < ranks; ++r)
      for (int32_t peer = 0; peer < ranks; ++peer)
        for (const uint8_t port : kMessagePorts)
          if (peer != r) taken[at(track, r)].set(placeOf(port, false, peer)).set(placeOf(port, true, peer));
  for (const Algorithm& algorithm : exec::record::algorithms()) {
    if (algorithm.traits.needs == algo::Needs::PeerMemory || !algorithm.traits.isForDevices()) continue;
    std::vector<Ends> with = taken;
    const int32_t roots = hasRoot(algorithm.traits.collective) ? ranks : 1;
    for (int32_t track = 0; track < tracks; ++track)
      for (int32_t r = 0; r < ranks; ++r)
        for (int32_t root = 0; root < roots; ++root)
          forEachEnd(algorithm.record(layout_.view(Rank(r), Rank(root), ChannelId(track))),
                     [&](uint8_t port, bool sends, int32_t peer) { with[at(track, r)].set(placeOf(port, sends, peer)); });
    if (std::all_of(with.begin(), with.end(), [](const auto& ends) { return ends.count() <= exec::cuda::kMostEnds; }))
      taken = std::move(with);
    else
      withoutRoom_.insert(&algorithm);
  }
  if (tracks == 1) return;
  tracks_.resize(static_cast<size_t>(ranks));
  for (int32_t track = 0; track < tracks; ++track)
    for (int32_t r = 0; r < ranks; ++r)
      for (size_t end = 0; end < kEnds; ++end)
        if (taken[at(track, r)].test(end)) tracks_[static_cast<size_t>(r)][end] |= uint64_t{1} << track;
}

exec::cuda::Tracks DeviceFits::tracksOf(Rank rank, uint8_t port, bool sends, Rank peer) {
  if (!isSetAside_) setAside();
  if (tracks_.empty()) return {};
  const uint64_t known = tracks_[static_cast<size_t>(rank.value)][placeOf(port, sends, peer.value)];
  const uint64_t all = ~uint64_t{0} >> (exec::cuda::kMostTracks - layout_.tracks());
  const uint64_t bits = known == 0 ? all : known;
  return bits == all ? exec::cuda::Tracks{} : exec::cuda::Tracks{bits, layout_.tracks()};
}

/// Of the program of one rank on one track; adds its ports.
Status DeviceFits::check(const Algorithm& algorithm, KernelId kernel, const exec::record::Program& program, Rank rank, uint64_t& ports) {
  if (algorithm.traits.fansOut)
    return error(Code::InvalidArgument, "{} is for host devices: over links its root would send everything to every rank",
                 algorithm.traits.name);
  if (algorithm.traits.farOnly)
    return error(Code::InvalidArgument, "{} is for ranks of several hosts: windows do the same in fewer steps", algorithm.traits.name);
  const auto packed = exec::cuda::packProgram(kernel, algorithm.traits.needs, program.lanes, rank);
  if (!packed) return packed.error();
  std::set<std::tuple<uint8_t, bool, int32_t>> ends;
  forEachEnd(program, [&](uint8_t port, bool sends, int32_t peer) { ends.emplace(port, sends, peer); });
  if (ends.size() > exec::cuda::kMostEnds)
    return error(Code::InvalidArgument, "{} has {} ends of pipes on a channel; kernels hold {}", algorithm.traits.name, ends.size(),
                 exec::cuda::kMostEnds);
  if (handsOverTooFar(program))
    return error(Code::InvalidArgument, "{} hands slices over to more than {} lanes", algorithm.traits.name, exec::cuda::kHandOverLanes);
  for (const auto& [port, sends, peer] : ends) ports |= uint64_t{1} << std::min<int>(port, 63);
  return {};
}

DeviceFit DeviceFits::find(const Algorithm& algorithm, KernelId kernel, Rank root) const {
  DeviceFit fit;
  const int32_t lanes = algorithm.lanes(layout_.ranks());
  if (lanes > std::numeric_limits<uint8_t>::max()) {
    fit.status =
        error(Code::InvalidArgument, "{} has {} lanes; kernels hold {}", algorithm.traits.name, lanes, std::numeric_limits<uint8_t>::max());
    return fit;
  }
  if (withoutRoom_.contains(&algorithm)) {
    fit.status =
        error(Code::InvalidUsage,
              "{} of {} ranks finds no room for its pipes beside those of messages and of other algorithms: kernels hold {} ends on a "
              "channel",
              algorithm.traits.name, layout_.ranks(), exec::cuda::kMostEnds);
    return fit;
  }
  // A message has two ends, whoever they are.
  const bool isMessage = algorithm.traits.collective == Collective::SendRecv;
  const int32_t first = isMessage ? root.value : 0;
  const int32_t last = isMessage ? root.value : layout_.ranks() - 1;
  const int32_t tracks = isMessage || algorithm.traits.needs == algo::Needs::PeerMemory ? 1 : layout_.tracks();
  for (int32_t r = first; r <= last; ++r) {
    const Rank other = isMessage ? Rank((r + 1) % layout_.ranks()) : root;
    for (int32_t track = 0; track < tracks; ++track) {
      fit.status = check(algorithm, kernel, algorithm.record(layout_.view(Rank(r), other, ChannelId(track))), Rank(r), fit.ports);
      if (!fit.status.ok()) return fit;
    }
  }
  return fit;
}

const DeviceFit& DeviceFits::of(const Algorithm& algorithm, KernelId kernel, Rank root) {
  const int32_t whose = hasRoot(algorithm.traits.collective) ? root.value : 0;
  const auto [at, isNew] = known_.try_emplace({&algorithm, exec::cuda::hasFlaggedWindows(kernel), whose});
  if (!isSetAside_) setAside();
  if (isNew) at->second = find(algorithm, kernel, Rank(whose));
  return at->second;
}

}  // namespace tutti::plan
