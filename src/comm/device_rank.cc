#include "comm/device_rank.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "core/format.h"
#include "exec/cuda/loops.h"
#include "observe/log.h"

namespace tutti::comm {

using driver::cuda::ContextScope;
using driver::cuda::Stream;
using exec::cuda::KernelId;
using exec::cuda::Launch;
using exec::cuda::Work;
using transport::device::EndpointConfig;

namespace {

EndpointConfig configOf(const plan::DeviceSettings& settings, bool checks) {
  EndpointConfig config;
  for (int32_t p = 0; p < transport::device::kProtocols; ++p) {
    const auto at = static_cast<size_t>(p);
    config.slots[p] = settings.slots[at];
    config.slotBytes[p] = settings.slotBytes[at];
    for (int32_t port = 0; port < transport::device::kPorts; ++port) {
      int32_t& channels = config.pipeChannels[p][port];
      channels = settings.pipeChannels(static_cast<exec::cuda::Protocol>(p), static_cast<uint8_t>(port));
      config.channels = std::max(config.channels, channels);
    }
  }
  for (int32_t w = 0; w < transport::device::kWindows; ++w) {
    config.windowChannels[w] = settings.windowChannels[static_cast<size_t>(w)];
    config.shareBytes[w] = settings.shareBytes[static_cast<size_t>(w)];
    config.channels = std::max(config.channels, config.windowChannels[w]);
  }
  config.checks = checks ? 1 : 0;
  return config;
}

bool isCapturing(const driver::cuda::CaptureInfo& capture) { return capture.status == driver::cuda::CaptureStatus::Active; }

/// What two blocks of a launch that run the same works must have in common, but for the loop type (Batch).
bool mayShareLaunch(const DeviceCall& a, const DeviceCall& b) {
  const plan::DevicePlan& x = *a.plan->plan;
  const plan::DevicePlan& y = *b.plan->plan;
  if (x.kernel != y.kernel || a.call.isMessage() != b.call.isMessage()) return false;
  if (a.call.isMessage()) return true;
  return x.work.lanes == y.work.lanes && (x.work.lanes == 1 || a.plan->program.words == b.plan->program.words);
}

/// Peer and direction of a message.
std::pair<int32_t, bool> keyOf(const DeviceCall& call) { return {call.call.root, call.call.receives}; }

/// As NCCL_PROTO names it.
const char* protocolName(KernelId kernel) {
  switch (kernel) {
    case KernelId::Window:
    case KernelId::Cells: return "LL";
    case KernelId::Lines: return "LL128";
    default: return "Simple";
  }
}

const char* describe(exec::cuda::Waiting waiting) {
  using exec::cuda::Waiting;
  switch (waiting) {
    case Waiting::ForData: return "data from";
    case Waiting::ForSlot: return "a free slot of";
    case Waiting::ForCell: return "cells from";
    case Waiting::ForArrival: return "the arrival of";
    case Waiting::ForHandOver: return "a slice of lane";
    default: return "nothing of";
  }
}

Status statusOf(const exec::cuda::Verdict& v) {
  if (v.waiting == exec::cuda::Waiting::Mismatch) return exec::host::mismatch(Rank(v.rank), v.expected, Rank(v.peer), v.seen);
  return error(Code::RemoteError,
               "rank {} gave up after its deadline: its kernel waited for {} {} (channel {}, step {}, launch {}): expected {}, saw {}",
               v.rank, describe(v.waiting),
               v.waiting == exec::cuda::Waiting::ForHandOver ? format("{}", v.peer) : format("rank {}", v.peer), v.channel, v.step,
               v.launch, v.expected, v.seen);
}

}  // namespace

/// Calls that are launched together.
struct DeviceRank::Batch {
  std::vector<DeviceCall*> calls;
  std::vector<uint16_t> firstBlock;  // of each call
  int32_t blocks = 0;                // of the launch
  int32_t taken = 0;                 // by messages
  std::map<std::pair<int32_t, bool>, uint16_t> blocksOf;
  std::optional<DataType> loops;  // of those calls that combine
};

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(std::shared_ptr<transport::local::Hub> hub, Rank rank, const connect::Layout& layout,
                                                     const plan::DeviceSettings& settings, bool checks, Devices& devices, Device& device) {
  std::unique_ptr<DeviceRank> opened(new DeviceRank(rank, layout, settings, devices, device));
  const auto scope = ContextScope::enter(device.gpu->context());
  if (!scope) return tl::unexpected(scope.error());
  driver::cuda::Driver& driver = devices.driver();
  for (driver::cuda::OwnedEvent* event : {&opened->ended_, &opened->joined_, &opened->captured_}) {
    auto made = driver::cuda::OwnedEvent::of(driver, driver.createEvent());
    if (!made) return tl::unexpected(std::move(made).error());
    *event = std::move(*made);
  }
  auto endpoint = transport::device::Endpoint::open(std::move(hub), rank, configOf(settings, checks), devices.around(device));
  if (!endpoint) return tl::unexpected(std::move(endpoint).error());
  opened->endpoint_ = std::move(*endpoint);
  return opened;
}

DeviceRank::~DeviceRank() {
  if (endpoint_ == nullptr) return;
  const bool isBusy = !isIdle();
  if (!isBusy && captureId_ == 0) return;
  observe::warn("what rank {} has on device {} is kept until the process ends: {}", rank_.value, device_.gpu->device(),
                isBusy ? "its kernels have not ended" : "its calls were captured into a graph that may still be launched");
  std::vector<memory::Bank> programs;
  for (auto& [words, bank] : programs_) programs.push_back(std::move(bank));
  endpoint_->keepMemory(std::move(programs));
}

void DeviceRank::refreshViews() {
  for (int32_t p = 0; p < transport::device::kProtocols; ++p) views_[p] = endpoint_->view(static_cast<exec::cuda::Protocol>(p));
}

Poll DeviceRank::connect() {
  const Poll poll = endpoint_->connect();
  if (poll == Poll::Ready) refreshViews();
  return poll;
}

/// Equal programs lie on the GPU once.
Result<exec::cuda::ProgramView> DeviceRank::load(const exec::cuda::PackedProgram& program) {
  const auto [at, isNew] = programs_.try_emplace(program.words);
  memory::Bank& bank = at->second;
  if (isNew) {
    const auto putThere = [&]() -> Status {
      const auto scope = driver::cuda::SetUpScope::enter(device_.gpu->context());
      if (!scope) return scope.error();
      auto taken = device_.pool.take(memory::Purpose::Kernels, Bytes(program.words.size() * sizeof(uint64_t)));
      if (!taken) return std::move(taken).error();
      TUTTI_TRY(devices_.driver().copy(taken->address(), reinterpret_cast<driver::cuda::DevicePtr>(program.words.data()),
                                       Bytes(program.words.size() * sizeof(uint64_t)), device_.stream.get()));
      TUTTI_TRY(devices_.driver().synchronize(device_.stream.get()));
      bank = std::move(*taken);
      return {};
    };
    if (Status status = putThere(); !status.ok()) {
      programs_.erase(at);
      return tl::unexpected(std::move(status));
    }
  }
  return exec::cuda::ProgramView{reinterpret_cast<const uint64_t*>(bank.address()), program.laneWords};
}

Result<std::shared_ptr<LoadedPlan>> DeviceRank::planFor(const plan::Shape& shape) {
  if (auto known = plans_.find(shape)) return known;
  auto made = planner_.makePlan(shape);
  if (!made) return tl::unexpected(std::move(made).error());
  auto loaded = std::make_shared<LoadedPlan>();
  loaded->plan = std::move(*made);
  const plan::DevicePlan& p = *loaded->plan;
  observe::log(observe::Level::Info, observe::Subsys::Tuning, "{}: {} elements of {} -> algorithm {}, protocol {}, {} channels",
               name(shape.collective), shape.count, name(shape.type), p.algorithm, protocolName(p.kernel), p.work.geometry.channels);
  const auto program = load(loaded->plan->program);
  if (!program) return tl::unexpected(program.error());
  loaded->program = *program;
  plans_.insert(shape, loaded);
  return loaded;
}

Status DeviceRank::offer(std::span<const DeviceCall> calls) {
  for (const DeviceCall& call : calls)
    if (call.plan != nullptr && !call.plan->isOpen) TUTTI_TRY(endpoint_->offer(call.plan->needs()));
  return {};
}

Poll DeviceRank::settle(std::span<const DeviceCall> calls) {
  bool isNew = false;
  Poll poll = Poll::Ready;
  for (const DeviceCall& call : calls) {
    if (call.plan == nullptr || call.plan->isOpen) continue;
    poll = endpoint_->settle(call.plan->needs());
    if (poll != Poll::Ready) break;
    call.plan->isOpen = isNew = true;
  }
  if (isNew) refreshViews();
  return poll;
}

/// Collectives as they were issued, then messages. Launches come one after the other, so two ranks must come to the message between them in
/// the same launch, or the launches before it must end without it: messages go by kernel, which both sides choose alike, then by how far
/// they go, then by their number of the pair. At each such place a rank has one message to send and one to receive at most; whoever is
/// at the first place where anything is missing has both in its launch.
std::vector<DeviceRank::Turn> DeviceRank::order(std::span<DeviceCall> calls) const {
  std::vector<Turn> ordered;
  std::map<std::tuple<KernelId, int32_t, bool>, int32_t> counts;
  for (DeviceCall& call : calls) {
    if (call.plan == nullptr) continue;
    Turn turn{&call, {}};
    if (call.call.isMessage()) {
      const int32_t ahead = call.call.receives ? rank_.value - call.call.root : call.call.root - rank_.value;
      const int32_t distance = (ahead + ranks_) % ranks_;
      const KernelId kernel = call.plan->plan->kernel;
      turn.place = {1 + static_cast<int32_t>(kernel), distance, counts[{kernel, distance, call.call.receives}]++};
    }
    ordered.push_back(turn);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const Turn& a, const Turn& b) { return a.place < b.place; });
  return ordered;
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
  // A capture cannot wait for what is outside it; whoever replays it orders it behind what came before.
  if (isCapturing(capture)) return capture.id == captureId_ ? driver.wait(first, captured_.get()) : Status();
  if (hasLaunched_.load(std::memory_order_relaxed)) TUTTI_TRY(driver.wait(first, ended_.get()));
  latest_.store(first, std::memory_order_relaxed);
  isUnmarked_.store(true, std::memory_order_release);  // pairs with isIdle()
  return {};
}

