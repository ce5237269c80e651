// A communicator of GPUs: what its calls and its life have that those of host devices have not.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "comm/communicator.h"
#include "comm/own_messages.h"
#include "comm/process.h"
#include "comm/settings.h"
#include "core/format.h"
#include "exec/host/signature.h"
#include "exec/host/verdict.h"
#include "exec/host/wait.h"
#include "machine/place.h"
#include "observe/log.h"
#include "plan/device_fit.h"

namespace tutti::comm {

Status Communicator::describe(Arrival& arrival) const {
  if (!onGpu_) {
    arrival.copies = wantsCopies() ? 1 : 0;
    return process().layouts.describe(-1, arrival);
  }
  process().layouts.begin();  // while the first GPU is opened
  const auto device = process().devices.at(device_);
  process().layouts.await();
  if (!device) return device.error();
  arrival.multiprocessors = (*device)->gpu->info().multiprocessors;
  const auto bulk = static_cast<size_t>(exec::cuda::KernelId::Bulk);
  arrival.streams = (*device)->kernels.of[bulk].blocksPerMultiprocessor > 0 ? 1 : 0;
  arrival.keepsLines = (*device)->keepsLines ? 1 : 0;
  return process().layouts.describe(device_, arrival);
}

Status Communicator::openGpu(const Outcome& outcome) {
  if (outcome.hub->spansHosts())
    return error(Code::InvalidUsage,
                 "the ranks' GPUs are on several hosts: this version of tutti connects GPUs of one host; "
                 "TUTTI_DEVICE=host computes on CPUs across hosts");
  TUTTI_TRY(plan::fitRanks(ranks_));  // now, on all ranks, and not in the middle of a call on some
  auto device = process().devices.at(device_);
  if (!device) return std::move(device).error();
  const auto settings = readDeviceSettings(settings_, config_, outcome.place, (*device)->kernels,
                                           outcome.place.constants == 0 ? nullptr : process().constants.get());
  if (!settings) return settings.error();
  if (rank_ == Rank(0)) process().constants.tellUse(settings->constants);
  const machine::ThreadNear near(nearGpu_);  // host memory that the GPU and its peers poll is placed by who touches it first
  auto gpu = DeviceRank::open(outcome.hub, rank_, layout_, *settings, turn_->checks, process().devices, **device);
  if (!gpu) return std::move(gpu).error();
  gpu_ = std::move(*gpu);
  setTimeout(timeoutMs());
  gpu_->tellWaitsOf(static_cast<uint64_t>(turn_->silence.count()));
  return {};
}

/// An abort may have come while a call was launching.
Communicator::~Communicator() { waitForGpu(); }

Poll Communicator::connectGpu(Status& cause) {
  if (gpu_ == nullptr) return Poll::Ready;
  const Poll poll = lookForRanks([this] { return gpu_->connect(); }, cause);
  if (poll == Poll::Failed && !hub().latch(rank_).tripped()) tellOfFailedInit(hub(), cause);
  if (poll == Poll::Pending && hub().latch(rank_).tripped()) {
    cause = hub().latch(rank_).status();
    return Poll::Failed;
  }
  return poll;
}

/// Fails for a rank that will not come because it has ended its communicator: seen to be gone, and looked for once more, since it may have
/// come, and done its part, before it went.
template <class Look>
Poll Communicator::lookForRanks(Look&& look, Status& cause) {
  Poll poll = look();
  while (poll == Poll::Pending) {
    const Rank missing = gpu_->missing();
    if (missing.value < 0 || !hub().lastCalls(missing)) return poll;
    poll = look();
    if (poll != Poll::Pending || gpu_->missing() != missing) continue;
    cause = hub().latch(rank_).tripped()
                ? hub().latch(rank_).status()
                : error(Code::RemoteError,
                        "rank {} has finalized, destroyed or aborted its communicator; rank {} waits for its part of a connection",
                        missing.value, rank_.value);
    return Poll::Failed;
  }
  if (poll == Poll::Failed) cause = gpu_->status();
  return poll;
}

/// A kernel that has given up is the end of the communicator, on all its ranks. No call is under way that could say why.
void Communicator::lookAtGpu() {
  if (gpu_ == nullptr) return;
  if (const auto words = gpu_->lastingWait()) observe::warn("{}", *words);
  if (turn_->lookForDead != nullptr && !hub().latch(rank_).tripped()) turn_->lookForDead(hub());
  if (!hub().latch(rank_).tripped()) {
    if (auto found = gpu_->look()) {
      conclude(hub(), found->rank, found->outcome, found->wait, found->waitedMs);
      hub().failAll(found->outcome.cause);
    } else if (auto circle = gpu_->lookForCircle()) {
      exec::host::conclude(hub(), rank_, {transport::local::Ending::Mismatch, circle->cause, std::move(circle->calls)}, {}, 0);
      hub().failAll(circle->cause);
    }
  }
  sayWhy();
}

uint64_t Communicator::postOnGpu(std::span<DeviceCall> calls) {
  uint64_t sequence = issuedCollectives_;
  for (DeviceCall& call : calls) {
    if (call.call.isMessage()) continue;
    call.call.sequence = sequence++;
    exec::host::Call posted = call.call;
    if (call.window != nullptr) posted = exec::host::onWindows(posted);
    hub().board(rank_).post(posted);
  }
  return sequence;
}

/// Kernels that wait compare what they are in (exec/cuda/verdict.h), but not those that are served at once, and none runs yet where a rank
/// waits for a connection that nobody else needs.
Status Communicator::compareOnGpu() {
  constexpr uint64_t kLatest = 8;
  if (!turn_->checks) return {};
  std::atomic_thread_fence(std::memory_order_seq_cst);  // between the own posts and the look at the others': one of two notices
  const uint64_t begun = hub().board(rank_).begun();
  for (uint64_t sequence = begun - std::min(begun, kLatest); sequence < begun; ++sequence) {
    const auto own = hub().board(rank_).find(sequence);
    if (!own) continue;
    for (int32_t r = 0; r < ranks_; ++r) {
      const auto theirs = hub().board(Rank(r)).find(sequence);
      if (theirs && !exec::host::agree(*own, *theirs)) return concludeMismatch(*own, Rank(r), *theirs);
    }
  }
  return {};
}

Status Communicator::concludeMismatch(const Call& own, Rank peer, const Call& theirs) {
  const exec::host::Outcome outcome{
      transport::local::Ending::Mismatch, exec::host::mismatch(rank_, own, peer, theirs), {{rank_, own}, {peer, theirs}}};
  conclude(hub(), rank_, outcome, {}, 0);
  return outcome.cause;
}

Status Communicator::compareWithOne(uint64_t end) {
  if (!turn_->checks || ranks_ == 1) return {};
  const Rank peer((rank_.value + 1 + compared_++ % (ranks_ - 1)) % ranks_);
  for (uint64_t back = 0; back < 2 && back < end; ++back) {
    const auto own = hub().board(rank_).find(end - 1 - back);
    const auto theirs = hub().board(peer).find(end - 1 - back);
    if (own && theirs && !exec::host::agree(*own, *theirs)) return concludeMismatch(*own, peer, *theirs);
  }
  return {};
}

/// Kernels of a communicator that has failed end soon, whatever they wait for; all others have ended.
void Communicator::waitForGpu() {
  if (gpu_ == nullptr || isGpuLost_) return;
  constexpr std::chrono::milliseconds kPatience(2000);
  auto waiter = exec::host::Waiter::forSetUp();
  for (const auto since = std::chrono::steady_clock::now(); !gpu_->isIdle(); waiter.pause()) {
    if (std::chrono::steady_clock::now() - since <= kPatience) continue;
    observe::warn("kernels of rank {} on device {} have not ended {} ms after their communicator was stopped", rank_.value, device_,
                  kPatience.count());
    isGpuLost_ = true;
    return;
  }
}

Result<DeviceCall> Communicator::prepareOnGpu(const CallRequest& request, driver::cuda::Stream stream) {
  ResolvedOp op;
  const auto shape = shapeOf(request, op);
  if (!shape) return tl::unexpected(shape.error());
  if (Status status = checkBuffers(request, rank()); !status.ok()) return tl::unexpected(std::move(status));
  DeviceCall call;
  call.comm = this;
  call.call = {request.collective, shape->type, op.code, shape->root.value, shape->count, 0, request.receives};
  call.in = request.in;
  call.out = request.out;
  call.factor = op.scaling.factor;
  call.factorSource = op.factorSource;
  call.stream = stream;
  call.event.collective = request.collective;
  call.event.type = static_cast<DataType>(request.type);
  call.event.op = op.op;
  call.event.count = request.count;
  call.event.peer = hasRootOrPeer(request.collective) ? request.root : -1;
  const bool isMessage = call.call.isMessage();
  if (isMessage ? request.root == rank_.value : request.count == 0) return call;
  auto plan = gpu_->planFor(*shape);
  if (!plan) return tl::unexpected(std::move(plan).error());
  call.plan = std::move(*plan);
  return call;
}

Status Communicator::chooseOnGpu(std::span<DeviceCall> calls) {
  for (DeviceCall& call : calls) TUTTI_TRY(gpu_->choose(call));
  return {};
}

Result<transport::device::UserWindows::Ref> Communicator::beginWindow(void* base, uint64_t bytes, bool isSymmetric) {
  using transport::device::WindowKind;
  if (Status status = usable(); !status.ok()) return tl::unexpected(std::move(status));
  const WindowKind kind = isSymmetric ? WindowKind::Symmetric : WindowKind::Plain;
  return gpu_->windows().begin(reinterpret_cast<driver::cuda::DevicePtr>(base), Bytes(bytes), kind);
}

Poll Communicator::settleWindows(Status& cause) {
  return lookWhilePending(lookForRanks([this] { return gpu_->settleWindows(); }, cause), cause);
}

Status Communicator::endWindow(const void* window) {
  auto found = gpu_ == nullptr ? nullptr : gpu_->windows().find(window);
  if (found == nullptr) return error(Code::InvalidArgument, "win {} is no window of this communicator", window);
  gpu_->endWindow(std::move(found));
  return {};
}

namespace {

bool isToSelf(const DeviceCall& call) { return call.plan == nullptr && call.call.isMessage(); }

}  // namespace

Status Communicator::pairSelfMessages(std::vector<DeviceCall>& calls) {
  auto pairs = pairOwnMessages(rank_, std::span(calls), isToSelf);
  if (!pairs) return std::move(pairs).error();
  for (const auto& [send, receive] : *pairs) {
    send->out = receive->out;
    if (send->call.count == 0) continue;
    plan::Shape shape;
    shape.collective = Collective::SendRecv;
    shape.type = DataType::I8;
    shape.count = send->call.count;
    shape.root = rank_;
    auto plan = gpu_->planFor(shape);
    if (!plan) return std::move(plan).error();
    send->plan = std::move(*plan);
  }
  return {};
}

Status Communicator::offerOnGpu(std::span<DeviceCall> calls) {
  if (Status status = compareWithOne(postOnGpu(calls)); !status.ok()) {
    stop(status);
    return status;
  }
  Status status = gpu_->offer(calls);
  if (!status.ok()) stop(status);  // also those whose kernels wait for a message that comes otherwise
  return status;
}

Poll Communicator::settleOnGpu(std::span<DeviceCall> calls, Status& cause) {
  return lookWhilePending(lookForRanks([&] { return gpu_->settle(calls); }, cause), cause);
}

/// What this rank's kernels and its peers say meanwhile.
Poll Communicator::lookWhilePending(Poll poll, Status& cause) {
  if (poll != Poll::Pending) return poll;
  lookAtGpu();
  cause = hub().latch(rank_).tripped() ? hub().latch(rank_).status() : compareOnGpu();
  return cause.ok() ? Poll::Pending : Poll::Failed;
}

Status Communicator::launchOnGpu(std::span<DeviceCall> calls) {
  for (DeviceCall& call : calls) {
    if (!call.call.isMessage()) call.event.sequence = call.call.sequence = issuedCollectives_++;
    turn_->record(call.event, observe::FlightKind::Enqueued);
  }
  Status status = gpu_->launch(calls);
  // What was not launched here is waited for elsewhere.
  if (!status.ok()) stop(status);
  return status;
}

}  // namespace tutti::comm
