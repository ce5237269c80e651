#include "transport/device/survey.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/format.h"
#include "observe/log.h"

namespace tutti::transport::device {

using driver::cuda::Device;
using driver::cuda::DevicePtr;
using exec::cuda::ProbeEnd;
using exec::cuda::ProbeFault;
using exec::cuda::ProbePair;
using exec::cuda::ProbeReport;
using exec::cuda::ProbeSlot;
using observe::Subsys;

namespace {

/// Each question is some calls of the driver, which other threads want too; a report is seen without it.
constexpr std::chrono::milliseconds kAskEvery{1};

}  // namespace

Survey::Survey(const Surroundings& around, const Page& page, const ProcessKey& self, Rank rank, DevicePtr kernelPage, DevicePtr control,
               const ControlLayout& layout)
    : around_(around),
      page_(page),
      self_(self),
      rank_(rank),
      kernelPage_(kernelPage),
      control_(control),
      layout_(layout),
      paths_(static_cast<size_t>(page.ranks())) {}

Survey::~Survey() {
  if (!isProbing_) return;
  const auto scope = driver::cuda::SetUpScope::enter(around_.gpu->context());
  if (!scope) around_.gpu->driver().tellLost(scope.error());  // the kernel is waited for all the same: it uses what goes next
  if (const Status ended = around_.gpu->driver().synchronize(around_.stream); !ended.ok()) around_.gpu->driver().tellLost(ended);
}

Poll Survey::fail(Status status) {
  status_ = std::move(status);
  return Poll::Failed;
}

Poll Survey::awaitRank(int32_t rank) {
  missing_ = Rank(rank);
  return Poll::Pending;
}

PairBook::Gpu Survey::gpuOf(int32_t rank) const {
  PairBook::Gpu gpu;
  std::memcpy(gpu.data(), page_.rank(rank).gpu, gpu.size());
  return gpu;
}

/// "rank 1 (GPU 0000:1c:00.0)".
std::string Survey::describe(int32_t rank) const {
  const RankCard& card = page_.rank(rank);
  return format("rank {} (GPU {})", rank, std::string_view(card.busId, strnlen(card.busId, sizeof card.busId)));
}

Poll Survey::poll() {
  static constexpr Poll (Survey::*kSteps[])() = {&Survey::form,         &Survey::hear,    &Survey::launch,
                                                 &Survey::awaitReports, &Survey::compare, &Survey::conclude};
  missing_ = Rank(-1);
  for (; step_ < std::size(kSteps); ++step_) {
    const auto step = kSteps[step_];
    if (const Poll poll = (this->*step)(); poll != Poll::Ready) return poll;
  }
  return Poll::Ready;
}

bool Survey::isStill() const {
  if (!askedAt_ || missing_.value < 0 || std::chrono::steady_clock::now() - *askedAt_ > kAskEvery) return false;
  const std::atomic_ref<ProbeEnd> end(page_.desk(rank_.value, missing_.value).report.end);
  return end.load(std::memory_order_acquire) == ProbeEnd::None;  // pairs with the kernel's fence
}

Poll Survey::form() {
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    if (peer == rank_.value) continue;
    if (Status status = formOne(peer); !status.ok()) return fail(std::move(status));
    page_.pair(rank_.value, peer).opinion.store(paths_[static_cast<size_t>(peer)].opinion, std::memory_order_release);  // pairs with hear()
  }
  return Poll::Ready;
}

/// What settings, driver and distance say against a pair; empty: nothing.
Result<std::string> Survey::objection(int32_t peer, std::optional<Device> seenAs) const {
  if (around_.rules.p2pDisabled) return std::string("NCCL_P2P_DISABLE=1");
  if (seenAs) {
    driver::cuda::Driver& driver = around_.gpu->driver();
    const Device own = around_.gpu->device();
    for (const auto& [from, to] : {std::pair(own, *seenAs), std::pair(*seenAs, own)}) {
      const auto can = driver.canAccessPeer(from, to);
      if (!can) return tl::unexpected(can.error());
      if (!*can) return format("the driver gives device {} no access to device {}", from, to);
    }
    if (around_.rules.isNear) {
      const auto near = around_.rules.isNear(own, *seenAs);
      if (!near) return tl::unexpected(near.error());
      if (!*near) return std::string("they are farther apart than NCCL_P2P_LEVEL allows");
    }
  }
  if (around_.pairs->find(gpuOf(rank_.value), gpuOf(peer)) == false) return std::string("the path between them has failed before");
  return std::string();
}