Status DeviceRank::leave(std::span<const Stream> streams, const driver::cuda::CaptureInfo& capture) {
  driver::cuda::Driver& driver = devices_.driver();
  const Stream first = streams.front();
  if (isCapturing(capture)) {
    TUTTI_TRY(driver.record(captured_.get(), first));
    captureId_ = capture.id;
  } else {
    TUTTI_TRY(driver.record(ended_.get(), first));
    isUnmarked_.store(false, std::memory_order_relaxed);
    hasLaunched_.store(true, std::memory_order_release);  // pairs with isIdle()
  }
  if (streams.size() > 1) TUTTI_TRY(driver.record(joined_.get(), first));
  for (const Stream other : streams.subspan(1)) TUTTI_TRY(driver.wait(other, joined_.get()));
  return {};
}

Status DeviceRank::checkStreams(std::span<const DeviceCall> calls) {
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return scope.error();
  std::optional<uint64_t> id;  // of the capture; 0: none
  for (const DeviceCall& call : calls) {
    const auto capture = devices_.driver().captureInfo(call.stream);
    if (!capture) return capture.error();
    const uint64_t own = isCapturing(*capture) ? capture->id : 0;
    if (id && *id != own)
      return error(Code::InvalidUsage,
                   "calls of a group on streams of which some are captured into a graph and others not, or into another one");
    id = own;
  }
  return {};
}

