#include "comm/device_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "algo/sendrecv.h"
#include "config/params.h"
#include "core/format.h"
#include "observe/log.h"

namespace tutti::comm {

using driver::cuda::SetUpScope;
using transport::device::EndpointConfig;

namespace {

EndpointConfig configOf(const plan::DeviceSettings& settings, bool checks) {
  EndpointConfig config;
  for (int32_t p = 0; p < transport::device::kNumProtocols; ++p) {
    const auto at = static_cast<size_t>(p);
    config.slots[p] = settings.slots[at];
    config.slotBytes[p] = settings.slotBytes[at];
    static_assert(algo::kStarPort < transport::device::kPorts);
    for (int32_t port = 0; port < transport::device::kPorts; ++port) {
      int32_t& channels = config.pipeChannels[p][port];
      channels = settings.pipeChannels(static_cast<exec::cuda::Protocol>(p), static_cast<uint8_t>(port));
      config.channels = std::max(config.channels, channels);
    }
  }
  for (int32_t w = 0; w < transport::device::kNumWindows; ++w) {
    config.windowChannels[w] = settings.windowChannels[static_cast<size_t>(w)];
    config.shareBytes[w] = settings.shareBytes[static_cast<size_t>(w)];
    config.channels = std::max(config.channels, config.windowChannels[w]);
  }
  config.copyEngines = 2 * static_cast<int32_t>(settings.copyEngines) + (settings.movesLittle ? 1 : 0);
  config.streamStages = static_cast<int32_t>(settings.streamStages);
  config.mapped = static_cast<int32_t>(settings.mapped);
  config.lends = !settings.lendsCaptured ? 0 : settings.lendsPlain ? 2 : 1;
  config.leastBlocks = settings.minChannels;
  config.blockPrice = std::llround(settings.machine.blockPrice * 1e6);
  config.plainKernels = (settings.hasSimple ? 1 : 0) + (settings.hasBulk ? 2 : 0);
  config.checks = checks ? 1 : 0;
  return config;
}

/// What the pipes from one rank to another one hold of the user's messages at most, whichever kernel carries them.
uint64_t roomOf(const transport::device::EndpointConfig& config) {
  uint64_t most = 0;
  for (int p = 0; p < transport::device::kNumProtocols; ++p) {
    const auto pipes = static_cast<uint64_t>(config.pipeChannels[p][algo::kUserPort]);
    most = std::max(most, pipes * static_cast<uint64_t>(config.slots[p]) * config.slotBytes[p]);
  }
  return most;
}

Call callOf(const plan::Shape& shape) {
  Call call;
  call.collective = shape.collective;
  call.type = shape.type;
  call.count = shape.count;
  return call;
}

/// Which buffers make a call go straight to them.
std::string takenFor(Collective collective, bool mayLend) {
  const char* const lent = mayLend ? "those of captured calls" : "no others";
  if (goesOnlyLent(collective)) return format("taken for {}", lent);
  return format("taken for buffers in windows that all ranks have registered as NCCL_WIN_COLL_SYMMETRIC, and for {}{}", lent,
                reduces(collective) ? "; not if each rank has a factor of its own" : "");
}

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(std::shared_ptr<transport::local::Hub> hub, Rank rank, const connect::Layout& layout,
                                                     const plan::DeviceSettings& settings, bool checks, Devices& devices, Device& device) {
  plan::DeviceSettings able = settings;
  if (!device.gpu->info().wideStreamOps) able.streamStages = plan::When::Never;
  std::unique_ptr<DeviceRank> opened(new DeviceRank(rank, layout, able, devices, device));
  const auto scope = SetUpScope::enter(device.gpu->context());
  if (!scope) return tl::unexpected(scope.error());
  driver::cuda::Driver& driver = devices.driver();
  for (driver::cuda::OwnedEvent* event : {&opened->ended_, &opened->joined_}) {
    auto made = driver::cuda::OwnedEvent::of(driver, driver.createEvent());
    if (!made) return tl::unexpected(std::move(made).error());
    *event = std::move(*made);
  }
  const auto around = devices.around(device);
  if (!around) return tl::unexpected(around.error());
  opened->messages_ = std::make_unique<MessageChecks>(hub, rank, checks);
  const transport::device::EndpointConfig config = configOf(able, checks);
  auto circles = std::make_unique<DeviceCircles>(hub, rank, checks, roomOf(config));
  auto endpoint = transport::device::Endpoint::open(std::move(hub), rank, config, *around);
  if (!endpoint) return tl::unexpected(std::move(endpoint).error());
  opened->endpoint_ = std::move(*endpoint);
  opened->circles_ = std::move(circles);
  opened->windows_ =
      std::make_unique<DeviceWindows>(device, devices.executor(), *opened->endpoint_, opened->settings_, rank, layout.ranks());
  opened->mixesGraphs_ = config::get<config::Param::GraphMixingSupport>();
  return opened;
}

/// A graph that is still there may be launched, by whoever has it, whatever has become of the communicator.
DeviceRank::~DeviceRank() {
  device_.ranks.fetch_sub(1, std::memory_order_relaxed);
  if (endpoint_ == nullptr) return;
  const auto outside = driver::cuda::OutsideCaptures::enter(devices_.driver());  // another thread may have a capture under way
  if (!outside) devices_.driver().tellLost(outside.error());
  const bool isBusy = !isIdle();
  auto graphs = captures_.alive();
  if (isBusy)
    observe::warn("what rank {} has on device {} is kept until the process ends: its kernels have not ended", rank_.value,
                  device_.gpu->device());
  else if (!graphs.empty())
    observe::info(observe::Subsys::Init, "what rank {} has on device {} is kept until {} graphs with its calls are destroyed", rank_.value,
                  device_.gpu->device(), graphs.size());
  if (isBusy || !graphs.empty()) {
    transport::device::Kept kept{isBusy, std::move(graphs), {}, windows_->takeStreams(), {}, std::move(ended_), {}};
    kept.windows.assign(endedWindows_.begin(), endedWindows_.end());
    for (const Loans& loans : loans_)
      for (const DeviceWindows::Loan& loan : loans.of)
        for (const auto& window : {loan.first, loan.second})
          if (window != nullptr) kept.windows.push_back(window);
    for (auto& [words, bank] : programs_) kept.banks.push_back(std::move(bank));
    endpoint_->keepMemory(std::move(kept));
  }
  for (const Loans& loans : loans_)
    for (const DeviceWindows::Loan& loan : loans.of)
      for (const auto& window : {loan.first, loan.second})
        if (window != nullptr) endpoint_->windows().end(window);
  loans_.clear();
  endedWindows_.clear();
  windows_.reset();
  endpoint_.reset();
  programs_.clear();
}

void DeviceRank::refreshViews() {
  for (int32_t p = 0; p < transport::device::kNumProtocols; ++p) views_[p] = endpoint_->view(static_cast<exec::cuda::Protocol>(p));
}

Poll DeviceRank::connect() {
  const Poll poll = endpoint_->connect();
  if (poll != Poll::Ready) return poll;
  if (endpoint_->usesHostMemory()) planner_.avoidLines();
  refreshViews();
  return poll;
}

/// Equal programs lie on the GPU once.
Result<exec::cuda::ProgramView> DeviceRank::load(const exec::cuda::PackedProgram& program) {
  auto at = programs_.find(program.words);
  if (at == programs_.end()) {
    const Bytes bytes(program.words.size() * sizeof(uint64_t));
    const auto scope = SetUpScope::enter(device_.gpu->context());
    if (!scope) return tl::unexpected(scope.error());
    auto bank = device_.pool.take(memory::Purpose::Kernels, bytes);
    if (!bank) return tl::unexpected(std::move(bank).error());
    driver::cuda::Driver& driver = devices_.driver();
    Status copied =
        driver.copy(bank->address(), reinterpret_cast<driver::cuda::DevicePtr>(program.words.data()), bytes, device_.stream.get());
    if (copied.ok()) copied = driver.synchronize(device_.stream.get());
    if (!copied.ok()) return tl::unexpected(std::move(copied));
    at = programs_.emplace(program.words, std::move(*bank)).first;
  }
  return exec::cuda::ProgramView{reinterpret_cast<const uint64_t*>(at->second.address()), program.shape};
}

Result<std::shared_ptr<LoadedPlan>> DeviceRank::planFor(const plan::Shape& shape) {
  if (auto known = plans_.find(shape)) return known;
  auto made = planner_.makePlan(shape);
  if (!made) return tl::unexpected(std::move(made).error());
  auto loaded = std::make_shared<LoadedPlan>();
  loaded->plan = std::move(*made);
  const plan::DevicePlan& p = *loaded->plan;
  observe::log(observe::Level::Info, observe::Subsys::Tuning, "{}: {} elements of {} -> algorithm {}, protocol {}, {} channels",
               name(shape.collective), shape.count, name(shape.type), p.algorithm, name(exec::cuda::kernelInfo(p.kernel).protocol),
               p.work.geometry.channels);
  const auto program = load(loaded->plan->program);
  if (!program) return tl::unexpected(program.error());
  loaded->program = *program;
  loaded->mayLend = windows_->mayLend(callOf(shape), p.way());
  plans_.insert(shape, loaded);
  return loaded;
}

Status DeviceRank::offer(std::span<DeviceCall> calls) {
  isOffering_ = false;
  if (std::ranges::any_of(calls, [](const DeviceCall& call) { return !call.isOpen(); })) {
    const auto captured = isCaptured(calls);
    if (!captured) return captured.error();
    TUTTI_TRY(say(calls, *captured));
    isOffering_ = !*captured && circles_->isOn();
  }
  lend(calls);
  for (const DeviceCall& call : calls)
    if (!call.lends && !call.isOpen()) TUTTI_TRY(endpoint_->offer(call.plan->needs()));
  return {};
}

Poll DeviceRank::settle(std::span<DeviceCall> calls) {
  bool isNew = false;
  Poll poll = Poll::Ready;
  uint64_t place = 0;  // among the calls that have been said
  if (const Poll lent = settleLoans(calls); lent != Poll::Ready) return lent;
  for (DeviceCall& call : calls) {
    if (!call.isOpen()) {
      poll = endpoint_->settle(call.plan->needs());
      if (poll != Poll::Ready) break;
      call.plan->isOpen = isNew = true;
    }
    place += call.isNoted ? 1 : 0;
  }
  if (isNew) refreshViews();
  transport::device::IssueBook& book = endpoint_->page().issues(rank_.value);
  if (poll == Poll::Pending && isOffering_ && missing().value >= 0)
    book.holdUp(groups_, place, missing());
  else
    book.goOn();
  return poll;
}

Status DeviceRank::say(std::span<DeviceCall> calls, bool isCaptured) {
  transport::device::IssueBook& book = endpoint_->page().issues(rank_.value);
  if (isCaptured) book.close();
  TUTTI_TRY(messages_->look(calls, endpoint_->page(), isCaptured));
  if (isCaptured || !circles_->isOn()) return {};
  circles_->tellIssue();
  bool isNew = false;
  for (DeviceCall& made : calls) {
    if (made.plan == nullptr || made.isToSelf(rank_) || std::exchange(made.isNoted, true)) continue;
    if (!std::exchange(isNew, true)) ++groups_;
    book.write(groups_, made.call);
  }
  return {};
}

std::optional<exec::host::Deadlock> DeviceRank::lookForCircle() {
  return circles_->look(endpoint_->page(), [this] { return isIdle(); });
}

/// A launch that failed half-way has kernels on its stream that no event stands behind.
bool DeviceRank::isIdle() {
  if (!isUnmarked_.load(std::memory_order_acquire) && !hasLaunched_.load(std::memory_order_acquire)) return true;  // pair with launch()
  const auto setUp = driver::cuda::SetUpScope::enter(device_.gpu->context());  // a question is no part of anybody's capture
  if (isUnmarked_.load(std::memory_order_acquire)) {                           // pairs with launch()
    const auto idle = devices_.driver().isIdle(latest_.load(std::memory_order_relaxed));
    if (setUp && idle && !*idle) return false;
    if (setUp && !windows_->isIdle()) return false;
  }
  if (!hasLaunched_.load(std::memory_order_acquire)) return true;  // pairs with leave()
  const auto over = devices_.driver().isOver(ended_.get());
  return !over || *over;  // a context that is broken runs nothing any more
}

std::optional<std::string> DeviceRank::lastingWait() const {
  const auto wait = endpoint_->takeLastingWait();
  return wait ? std::optional(describeLasting(*wait, endpoint_->page())) : std::nullopt;
}

std::optional<GivenUp> DeviceRank::look() {
  for (int32_t r = 0; r < ranks_; ++r) {
    const transport::device::Page& page = endpoint_->page();
    for (exec::cuda::Verdict* const verdict : {&page.waits(r).givenUp, &page.rank(r).endedStage})
      if (std::atomic_ref<uint32_t>(verdict->state).load(std::memory_order_acquire) == exec::cuda::Verdict::Complete)
        return readVerdict(*verdict, page, ranks_);
  }
  return std::nullopt;
}

Status DeviceRank::choose(DeviceCall& call) const {
  if (call.plan == nullptr) return {};
  call.estimatedUs = call.plan->plan->estimatedUs;
  WindowCall found = call.windowCall();
  TUTTI_TRY(windows_->choose(found, call.plan->plan->way()));
  call.estimatedUs = found.window != nullptr ? windows_->estimateUs(call.call, found.traits()) : call.plan->plan->estimatedUs;
  call.window = std::move(found.window);
  call.inWindow = std::move(found.inWindow);
  if (call.window != nullptr || !call.plan->mayLend || call.isToSelf(rank_)) return {};
  if (reduces(call.call.collective) && call.call.opCode == kPreMulSumCode) return {};  // a rank does not know the factors of the others
  const auto captured = isCaptured({&call, 1});
  if (!captured) return captured.error();
  call.lends = *captured;
  return {};
}

Result<plan::Summary> DeviceRank::summarize(const plan::Shape& shape, std::vector<plan::Rejected>* rejected) {
  auto chosen = planner_.summarize(shape, rejected);
  if (!chosen || rejected == nullptr) return chosen;
  const bool isCombined = reduces(shape.collective);
  plan::Rejected other{isCombined ? "mapped" : "copies",    isCombined ? "mapped" : "copy engines", "", 0, -1,
                       windows_->obstacle(shape.collective)};
  if (other.reason.empty()) {
    const Call call = callOf(shape);
    other.estimatedUs = windows_->estimateUs(call, {});
    if (windows_->isCarried(call, {})) {
      other.algorithm = "carried";
      other.channels = windows_->carriedShape(call).blocks;
    } else if (isCombined) {
      other.channels = windows_->blocksOf(call);
    } else if (const auto mover = windows_->moverOf(call, {}); mover != DeviceWindows::Mover::Engines) {
      other.kernel = "moved";
      other.channels = mover == DeviceWindows::Mover::Block ? 1 : windows_->blocksOf(call);
    }
    const tune::Way kernel{chosen->estimatedUs, chosen->channels * chosen->lanes};
    other.reason = windows_->isTaken(call, {}, kernel) ? takenFor(shape.collective, windows_->mayLend(call, kernel))
                                                       : plan::dearer(windows_->wayOf(call, {}), kernel);
  }
  rejected->push_back(std::move(other));
  return chosen;
}

/// Copies of calls before may be on their way, and graphs may be launched again.
void DeviceRank::endWindow(transport::device::UserWindows::Ref window) {
  const auto outside = driver::cuda::OutsideCaptures::enter(devices_.driver());  // another thread may have a capture under way
  endpoint_->windows().end(window);
  endedWindows_.push_back(std::move(window));
  dropEnded();
}

Poll DeviceRank::settleWindows() {
  const auto outside = driver::cuda::OutsideCaptures::enter(devices_.driver());
  dropEnded();
  return endpoint_->settleWindows();
}

/// A call that has not been launched yet holds its window as well.
void DeviceRank::dropEnded() {
  if (endedWindows_.empty() || !captures_.alive().empty() || !isIdle()) return;
  std::erase_if(endedWindows_, [](const transport::device::UserWindows::Ref& window) { return window.use_count() == 1; });
}

}  // namespace tutti::comm
