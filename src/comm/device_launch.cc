// How a group's calls become launches, and launches follow one another.
#include <algorithm>
#include <mutex>
#include <optional>

#include "comm/device_rank.h"
#include "exec/cuda/loops.h"

namespace tutti::comm {

using driver::cuda::ContextScope;
using driver::cuda::Stream;
using exec::cuda::KernelId;
using exec::cuda::Launch;
using exec::cuda::Work;

namespace {

/// Where messages come behind collectives (DeviceRank::order()).
constexpr int32_t kLentMessages = 1;
constexpr int32_t kFirstMessages = 2;

/// What two blocks of a launch that run the same works must have in common, but for the loop type (Batch).
bool mayShareLaunch(const DeviceCall& a, const DeviceCall& b) {
  const plan::DevicePlan& x = *a.plan->plan;
  const plan::DevicePlan& y = *b.plan->plan;
  if (x.kernel == KernelId::LineWindow || x.kernel != y.kernel || a.call.isMessage() != b.call.isMessage()) return false;
  if (a.call.isMessage()) return true;
  return x.work.lanes == y.work.lanes &&
         (x.work.lanes == 1 || (a.plan->program.words == b.plan->program.words && a.plan->program.shape == b.plan->program.shape));
}

}  // namespace

DeviceRank::Batch::Blocks* DeviceRank::Batch::find(const DeviceCall& call) {
  const auto at =
      std::ranges::find_if(blocksOf, [&](const Blocks& b) { return b.peer == call.call.root && b.receives == call.call.receives; });
  return at == blocksOf.end() ? nullptr : &*at;
}

void DeviceRank::Batch::clear() {
  calls.clear();
  firstBlock.clear();
  blocksOf.clear();
  taken = 0;
  loops.reset();
}

/// Collectives as they were issued, then messages. Launches come one after the other, so two ranks must come to the message between them in
/// the same launch, or the launches before it must end without it: messages go by kernel, which both sides choose alike, then by how far
/// they go, then by their number of the pair. At each such place a rank has one message to send and one to receive at most; whoever is
/// at the first place where anything is missing has both in its launch. Those that streams carry out come first.
void DeviceRank::order(std::span<DeviceCall> calls, Scratch& scratch) const {
  scratch.ordered.clear();
  scratch.counts.clear();
  for (DeviceCall& call : calls) {
    if (call.plan == nullptr) continue;
    Turn turn{&call, {}};
    if (call.call.isMessage() && call.window != nullptr) {
      turn.place = {kLentMessages, 0, 0};
    } else if (call.call.isMessage()) {
      const int32_t ahead = call.call.receives ? rank_.value - call.call.root : call.call.root - rank_.value;
      const Scratch::Way way{call.plan->plan->kernel, (ahead + ranks_) % ranks_, call.call.receives};
      auto count = std::ranges::find(scratch.counts, way, &std::pair<Scratch::Way, int32_t>::first);
      if (count == scratch.counts.end()) count = scratch.counts.insert(count, {way, 0});
      turn.place = {kFirstMessages + static_cast<int32_t>(way.kernel), way.distance, count->second++};
    }
    scratch.ordered.push_back(turn);
  }
  std::sort(scratch.ordered.begin(), scratch.ordered.end(), [](const Turn& a, const Turn& b) {
    return a.place != b.place ? a.place < b.place : a.call < b.call;  // as they were issued
  });
}

/// Works of one communicator never run side by side: they use the same pipes. A handle is not enough to tell that the stream is that of the
/// launch before: it may be another one's by now, and the default stream of a thread has the same in all threads. Where it is the same
/// stream, the wait costs a look.
Status DeviceRank::enter(std::span<const Stream> streams, const driver::cuda::CaptureInfo& capture) {
  driver::cuda::Driver& driver = devices_.driver();
  const Stream first = streams.front();
  for (const Stream other : streams.subspan(1)) {
    TUTTI_TRY(driver.record(joined_.get(), other));
    TUTTI_TRY(driver.wait(first, joined_.get()));
  }
  if (capture.isActive()) return captures_.enter(first, capture, mixesGraphs_ ? ended_.get() : nullptr);
  if (hasLaunched_.load(std::memory_order_relaxed)) TUTTI_TRY(driver.wait(first, ended_.get()));
  latest_.store(first, std::memory_order_relaxed);
  isUnmarked_.store(true, std::memory_order_release);  // pairs with isIdle()
  return {};
}

Status DeviceRank::leave(std::span<const Stream> streams, const driver::cuda::CaptureInfo& capture) {
  driver::cuda::Driver& driver = devices_.driver();
  const Stream first = streams.front();
  if (capture.isActive()) {
    TUTTI_TRY(captures_.leave(first, mixesGraphs_ ? ended_.get() : nullptr));
    if (mixesGraphs_) hasLaunched_.store(true, std::memory_order_release);  // pairs with isIdle(): the graph records the event
  } else {
    TUTTI_TRY(driver.record(ended_.get(), first));
    isUnmarked_.store(false, std::memory_order_relaxed);
    hasLaunched_.store(true, std::memory_order_release);  // pairs with isIdle()
  }
  if (streams.size() > 1) TUTTI_TRY(driver.record(joined_.get(), first));
  for (const Stream other : streams.subspan(1)) TUTTI_TRY(driver.wait(other, joined_.get()));
  return {};
}

Status DeviceRank::enterOrder(Stream stream, const driver::cuda::CaptureInfo& capture) {
  LaunchOrder* const order = device_.order.get();
  if (order == nullptr) return {};
  if (capture.isActive()) return order->captures.enter(stream, capture, mixesGraphs_ ? order->ended.get() : nullptr);
  return devices_.driver().wait(stream, order->ended.get());
}

Status DeviceRank::leaveOrder(Stream stream, const driver::cuda::CaptureInfo& capture) {
  LaunchOrder* const order = device_.order.get();
  if (order == nullptr) return {};
  if (capture.isActive()) return order->captures.leave(stream, mixesGraphs_ ? order->ended.get() : nullptr);
  return devices_.driver().record(order->ended.get(), stream);
}

Status DeviceRank::checkStreams(std::span<const DeviceCall> calls) {
  if (std::ranges::all_of(calls, [&](const DeviceCall& call) { return call.stream == calls.front().stream; })) return {};
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return scope.error();
  std::optional<uint64_t> id;  // of the capture; 0: none
  for (const DeviceCall& call : calls) {
    const auto capture = devices_.driver().captureInfo(call.stream);
    if (!capture) return capture.error();
    const uint64_t own = capture->isActive() ? capture->id : 0;
    if (id && *id != own)
      return error(
          Code::InvalidUsage,
          "calls of a communicator in one group, on streams of which some are captured into a graph and others not, or into another one");
    id = own;
  }
  return {};
}

Result<bool> DeviceRank::isCaptured(std::span<const DeviceCall> calls) const {
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return tl::unexpected(scope.error());
  for (const DeviceCall& call : calls) {
    const auto capture = devices_.driver().captureInfo(call.stream);
    if (!capture) return tl::unexpected(capture.error());
    if (capture->isActive()) return true;
  }
  return false;
}

/// Runs `launchThem` behind all work of the communicator and of `streams`, and before what comes next on any of them.
template <class LaunchThem>
Status DeviceRank::inTurn(std::span<DeviceCall> calls, std::span<const Stream> streams, LaunchThem&& launchThem) {
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return scope.error();
  const auto capture = devices_.driver().captureInfo(streams.front());
  if (!capture) return capture.error();
  isCaptured_ = capture->isActive();
  if (!isCaptured_ && std::ranges::any_of(calls, [](const DeviceCall& call) { return call.loan.first != nullptr; }))
    return error(Code::InvalidUsage, "the capture of a call ended while it waited for the peers to capture theirs");
  dropLoans(false);
  TUTTI_TRY(say(calls, isCaptured_));
  std::unique_lock<std::mutex> ordered;
  if (device_.order != nullptr) ordered = std::unique_lock(device_.order->mutex);
  TUTTI_TRY(enter(streams, *capture));
  if (isCaptured_) keepLoans(calls, *capture);
  TUTTI_TRY(enterOrder(streams.front(), *capture));
  TUTTI_TRY(launchThem());
  TUTTI_TRY(leaveOrder(streams.front(), *capture));
  TUTTI_TRY(leave(streams, *capture));
  if (isCaptured_) dropLoans(true);
  return {};
}

Status DeviceRank::launch(std::span<DeviceCall> calls) {
  if (calls.size() == 1) {  // what most launches are
    DeviceCall* const alone = &calls.front();
    constexpr uint16_t kFirst = 0;
    if (alone->plan == nullptr) return {};
    if (alone->window != nullptr) return inTurn(calls, {&alone->stream, 1}, [&] { return launchOnWindows({&alone, 1}, alone->stream); });
    const auto launchAlone = [&] { return launchWorks({&alone, 1}, {&kFirst, 1}, alone->plan->plan->blocks(), alone->stream); };
    return inTurn(calls, {&alone->stream, 1}, launchAlone);
  }
  order(calls, scratch_);
  if (scratch_.ordered.empty()) return {};
  scratch_.streams.clear();
  for (const DeviceCall& call : calls)
    if (std::ranges::find(scratch_.streams, call.stream) == scratch_.streams.end()) scratch_.streams.push_back(call.stream);
  return inTurn(calls, scratch_.streams, [&] { return launchBatches(scratch_.ordered, scratch_.streams.front()); });
}

/// As few launches as can be. Messages that streams carry out go beside those of kernels: neither may have to wait for the other.
Status DeviceRank::launchBatches(const std::vector<Turn>& ordered, Stream stream) {
  Batch& batch = scratch_.batch;
  batch.clear();
  std::optional<DeviceWindows::Beside> beside;
  for (size_t i = 0; i < ordered.size(); ++i) {
    const bool isOnWindows = ordered[i].call->window != nullptr;
    if (!batch.calls.empty() && (isOnWindows || endsBefore(batch, ordered, i))) {
      TUTTI_TRY(launchBatch(batch, stream));
      batch.clear();
    }
    if (!isOnWindows) {
      add(batch, *ordered[i].call);
      continue;
    }
    std::vector<DeviceCall*>& together = scratch_.together;
    together.assign(1, ordered[i].call);
    const auto goesWithNext = [&] { return i + 1 < ordered.size() && ordered[i + 1].place == ordered[i].place; };
    for (; ordered[i].call->call.isMessage() && goesWithNext(); ++i) together.push_back(ordered[i + 1].call);
    if (i + 1 == ordered.size() || !together.front()->call.isMessage()) {
      TUTTI_TRY(launchOnWindows(together, stream));
      continue;
    }
    auto forked = windows_->fork(stream);
    if (!forked) return std::move(forked).error();
    beside = *forked;
    TUTTI_TRY(launchOnWindows(together, beside->stream));
  }
  if (!batch.calls.empty()) TUTTI_TRY(launchBatch(batch, stream));
  return beside ? windows_->join(*beside, stream) : Status();
}

/// Messages of one peer and direction follow one another on blocks of their own; collectives all begin at the first block.
Status DeviceRank::launchBatch(Batch& batch, Stream stream) {
  int32_t blocks = 0;
  for (Batch::Blocks& own : batch.blocksOf) {
    own.first = blocks;
    blocks += own.most;
  }
  for (const DeviceCall* call : batch.calls) {
    batch.firstBlock.push_back(call->call.isMessage() ? static_cast<uint16_t>(batch.find(*call)->first) : 0);
    blocks = std::max(blocks, batch.firstBlock.back() + call->plan->plan->blocks());
  }
  return launchWorks(batch.calls, batch.firstBlock, blocks, stream);
}

/// One collective, or messages that go together.
Status DeviceRank::launchOnWindows(std::span<DeviceCall* const> calls, Stream stream) {
  std::vector<WindowCall>& all = scratch_.onWindows;
  all.clear();
  for (const DeviceCall* call : calls) {
    const Work& work = call->plan->plan->work;
    WindowCall& made = all.emplace_back(WindowCall{call->call, call->in, call->out, call->window, call->inWindow, work.op, work.scaling});
    if (work.scaling.hasFactor) made.scaling.factor = call->factor;  // of an average: a pre-multiplied sum does not go this way
    endpoint_->page().launches(rank_.value).write(windows_->nameOf(made), exec::host::onWindows(call->call), isCaptured_);
  }
  Status status = calls.front()->call.isMessage() ? windows_->launchMessages(all, stream) : windows_->launch(all.front(), stream);
  all.clear();  // the windows go with their graphs
  return status;
}

/// All blocks that messages of one peer and direction may use.
int32_t DeviceRank::messageBlocks(const DeviceCall& call) const {
  return settings_.pipeChannels(exec::cuda::kernelInfo(call.plan->plan->kernel).protocol, algo::kUserPort);
}

/// Whether the next call needs a launch of its own. What is at one place is not torn apart.
bool DeviceRank::endsBefore(Batch& batch, const std::vector<Turn>& ordered, size_t next) const {
  const DeviceCall& call = *ordered[next].call;
  if (!mayShareLaunch(*batch.calls.front(), call)) return true;
  if (reduces(call.call.collective) && batch.loops && *batch.loops != exec::cuda::loopType(call.plan->plan->work.type)) return true;
  if (!call.call.isMessage()) return batch.calls.size() == exec::cuda::kInlineWorks;
  if (ordered[next].place == ordered[next - 1].place) return false;
  const bool hasPartner = next + 1 < ordered.size() && ordered[next + 1].place == ordered[next].place;
  const auto blocksFor = [&](const DeviceCall& one) { return batch.find(one) != nullptr ? 0 : messageBlocks(one); };
  const int32_t wanted = blocksFor(call) + (hasPartner ? blocksFor(*ordered[next + 1].call) : 0);
  const int32_t most = std::min(settings_.mostBlocks[static_cast<size_t>(call.plan->plan->kernel)], settings_.messageBlocks);
  return batch.calls.size() + 2 > exec::cuda::kInlineWorks || (wanted > 0 && batch.taken + wanted > most);
}

void DeviceRank::add(Batch& batch, DeviceCall& call) const {
  if (call.call.isMessage()) {
    Batch::Blocks* own = batch.find(call);
    if (own == nullptr) {
      own = &batch.blocksOf.emplace_back(Batch::Blocks{call.call.root, call.call.receives});
      batch.taken += messageBlocks(call);
    }
    own->most = std::max(own->most, call.plan->plan->blocks());
  }
  if (reduces(call.call.collective)) batch.loops = exec::cuda::loopType(call.plan->plan->work.type);
  batch.calls.push_back(&call);
}

uint64_t DeviceRank::nameLaunch(std::span<DeviceCall* const> calls) {
  std::array<const Call*, exec::cuda::kInlineWorks> made;
  for (size_t i = 0; i < calls.size(); ++i) made[i] = &calls[i]->call;
  const uint64_t signature =
      made[0]->isMessage() ? signatureOfMessages(messageLaunches_++) : signatureOf(std::span(made).first(calls.size()));
  for (size_t i = 0; i < calls.size(); ++i) endpoint_->page().launches(rank_.value).write(signature, *made[i], isCaptured_);
  return signature;
}

/// Calls that share a launch, each with the first of its blocks.
Status DeviceRank::launchWorks(std::span<DeviceCall* const> calls, std::span<const uint16_t> firstBlock, int32_t blocks, Stream stream) {
  const plan::DevicePlan& front = *calls.front()->plan->plan;
  Launch& launch = scratch_.launch;
  launch.comm = views_[static_cast<int>(exec::cuda::kernelInfo(front.kernel).protocol)];
  launch.type = front.work.type;
  for (size_t i = 0; i < calls.size(); ++i) {
    const DeviceCall& call = *calls[i];
    const plan::DevicePlan& plan = *call.plan->plan;
    Work& work = launch.work[i];
    work = plan.work;
    work.program = call.plan->program;
    work.in = static_cast<const std::byte*>(call.in);
    work.out = static_cast<std::byte*>(call.out);
    work.firstBlock = firstBlock[i];
    if (work.scaling.hasFactor) {
      work.scaling.factor = call.factor;
      work.factorSource = call.factorSource;
    }
    if (reduces(call.call.collective)) launch.type = work.type;
  }
  launch.works = static_cast<int32_t>(calls.size());
  if (calls.front()->call.isMessage()) launch.comm.wait.board = nullptr;  // ranks do not count each other's messages
  launch.comm.wait.signature = nameLaunch(calls);  // the device counts: a graph is launched as often as its owner likes
  exec::cuda::LaunchOptions options;
  options.blocks = blocks;
  options.mayOverlap = device_.ranks.load(std::memory_order_relaxed) <= settings_.mostEarlyRanks;
  const int32_t most = calls.front()->call.isMessage() ? settings_.messageBlocks : settings_.maxChannels;
  options.grid = exec::cuda::makeGrid(blocks, most, settings_.clusters[static_cast<size_t>(front.kernel)]);
  return devices_.executor().launch(front.kernel, launch, options, stream);
}

}  // namespace tutti::comm