/// What most calls are: alone, and open.
Status DeviceRank::launchAlone(DeviceCall& call) {
  const std::span streams(&call.stream, 1);
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return scope.error();
  const auto capture = devices_.driver().captureInfo(call.stream);
  if (!capture) return capture.error();
  TUTTI_TRY(enter(streams, *capture));
  constexpr uint16_t kFirst = 0;
  DeviceCall* const alone = &call;
  TUTTI_TRY(launchWorks({&alone, 1}, {&kFirst, 1}, call.plan->plan->blocks(), call.stream));
  return leave(streams, *capture);
}

Status DeviceRank::launch(std::span<DeviceCall> calls, uint64_t timeoutNs) {
  timeoutNs_ = timeoutNs;
  if (calls.size() == 1) return calls.front().plan == nullptr ? Status() : launchAlone(calls.front());
  const std::vector<Turn> ordered = order(calls);
  if (ordered.empty()) return {};
  std::vector<Stream> streams;
  for (const DeviceCall& call : calls)
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) streams.push_back(call.stream);
  const auto scope = ContextScope::enter(device_.gpu->context());
  if (!scope) return scope.error();
  const auto capture = devices_.driver().captureInfo(streams.front());
  if (!capture) return capture.error();
  TUTTI_TRY(enter(streams, *capture));
  Batch batch;
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (!batch.calls.empty() && endsBefore(batch, ordered, i)) {
      TUTTI_TRY(launchWorks(batch.calls, batch.firstBlock, batch.blocks, streams.front()));
      batch = {};
    }
    add(batch, *ordered[i].call);
  }
  TUTTI_TRY(launchWorks(batch.calls, batch.firstBlock, batch.blocks, streams.front()));
  return leave(streams, *capture);
}