Status Survey::formOne(int32_t peer) {
  Path& path = paths_[static_cast<size_t>(peer)];
  const RankCard& card = page_.rank(peer);
  const PairBook::Gpu own = gpuOf(rank_.value);
  if (gpuOf(peer) == own) return {};
  std::optional<Device> seenAs = card.control.segment.device;
  if (card.control.segment.process != self_) {
    const auto found = around_.pairs->deviceOf(around_.gpu->driver(), gpuOf(peer));
    if (!found) return found.error();
    seenAs = *found;
  }
  auto why = objection(peer, seenAs);
  if (!why) return std::move(why).error();
  path.why = std::move(*why);
  if (path.why.empty()) {
    auto reached = around_.segments->reach(*around_.gpu, card.control.segment);
    if (!reached && seenAs) return std::move(reached).error().at(format("memory of rank {} for rank {}", peer, rank_.value));
    // Of a device that this process does not see, the driver has not said whether it can be reached.
    if (reached) {
      path.control = std::move(*reached);
    } else {
      path.why = reached.error().text();
    }
  }
  if (!path.why.empty()) {
    path.opinion = Opinion::Host;
  } else if (around_.rules.probes && !around_.pairs->find(own, gpuOf(peer))) {
    path.opinion = Opinion::Probe;
  }
  return {};
}

Poll Survey::hear() {
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    if (peer == rank_.value) continue;
    const Opinion theirs = page_.pair(peer, rank_.value).opinion.load(std::memory_order_acquire);  // pairs with form()
    if (theirs == Opinion::None) return awaitRank(peer);
    Path& path = paths_[static_cast<size_t>(peer)];
    path.isDirect = path.opinion != Opinion::Host && theirs != Opinion::Host;
    path.isProbed = path.isDirect && (path.opinion == Opinion::Probe || theirs == Opinion::Probe);
    if (!path.isDirect && path.why.empty()) path.why = format("rank {} says so", peer);
  }
  page_.rank(rank_.value).surveyed.store(CardState::Written, std::memory_order_release);  // pairs with launch()
  return Poll::Ready;
}

/// Not before all ranks have come: those who did would wait in their kernels.
Poll Survey::launch() {
  exec::cuda::ProbeLaunch launch;
  launch.abort = reinterpret_cast<const uint32_t*>(kernelPage_ + offsetof(KernelPage, abort));
  launch.meetNs = static_cast<uint64_t>(std::chrono::nanoseconds(around_.rules.meeting).count());
  launch.timeoutNs = static_cast<uint64_t>(std::chrono::nanoseconds(around_.rules.patience).count());
  const bool probes = std::ranges::any_of(paths_, [](const Path& path) { return path.isProbed; });
  for (int32_t peer = 0; probes && peer < page_.ranks(); ++peer)
    if (page_.rank(peer).surveyed.load(std::memory_order_acquire) == CardState::Empty) return awaitRank(peer);  // pairs with hear()
  const auto flush = [&]() -> Status {
    if (launch.pairs == 0) return {};
    isProbing_ = true;
    TUTTI_TRY(around_.executor->probe(launch, around_.stream));
    launch.pairs = 0;
    return {};
  };
  const auto seen = [this](const void* onPage) { return kernelPage_ + page_.offsetOf(onPage); };
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    const Path& path = paths_[static_cast<size_t>(peer)];
    if (!path.isProbed) continue;
    ProbePair& pair = launch.pair[launch.pairs++];
    pair.rank = rank_.value;
    pair.peer = peer;
    pair.own = reinterpret_cast<ProbeSlot*>(control_ + layout_.probes) + peer;
    pair.theirs = reinterpret_cast<ProbeSlot*>(path.control.address() + page_.rank(peer).control.offset + layout_.probes) + rank_.value;
    pair.desk = reinterpret_cast<exec::cuda::ProbeDesk*>(seen(&page_.desk(rank_.value, peer)));
    pair.there = reinterpret_cast<const uint32_t*>(seen(&page_.desk(peer, rank_.value).here));
    pair.spoils = around_.rules.spoilt == std::pair(rank_.value, peer);
    if (launch.pairs < exec::cuda::kMostProbes) continue;
    if (Status status = flush(); !status.ok()) return fail(std::move(status));
  }
  if (Status status = flush(); !status.ok()) return fail(std::move(status));
  return Poll::Ready;
}

