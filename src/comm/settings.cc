#include "comm/settings.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "config/params.h"
#include "observe/log.h"
#include "plan/device_fit.h"
#include "transport/local/neighbour.h"
#include "transport/plugin/library.h"

namespace tutti::comm {
namespace {

using config::Param;

constexpr int32_t kMostChannels = 64;
/// ncclConfig_t::CTAPolicy, NCCL_CTA_POLICY.
constexpr int32_t kEfficient = 1;
constexpr int32_t kZero = 2;
/// As many blocks as NCCL takes on NVLink: calls as fast as its, and products beside them lose as little (docs/performance/gpu.md).
constexpr int64_t kEfficientChannels = 24;
/// Slots of plain data on GPUs are multiples of what the workers of a block move in two passes, of which one stores while the other loads:
/// odd numbers of passes are up to 1.6 times as slow (docs/decisions/0040-forty-blocks-and-near-pages.md). Smaller ones are one pass.
constexpr uint64_t kPlainUnit = 57344;
constexpr uint64_t kLeastPlainBytes = kPlainUnit / 2;
/// Blocks of a cluster, where nobody says: half the blocks as fast as without (docs/decisions/0039-clusters.md).
constexpr int32_t kClusterBlocks = 4;
/// Blocks of a call in clusters, by whether all ranks send and receive all the time: measured,
/// docs/decisions/0040-forty-blocks-and-near-pages.md and 0047-four-gpus.md; of a gather of more than two ranks, whose root takes from all,
/// 0048-four-gpus-stars-and-slices.md.
constexpr int32_t kEvenBlocks = 40;
constexpr int32_t kOtherBlocks = 32;
constexpr int32_t kGatherBlocks = 48;
/// What the pipes of a ring have under way then, however few their channels, of which a slot is no more than so many units.
constexpr uint64_t kClusteredBytes = 17920 << 10;
constexpr uint64_t kMostSlotUnits = 6;
/// Of the slots of messages of a port on a GPU: of all-to-all with the pipes of a ring less than 30 MiB, and of gather and scatter where
/// they share its port.
constexpr uint64_t kMessageBytes = 12 << 20;
/// The same of the caller's plain messages, and of gather and scatter of three ranks and more, in clusters: one peer's pipes are to keep a
/// link busy. A caller that sends to all has all of it, and so has a root.
constexpr uint64_t kUserBytes = 17 << 20;
/// Pipes for clusters are measured between two GPUs and between four, and taken for three; those to more peers would have too few channels
/// each.
constexpr int32_t kMostClusteredRanks = 4;
static_assert(kMostClusteredRanks <= plan::kMostStarRanks);
/// What each of several ranks may store in a bank of a channel of a window of cells, where the model has lines beside them: one of two
/// pages (exec/cuda/window.h). Else it is twice that. Communicators in which some pair uses the host's memory have no lines either, which
/// is found out too late for this.
constexpr uint64_t kCellShare = 8192;
/// What all ranks may store in a bank of a channel of a window of lines.
constexpr uint64_t kLineShares = 70 << 10;

/// TUTTI_SIMD, or the best there is; a level that this machine lacks is an error, not a slower run unnoticed.
Result<exec::host::SimdLevel> readSimd() {
  std::string text = config::get<Param::TuttiSimd>();
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text.empty() || text == "auto") return exec::host::detectSimd();
  for (int i = 0; i < exec::host::kNumSimdLevels; ++i) {
    const auto level = static_cast<exec::host::SimdLevel>(i);
    if (text != exec::host::name(level)) continue;
    if (exec::host::isSupported(level)) return level;
    return fail(Code::InvalidUsage, "TUTTI_SIMD={}: this processor or this build does not have it", text);
  }
  return fail(Code::InvalidUsage, "TUTTI_SIMD={}: known are auto, portable, sse4, avx2, avx512", text);
}

tune::Machine readMachine(tune::Machine machine) {
  const auto replace = [](double& value, int64_t given) {
    if (given > 0) value = static_cast<double>(given);
  };
  replace(machine.hopNs, config::get<Param::TuttiHopNs>());
  replace(machine.switchNs, config::get<Param::TuttiSwitchNs>());
  replace(machine.bytesPerNs, config::get<Param::TuttiCoreGbps>());
  return machine;
}

/// A bound of the environment.
struct Bound {
  const char* name;
  int64_t value;
};
template <Param... kParams>
std::vector<Bound> boundsOf() {
  std::vector<Bound> bounds;
  const auto add = [&](Param param, int64_t value) {
    const config::Entry& entry = config::table()[static_cast<size_t>(param)];
    if (value > 0 && value <= kMostChannels && value != entry.number) bounds.push_back({entry.name, value});
  };
  (add(kParams, config::get<kParams>()), ...);
  return bounds;
}
/// InvalidUsage: two variables that cannot both hold.
Status checkBounds(const std::vector<Bound>& least, const std::vector<Bound>& most) {
  for (const Bound& low : least)
    for (const Bound& high : most)
      if (low.value > high.value)
        return error(Code::InvalidUsage, "{}={} is more than {}={}: expected at most {}, or a larger {}, or one of them alone", low.name,
                     low.value, high.name, high.value, high.value, high.name);
  return {};
}
Status checkBounds() {
  TUTTI_TRY(checkBounds(boundsOf<Param::MinCtas, Param::MinNchannels, Param::MinNrings>(),
                        boundsOf<Param::MaxCtas, Param::MaxNchannels, Param::MaxNrings>()));
  return checkBounds(boundsOf<Param::MinP2pNchannels>(), boundsOf<Param::MaxP2pNchannels>());
}

/// The fewest and the most channels that the user allows. Where the program's bounds and the environment's cannot both hold, the most does.
std::pair<int32_t, int32_t> channelBounds(const Config& config, bool tells) {
  int64_t least = config.minCtas;
  int64_t most = config.maxCtas;
  // The older names hold beside the newer ones; the most restrictive wins.
  for (const int64_t n : {config::get<Param::MinNchannels>(), config::get<Param::MinNrings>()})
    if (n > 0) least = std::max(least, n);
  for (const int64_t n : {config::get<Param::MaxNchannels>(), config::get<Param::MaxNrings>()})
    if (n > 0) most = std::min(most, n);
  most = std::clamp<int64_t>(most, 1, kMostChannels);
  if (config.ctaPolicy == kEfficient) most = std::min(most, std::max(least, kEfficientChannels));
  if (least > most && tells)
    observe::warn(
        "{} channels at least are asked for by minCTAs, NCCL_MIN_CTAS or NCCL_MIN_NCHANNELS, and {} at most by maxCTAs, NCCL_MAX_CTAS "
        "or NCCL_MAX_NCHANNELS: {} holds",
        least, most, most);
  return {static_cast<int32_t>(std::clamp<int64_t>(least, 1, most)), static_cast<int32_t>(most)};
}

/// A communicator has two small grids on the device then, and each grid a multiprocessor for a block. Those that were launched early before
/// two more communicators came stay; with them and one grid of each of the two, all are on the device.
int32_t mostEarlyRanks(int32_t multiprocessors) { return std::max(0, (multiprocessors / exec::cuda::kMostEarlyBlocks - 2) / 2); }

/// A grid in clusters may take half of what of them fits onto the device, so that another communicator's is there at the same time.
exec::cuda::ClusterLimits clusterLimits(int32_t most, const exec::cuda::KernelUse& use) {
  exec::cuda::ClusterLimits limits{};
  for (size_t i = 0; i < exec::cuda::kClusterSizes.size(); ++i) {
    const int32_t size = exec::cuda::kClusterSizes[i];
    if (size <= most) limits[i] = use.clusters[i] * size / 2;
  }
  return limits;
}
std::array<exec::cuda::ClusterLimits, exec::cuda::kNumKernels> clusterLimits(int32_t most, const exec::cuda::KernelUses& uses) {
  std::array<exec::cuda::ClusterLimits, exec::cuda::kNumKernels> limits{};
  for (size_t k = 0; k < limits.size(); ++k) limits[k] = clusterLimits(most, uses.of[k]);
  return limits;
}

/// In all collectives.
bool allowsLines(const tune::Filter& protocols) {
  for (int c = 0; c < kNumCollectives; ++c)
    if (!protocols.allows(static_cast<Collective>(c), exec::cuda::name(exec::cuda::Protocol::Lines))) return false;
  return true;
}

/// Slots of pipes, and how many channels have them. The bounds of blocks are there already.
void setPipes(plan::DeviceSettings& settings, int32_t ranks, bool isClustered) {
  constexpr auto kPlain = static_cast<size_t>(exec::cuda::Protocol::Simple);
  constexpr auto kLines = static_cast<size_t>(exec::cuda::Protocol::Lines);
  const int32_t room = settings.messageBlocks;
  const int64_t fewest = std::clamp<int64_t>(config::get<Param::MinP2pNchannels>(), 1, std::clamp(room, 1, kMostChannels));
  const int64_t bound = std::clamp<int64_t>(config::get<Param::MaxP2pNchannels>(), 1, kMostChannels);
  // What lies between two neighbours stays small: docs/decisions/0015.
  settings.slots = {4, 4, 4};
  settings.slotBytes = {57344, 16384, 61440};
  // In clusters half the blocks keep a link busy, if more is under way between two of them; but what the user asks for counts.
  const int32_t wanted = std::max(settings.minChannels, static_cast<int32_t>(std::min<int64_t>(2 * fewest, kMostChannels)));
  settings.plainBlocks = isClustered ? std::max(wanted, kOtherBlocks) : kMostChannels;
  settings.plainEvenBlocks = isClustered ? std::max(wanted, kEvenBlocks) : kMostChannels;
  // Between more ranks what arrives is also passed on, and 32 blocks are faster than 40.
  settings.plainChannels = ranks == 2 ? settings.plainEvenBlocks : settings.plainBlocks;
  // The fewer channels there may be, the more each has under way, in as much memory.
  const int32_t mostPlain = std::min(settings.maxChannels, settings.plainChannels);
  if (isClustered) {
    const uint64_t each = kClusteredBytes / static_cast<uint64_t>(mostPlain * settings.slots[kPlain]);
    settings.slotBytes[kPlain] = std::clamp(each / kPlainUnit, uint64_t{1}, kMostSlotUnits) * kPlainUnit;
  } else {
    if (mostPlain <= kMostChannels / 2) settings.slotBytes[kPlain] *= 2;
    if (mostPlain <= kMostChannels / 4) settings.slots[kPlain] *= 2;
  }
  if (const int64_t slots = config::get<Param::TuttiSlots>(); slots > 0)
    settings.slots.fill(static_cast<int32_t>(std::clamp<int64_t>(slots, 2, 64)));
  uint64_t& plainBytes = settings.slotBytes[kPlain];
  if (const int64_t bytes = config::get<Param::Buffsize>(); bytes > 0) plainBytes = static_cast<uint64_t>(bytes / settings.slots[kPlain]);
  if (const int64_t bytes = config::get<Param::TuttiSliceBytes>(); bytes > 0) plainBytes = static_cast<uint64_t>(bytes);
  plainBytes = plainBytes < kPlainUnit ? kLeastPlainBytes : std::min(plainBytes / kPlainUnit, uint64_t{32}) * kPlainUnit;
  // Each peer may be sent to and received from at the same time; what all of them together may be sent stays below what a ring has.
  const auto peers = static_cast<uint64_t>(std::max(1, ranks - 1));
  const auto lanesOfMessages = static_cast<int32_t>(2 * peers);
  const auto ofMessages = [&](size_t protocol, int32_t most, uint64_t bytes, int32_t lanes) {
    const uint64_t affordable = bytes / (settings.slotBytes[protocol] * static_cast<uint64_t>(settings.slots[protocol])) / peers;
    const int32_t fitting = std::min(room / lanes, static_cast<int32_t>(std::min<uint64_t>(affordable, 32)));
    return static_cast<int32_t>(std::min(std::max<int64_t>(std::clamp(fitting, 1, most), fewest), bound));
  };
  settings.messageChannels = ofMessages(isClustered ? kLines : kPlain, kMostChannels / 2, kMessageBytes, lanesOfMessages);
  // A gather or scatter has as many lanes as ranks, an all-to-all one for each direction and peer and one for the own part.
  const int32_t lanesOfAll = lanesOfMessages + 1;
  const int32_t mostMessages = isClustered ? settings.plainEvenBlocks / lanesOfAll : settings.plainBlocks / 2;
  settings.plainMessageChannels = ofMessages(kPlain, mostMessages, kMessageBytes, lanesOfMessages);
  settings.plainGatherBlocks = isClustered && ranks > 2 ? std::max(wanted, kGatherBlocks) : settings.plainBlocks;
  if (isClustered && ranks > 2) settings.plainStarChannels = ofMessages(kPlain, settings.plainGatherBlocks / ranks, kUserBytes, ranks);
  settings.plainUserChannels = ofMessages(kPlain, settings.plainBlocks / 2, isClustered ? kUserBytes : kMessageBytes, lanesOfMessages);
}

/// As CUDA has them by default: with fewer, a stream that waits would hold up the caller's own kernels.
constexpr int64_t kQueuesForStages = 8;
}  // namespace