/// All blocks that messages of one peer and direction may use.
int32_t DeviceRank::messageBlocks(const DeviceCall& call) const {
  return settings_.pipeChannels(exec::cuda::kernelInfo(call.plan->plan->kernel).protocol, algo::kUserPort);
}

/// Whether the next call needs a launch of its own. What is at one place is not torn apart.
bool DeviceRank::endsBefore(const Batch& batch, const std::vector<Turn>& ordered, size_t next) const {
  const DeviceCall& call = *ordered[next].call;
  if (!mayShareLaunch(*batch.calls.front(), call)) return true;
  if (reduces(call.call.collective) && batch.loops && *batch.loops != exec::cuda::loopType(call.plan->plan->work.type)) return true;
  if (!call.call.isMessage()) return batch.calls.size() == exec::cuda::kInlineWorks;
  if (ordered[next].place == ordered[next - 1].place) return false;
  const bool hasPartner = next + 1 < ordered.size() && ordered[next + 1].place == ordered[next].place;
  const auto blocksFor = [&](const DeviceCall& one) { return batch.blocksOf.contains(keyOf(one)) ? 0 : messageBlocks(one); };
  const int32_t wanted = blocksFor(call) + (hasPartner ? blocksFor(*ordered[next + 1].call) : 0);
  const int32_t most = std::min(settings_.mostBlocks[static_cast<size_t>(call.plan->plan->kernel)], settings_.messageBlocks);
  return batch.calls.size() + 2 > exec::cuda::kInlineWorks || (wanted > 0 && batch.taken + wanted > most);
}

/// Messages of one peer and direction follow one another on blocks of their own.
void DeviceRank::add(Batch& batch, DeviceCall& call) const {
  uint16_t first = 0;
  if (call.call.isMessage()) {
    const auto [at, isNew] = batch.blocksOf.try_emplace(keyOf(call), static_cast<uint16_t>(batch.taken));
    first = at->second;
    if (isNew) batch.taken += messageBlocks(call);
  }
  if (reduces(call.call.collective)) batch.loops = exec::cuda::loopType(call.plan->plan->work.type);
  batch.blocks = std::max(batch.blocks, first + call.plan->plan->blocks());
  batch.calls.push_back(&call);
  batch.firstBlock.push_back(first);
}

/// Calls that share a launch, each with the first of its blocks.
Status DeviceRank::launchWorks(std::span<DeviceCall* const> calls, std::span<const uint16_t> firstBlock, int32_t blocks, Stream stream) {
  const plan::DevicePlan& front = *calls.front()->plan->plan;
  const bool isMessage = calls.front()->call.isMessage();
  Launch launch;
  launch.comm = views_[static_cast<int>(exec::cuda::kernelInfo(front.kernel).protocol)];
  launch.type = front.work.type;
  uint64_t signature = 0;
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
    const uint64_t own = exec::host::packSignature(call.call);
    signature = calls.size() == 1 ? own : (signature ^ own) * 0x9e3779b97f4a7c15U;
  }
  launch.works = static_cast<int32_t>(calls.size());
  launch.comm.wait.timeoutNs = timeoutNs_;
  if (isMessage) {  // ranks do not count each other's messages
    launch.comm.wait.board = nullptr;
  } else {
    launch.comm.wait.launch = ++launches_;
    launch.comm.wait.signature = signature;
  }
  exec::cuda::LaunchOptions options;
  options.blocks = blocks;
  return devices_.executor().launch(front.kernel, launch, options, stream);
}

/// A launch that failed half-way has kernels on its stream that no event stands behind.
bool DeviceRank::isIdle() {
  if (!isUnmarked_.load(std::memory_order_acquire) && !hasLaunched_.load(std::memory_order_acquire)) return true;  // pair with launch()
  const auto setUp = driver::cuda::SetUpScope::enter(device_.gpu->context());  // a question is no part of anybody's capture
  if (isUnmarked_.load(std::memory_order_acquire)) {                           // pairs with launch()
    const auto idle = devices_.driver().isIdle(latest_.load(std::memory_order_relaxed));
    if (setUp && idle && !*idle) return false;
  }
  if (!hasLaunched_.load(std::memory_order_acquire)) return true;  // pairs with leave()
  const auto over = devices_.driver().isOver(ended_.get());
  return !over || *over;  // a context that is broken runs nothing any more
}

Status DeviceRank::look() {
  const exec::cuda::Verdict& verdict = endpoint_->kernelPage().verdict;
  const uint32_t state = std::atomic_ref<uint32_t>(const_cast<uint32_t&>(verdict.state)).load(std::memory_order_acquire);
  return state == exec::cuda::Verdict::Complete ? statusOf(verdict) : Status();
}

}  // namespace tutti::comm