Poll Survey::awaitReports() {
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    if (!paths_[static_cast<size_t>(peer)].isProbed) continue;
    std::atomic_ref<ProbeEnd> end(page_.desk(rank_.value, peer).report.end);
    if (end.load(std::memory_order_acquire) == ProbeEnd::None) {  // pairs with the kernel's fence
      const auto isIdle = around_.gpu->driver().isIdle(around_.stream);
      if (!isIdle) return fail(isIdle.error());
      if (!*isIdle) {
        askedAt_ = std::chrono::steady_clock::now();
        return awaitRank(peer);
      }
      if (end.load(std::memory_order_acquire) == ProbeEnd::None)
        return fail(error(Code::UnhandledCudaError, "the probe of the path from {} to {} has ended without a report", describe(rank_.value),
                          describe(peer)));
    }
    page_.pair(rank_.value, peer).outcome.store(end.load(std::memory_order_acquire), std::memory_order_release);  // pairs with compare()
  }
  return Poll::Ready;
}

Poll Survey::compare() {
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    if (!paths_[static_cast<size_t>(peer)].isProbed) continue;
    const ProbeEnd theirs = page_.pair(peer, rank_.value).outcome.load(std::memory_order_acquire);  // pairs with awaitReports()
    if (theirs == ProbeEnd::None) return awaitRank(peer);
    settle(peer, theirs);
  }
  return Poll::Ready;
}

/// Both ends come to the same, whichever looks first.
void Survey::settle(int32_t peer, ProbeEnd theirs) {
  Path& path = paths_[static_cast<size_t>(peer)];
  const ProbeEnd ours = page_.pair(rank_.value, peer).outcome.load(std::memory_order_relaxed);  // this rank's own
  path.isProbed = false;
  if (ours == ProbeEnd::Unmet || theirs == ProbeEnd::Unmet) {
    observe::info(Subsys::P2p, "the path between {} and {} could not be tried: one side came more than {} ms late; it is used all the same",
                  describe(rank_.value), describe(peer), around_.rules.meeting.count());
    return;
  }
  path.isDirect = ours == ProbeEnd::Passed && theirs == ProbeEnd::Passed;
  around_.pairs->note(gpuOf(rank_.value), gpuOf(peer), path.isDirect);
  if (path.isDirect) return;
  path.why = "the path between them fails";
  if (rank_.value < peer) warn(peer);
}

/// What was seen first: wrong data before silence, which may be what the other side made of it.
void Survey::warn(int32_t peer) const {
  const auto describeFault = [this](int32_t rank, int32_t other) {
    const ProbeReport& report = page_.desk(rank, other).report;
    switch (report.fault) {
      case ProbeFault::NoFlag:
        return format("rank {} saw no flag of rank {} within {} ms in round {}", rank, other, around_.rules.patience.count(), report.round);
      case ProbeFault::WrongData:
        return format("rank {} saw {:#x} where rank {} wrote {:#x} (round {}, word {})", rank, report.seen, other, report.expected,
                      report.round, report.word);
      default:
        return format("rank {} reads back {:#x} of rank {}'s memory where it wrote {:#x} (word {})", rank, report.seen, other,
                      report.expected, report.word);
    }
  };
  const auto weight = [this](int32_t rank, int32_t other) {
    const ProbeReport& report = page_.desk(rank, other).report;
    if (report.end != ProbeEnd::Failed) return std::pair(2, uint64_t{0});
    return std::pair(report.fault == ProbeFault::NoFlag ? 1 : 0, report.round);
  };
  const bool isOurs = weight(rank_.value, peer) <= weight(peer, rank_.value);
  observe::warn(
      "{} and {} cannot use each other's memory though the driver allows it: {}. They exchange data through host memory, which is slower; "
      "TUTTI_P2P_PROBE=0 trusts the driver",
      describe(rank_.value), describe(peer), isOurs ? describeFault(rank_.value, peer) : describeFault(peer, rank_.value));
}

/// All reports have come: kernels that are still there end at once. What uses or frees the memory next must not meet them.
Poll Survey::conclude() {
  if (std::exchange(isProbing_, false))
    if (Status ended = around_.gpu->driver().synchronize(around_.stream); !ended.ok()) return fail(std::move(ended));
  for (int32_t peer = 0; peer < page_.ranks(); ++peer) {
    const Path& path = paths_[static_cast<size_t>(peer)];
    if (path.isDirect) continue;
    if (around_.rules.shmDisabled)
      return fail(error(Code::InvalidUsage,
                        "{} and {} have no way to exchange data: not through each other's memory ({}), and not through the host's "
                        "(NCCL_SHM_DISABLE=1)",
                        describe(std::min(rank_.value, peer)), describe(std::max(rank_.value, peer)), path.why));
    if (rank_.value < peer)
      observe::info(Subsys::Shm, "{} and {} exchange data through host memory: {}", describe(rank_.value), describe(peer), path.why);
  }
  return Poll::Ready;
}

}  // namespace tutti::transport::device