Result<plan::Settings> readSettings(const Config& config, const tune::Platform* measured) {
  plan::Settings settings;
  const auto simd = readSimd();
  if (!simd) return tl::unexpected(simd.error());
  settings.simd = *simd;
  if (Status status = checkBounds(); !status.ok()) return tl::unexpected(std::move(status));
  std::tie(settings.channels, settings.maxChannels) =
      channelBounds(config, true);  // one lane group keeps a thread busy; more are for those who ask
  // A ring step holds what it received until it has sent: two slots at least.
  if (const int64_t slots = config::get<Param::TuttiSlots>(); slots > 0)
    settings.slots = static_cast<uint32_t>(std::clamp<int64_t>(slots, 2, 4096));
  if (const int64_t bytes = config::get<Param::Buffsize>(); bytes > 0)
    settings.sliceBytes = settings.farMessageBytes =
        static_cast<uint64_t>(std::clamp<int64_t>(bytes / settings.slots, 64, int64_t{1} << 30));
  if (const int64_t bytes = config::get<Param::TuttiSliceBytes>(); bytes > 0) {
    settings.sliceBytes = static_cast<uint64_t>(std::clamp<int64_t>(bytes, 64, int64_t{1} << 30));
    settings.messageBytes = settings.farMessageBytes = settings.sliceBytes;
    settings.lentBytes = settings.sliceBytes;
  }
  auto nccl = tune::Filter::parse("NCCL_ALGO", config::get<Param::Algo>(), tune::ncclAlgorithmNames());
  if (!nccl) return tl::unexpected(std::move(nccl).error());
  auto tutti = tune::Filter::parse("TUTTI_ALGO", config::get<Param::TuttiAlgo>(), tune::tuttiAlgorithmNames());
  if (!tutti) return tl::unexpected(std::move(tutti).error());
  settings.restrictions = {std::move(*nccl), std::move(*tutti), config::get<Param::PatEnable>() == 0};
  auto protocols = tune::Filter::parse("NCCL_PROTO", config::get<Param::Proto>(), tune::ncclProtocolNames());
  if (!protocols) return tl::unexpected(std::move(protocols).error());
  settings.protocols = std::move(*protocols);
  settings.deterministic = config::get<Param::TuttiDeterministic>() != 0;
  settings.nodeRanks = static_cast<int32_t>(std::clamp<int64_t>(config::get<Param::TuttiNodeRanks>(), 0, INT32_MAX));
  const bool isMeasured = measured != nullptr && measured->host.has_value();
  settings.machine = readMachine(isMeasured ? *measured->host : tune::hostMachine());
  if (isMeasured) settings.constants = measured->name;
  return settings;
}

Result<plan::DeviceSettings> readDeviceSettings(const plan::Settings& host, const Config& config, const Place& place,
                                                const exec::cuda::KernelUses& uses, const tune::Platform* measured) {
  plan::DeviceSettings settings;
  const bool sharesGpus = config::get<Param::TuttiMultiRankGpu>() != 0;
  for (size_t k = 0; k < settings.mostBlocks.size(); ++k) {
    int32_t blocks = uses.of[k].blocksPerMultiprocessor;
    if (static_cast<exec::cuda::KernelId>(k) == exec::cuda::KernelId::Window) blocks = std::min(blocks, uses.lone.blocksPerMultiprocessor);
    settings.mostBlocks[k] = blocks * place.multiprocessors / (sharesGpus ? place.ranks : 1);  // all of them may be on one
  }
  settings.mappedBlocks = uses.mapped.blocksPerMultiprocessor * place.multiprocessors / (sharesGpus ? place.ranks : 1);
  const int32_t cluster = sharesGpus ? 1 : config.clusterBlocks < 0 ? kClusterBlocks : config.clusterBlocks;
  settings.clusters = clusterLimits(cluster, uses);
  settings.mappedClusters = clusterLimits(cluster, uses.mapped);
  const auto [least, most] = channelBounds(config, false);
  settings.minChannels = least;
  settings.maxChannels = most;
  const int32_t fit = settings.mostBlocks[static_cast<size_t>(exec::cuda::KernelId::Simple)];
  const int32_t room = most == kMostChannels ? fit : std::min(most, fit);  // the most that there is is no wish for fewer
  settings.messageBlocks = room;
  setPipes(settings, place.ranks, place.ranks > 1 && place.ranks <= kMostClusteredRanks && place.streams && cluster >= kClusterBlocks);
  // Of lines: a slice of 4 MiB over all ranks, 9 MiB of memory. What cells are chosen for beside them takes a page at most.
  const bool areBesideLines = place.keepsLines && place.ranks > 2 && allowsLines(host.protocols);
  settings.shareBytes = {areBesideLines ? kCellShare : 2 * kCellShare, 32768,
                         kLineShares / static_cast<uint64_t>(std::max(2, place.ranks)) / 128 * 128};
  settings.windowChannels = {32, 16, 64};
  settings.hasWindows = place.ranks > 1 && place.ranks <= exec::cuda::kMaxLocalRanks;
  settings.hasLines = place.keepsLines;
  // The one that runs and the one that waits take no more than a large call: where the user bounds those, nothing is early.
  if (const int64_t early = config::get<Param::TuttiEarlyLaunch>();
      early != 0 && place.streams && !sharesGpus && most >= 2 * exec::cuda::kMostEarlyBlocks)
    settings.mostEarlyRanks = early == 1 ? INT32_MAX : mostEarlyRanks(place.multiprocessors);
  settings.hasBulk = config::get<Param::TuttiBulk>() != 0 && place.streams &&
                     settings.slotBytes[static_cast<size_t>(exec::cuda::Protocol::Simple)] <= exec::cuda::kMostStreamedBytes;
  settings.hasSimple = config::get<Param::TuttiBulk>() != 1 || !settings.hasBulk;
  const int64_t copyEngines = config::get<Param::TuttiCopyEngines>();
  if (copyEngines == 0)
    settings.copyEngines = plan::When::Never;
  else if (copyEngines == 1 || config.ctaPolicy == kZero)
    settings.copyEngines = plan::When::WherePossible;
  settings.movesLittle = copyEngines != 1;
  const int64_t streamStages = config::get<Param::TuttiStreamStages>();
  const int64_t queues = config::get<Param::CudaDeviceMaxConnections>();
  const bool areFew = streamStages != 1 && queues > 0 && queues < kQueuesForStages;
  // Streams of one GPU may hold each other up; a bus, words (transport/device/stages.h, 5).
  if (streamStages == 0 || areFew || sharesGpus || !place.keepsLines)
    settings.streamStages = plan::When::Never;
  else if (streamStages == 1)
    settings.streamStages = plan::When::WherePossible;
  const int64_t mapped = config::get<Param::TuttiMapped>();
  settings.mapped = mapped == 0 ? plan::When::Never : mapped == 1 ? plan::When::WherePossible : plan::When::WhereFaster;
  settings.lendsCaptured = config::get<Param::GraphRegister>();
  settings.lendsPlain = config::get<Param::LegacyCudaRegister>() != 0;
  settings.deterministic = host.deterministic;
  settings.restrictions = host.restrictions;
  settings.protocols = host.protocols;
  settings.tuner = host.tuner;
  if (measured != nullptr && measured->devices.has_value()) {
    settings.machine = *measured->devices;
    settings.constants = measured->name;
  }
  if (const int64_t price = config::get<Param::TuttiBlockPrice>(); price >= 0)
    settings.machine.blockPrice = static_cast<double>(price) / 1000;
  return settings;
}

std::shared_ptr<tune::Tuner> openTuner(tune::plugin::Libraries& libraries, const tune::plugin::Communicator& communicator) {
  std::string networks = config::get<Param::NetPlugin>();
  return libraries.open(config::get<Param::TunerPlugin>(),
                        networks.empty() ? std::vector<std::string>() : transport::plugin::pluginNames(networks), communicator);
}

int32_t readSpins() {
  if (const int64_t spins = config::get<Param::TuttiSpin>(); spins >= 0) return static_cast<int32_t>(std::min<int64_t>(spins, 1 << 20));
  return 300;
}

bool readCrowded(bool sharesCores) { return config::get<Param::TuttiSpin>() < 0 && sharesCores; }

bool wantsCopies() {
  const int64_t wish = config::get<Param::TuttiCma>();
  return wish < 0 ? transport::local::copiesPay() : wish != 0;
}

uint64_t readPastCacheBytes() {
  const int64_t bytes = config::get<Param::TuttiPastCacheBytes>();
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

uint64_t cacheShareOf(uint64_t cacheBytes, int32_t caches, int32_t hostRanks) {
  constexpr uint64_t kLeastShare = 2 << 20;
  constexpr uint64_t kUsualBytes = 32 << 20;
  const int32_t each = std::max(1, caches);
  const auto sharers = static_cast<uint64_t>(std::max(1, (hostRanks + each - 1) / each));
  return std::max(kLeastShare, (cacheBytes > 0 ? cacheBytes : kUsualBytes) / sharers);
}

int64_t readFlightEvents() { return config::get<Param::TuttiFlightRecorder>(); }

void readWaitLimits(exec::host::Turn& turn) {
  turn.checks = config::get<Param::TuttiChecks>() != "off";
  const int64_t silenceMs = config::get<Param::TuttiWarnMs>();
  turn.silence = std::chrono::milliseconds(std::clamp<int64_t>(silenceMs > 0 ? silenceMs : kLongestTimeoutMs, 1, kLongestTimeoutMs));
  const int64_t timeoutMs = std::clamp<int64_t>(config::get<Param::TuttiTimeoutMs>(), 0, kLongestTimeoutMs);
  turn.timeoutNs.store(timeoutMs * 1'000'000, std::memory_order_relaxed);
}

bool hasRootOrPeer(Collective collective) { return hasRoot(collective) || collective == Collective::SendRecv; }

Status checkArguments(const CallRequest& request, int32_t ranks) {
  if (hasRootOrPeer(request.collective) && (request.root < 0 || request.root >= ranks))
    return error(Code::InvalidArgument, "{} {} is out of range: the communicator has ranks 0 to {}",
                 request.collective == Collective::SendRecv ? "peer" : "root", request.root, ranks - 1);
  if (request.type < 0 || request.type >= kNumDataTypes)
    return error(Code::InvalidArgument, "datatype {} is out of range: 0 (ncclInt8) to {} (ncclFloat8e5m2)", request.type,
                 kNumDataTypes - 1);
  const uint64_t largest = (uint64_t{1} << 62) / sizeOf(static_cast<DataType>(request.type)) / static_cast<uint64_t>(ranks);
  if (request.count > largest)
    return error(Code::InvalidArgument, "count {} is out of range: at most {} elements of {} on {} ranks", request.count, largest,
                 name(static_cast<DataType>(request.type)), ranks);
  return {};
}

BufferBytes bufferBytes(const CallRequest& request, int32_t ranks) {
  const uint64_t one = request.count * sizeOf(static_cast<DataType>(request.type));
  const uint64_t all = one * static_cast<uint64_t>(ranks);
  switch (request.collective) {
    case Collective::AllGather:
    case Collective::Gather: return {one, all};
    case Collective::ReduceScatter:
    case Collective::Scatter: return {all, one};
    case Collective::AllToAll: return {all, all};
    default: return {one, one};
  }
}

Status checkBuffers(const CallRequest& request, Rank rank) {
  if (request.count == 0) return {};
  const bool isRoot = request.root == rank.value;
  bool reads = true;
  bool writes = true;
  switch (request.collective) {
    case Collective::Broadcast:
    case Collective::Scatter: reads = isRoot; break;
    case Collective::Reduce:
    case Collective::Gather: writes = isRoot; break;
    case Collective::SendRecv: reads = !request.receives, writes = request.receives; break;
    default: break;
  }
  if (reads && request.in == nullptr)
    return error(Code::InvalidArgument, "sendbuff is NULL, but rank {} sends {} elements", rank.value, request.count);
  if (writes && request.out == nullptr)
    return error(Code::InvalidArgument, "recvbuff is NULL, but rank {} receives {} elements", rank.value, request.count);
  return {};
}

}  // namespace tutti::comm
