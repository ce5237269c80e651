#include "comm/communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <tuple>
#include <utility>

#include "comm/losses.h"
#include "comm/own_messages.h"
#include "comm/process.h"
#include "comm/settings.h"
#include "core/format.h"
#include "core/thread.h"
#include "observe/log.h"

namespace tutti::comm {

using exec::host::Work;

Communicator::Communicator(Rank rank, int32_t ranks, int32_t device, uint64_t hash, Config config, std::shared_ptr<Shared> shared,
                           bool onGpu)
    : rank_(rank),
      ranks_(ranks),
      redOps_(static_cast<uint32_t>(hash) ^ static_cast<uint32_t>(rank.value) * 0x9e3779b9U),
      device_(device),
      onGpu_(onGpu),
      hash_(hash),
      config_(std::move(config)),
      shared_(shared != nullptr ? std::move(shared) : std::make_shared<Shared>()) {}

Result<std::unique_ptr<Communicator>> Communicator::create(std::shared_ptr<transport::local::Hub> hub, Rank rank, int32_t ranks,
                                                           int32_t device, uint64_t hash, const Config& config,
                                                           std::shared_ptr<Shared> shared) {
  auto comm = std::make_unique<Communicator>(rank, ranks, device, hash, config, std::move(shared));
  const int32_t cores = availableCores();
  const Outcome outcome{std::move(hub), {0, rank, ranks, config.minCtas, config.maxCtas, cores, ranks > cores}, nullptr};
  if (Status status = comm->open(outcome); !status.ok()) return tl::unexpected(std::move(status));
  return comm;
}

Status Communicator::open(const Outcome& outcome) {
  Status status;
  try {
    status = openParts(outcome);
  } catch (const std::bad_alloc&) {
    status = Status(Code::SystemError, "out of memory");
  }
  if (status.ok()) return status;
  tellOfFailedInit(*outcome.hub, status);
  // The others may have opened theirs, and keep their memory until this rank has left.
  if (onGpu_ && gpu_ == nullptr) transport::device::Endpoint::forgo(*outcome.hub, rank_);
  return status;
}

void Communicator::tellOfFailedInit(transport::local::Hub& hub, const Status& cause) const {
  hub.failAll(error(cause.code(), "rank {} could not open its communicator: {}", rank_.value, cause.text()));
}

Status Communicator::openParts(const Outcome& outcome) {
  process().tellEffects();
  config_.minCtas = outcome.place.minCtas;
  config_.maxCtas = outcome.place.maxCtas;
  if (outcome.place.isMixed)
    return error(Code::InvalidUsage, "some ranks compute with GPUs and some with host devices: TUTTI_DEVICE must be the same for all");
  if (outcome.place.constantsDiffer) process().constants.tellDifference();
  auto settings = readSettings(config_, outcome.place.constants == 0 ? nullptr : process().constants.get());
  if (!settings) return std::move(settings).error();
  settings_ = std::move(*settings);
  if (!onGpu_ && rank_ == Rank(0)) process().constants.tellUse(settings_.constants);
  settings_.machine.cores = outcome.place.cores;
  settings_.spansProcesses = outcome.hub->spansProcesses();
  settings_.copies = outcome.place.copies ? transport::local::kReachesCopies : 0;
  settings_.pastCacheBytes = outcome.place.pastCacheBytes;
  settings_.spansHosts = settings_.machine.spansHosts = outcome.hub->spansHosts();
  spins_ = readSpins();
  auto found = process().layouts.find(outcome, onGpu_, settings_.nodeRanks);
  if (!found) return std::move(found).error();
  layout_ = std::move(found->layout);
  settings_.cacheShare = cacheShareOf(outcome.place.cacheBytes, outcome.place.caches, found->fullestHost);
  sites_ = outcome.sites;
  if (outcome.hub->spansHosts())
    TUTTI_TRY(outcome.hub->remote()->use({[layout = layout_](const transport::local::PipeKey& key, bool sends) {
                                            return layout.netBetween(key.from, key.to, key.channel, sends);
                                          },
                                          hash_, config_.trafficClass}));
  nearGpu_ = std::move(found->nearGpu);
  lasting_ = std::make_shared<Lasting>(outcome.hub, rank_);
  turn_ = std::shared_ptr<exec::host::Turn>(lasting_, &lasting_->turn);
  if (outcome.hub->spansProcesses()) turn_->lookForDead = &lookForDead;
  lasting_->flight = observe::FlightMemory(readFlightEvents(), rank_, hash_);
  turn_->recorder = lasting_->flight.recorder();
  turn_->isCrowded = readCrowded(outcome.place.sharesCores);
  turn_->comparesLate = settings_.slots <= plan::kMostSlotsOfLate;
  readWaitLimits(*turn_);
  outcome.hub->waitAtMost(std::chrono::nanoseconds(turn_->timeoutNs.load(std::memory_order_relaxed)));
  outcome.hub->explainLocks([](const std::string& text) { observe::warn("{}", text); });
  settings_.tuner = openTuner(process().tuners, {hash_, ranks(), layout_.nodes()});
  planner_ = std::make_unique<plan::Planner>(layout_, lasting_->connections, rank_, settings_);
  alone_ = std::make_unique<Work>(turn_);
  shared_->add(outcome.hub);
  if (onGpu_) TUTTI_TRY(openGpu(outcome));
  open_.store(true, std::memory_order_release);  // pairs with isOpen()
  return {};
}

Result<plan::Shape> Communicator::shapeOf(const CallRequest& request, ResolvedOp& op) {
  if (Status status = usable(); !status.ok()) return tl::unexpected(std::move(status));
  if (Status status = checkArguments(request, ranks()); !status.ok()) return tl::unexpected(std::move(status));

  plan::Shape shape;
  shape.collective = request.collective;
  shape.type = static_cast<DataType>(request.type);
  shape.count = request.count;
  shape.root = Rank(hasRootOrPeer(request.collective) ? request.root : 0);
  shape.receives = request.receives;
  if (reduces(request.collective)) {
    const auto resolved = redOps_.resolve(request.op, shape.type, ranks());
    if (!resolved) return tl::unexpected(resolved.error());
    op = *resolved;
    shape.op = op.op;
    shape.scaling = {0, op.scaling.hasFactor, op.scaling.divisor};
  }
  if (request.collective == Collective::SendRecv) {  // one plan for all types of a size
    shape.count = request.count * sizeOf(shape.type);
    shape.type = DataType::I8;
  }
  return shape;
}

/// Says in `call` whose its buffers are, if peers in other processes can map them.
void Communicator::nameExporter(const CallRequest& request, exec::host::PlannedCall& call) const {
  call.exporter = nullptr;
  if (!settings_.spansProcesses) return;
  const BufferBytes bytes = bufferBytes(request, ranks());
  if (std::max(bytes.in, bytes.out) <= exec::host::kEagerBytes) return;  // nothing will be lent
  memory::HostAllocator& memory = process().memory;
  call.takenBefore = memory.timesTaken();  // before the look
  const auto isShared = [&memory](const void* data, uint64_t size) { return data == nullptr || memory.isShared(data, size); };
  if (isShared(request.in, bytes.in) && isShared(request.out, bytes.out)) call.exporter = &memory;
}

/// A call like the one before needs no more than its buffers looked at.
Result<PendingCall> Communicator::prepare(const CallRequest& request) {
  const bool isMessage = request.collective == Collective::SendRecv;
  const Known& known = isMessage && !known_.empty() ? known_[placeOf(request)] : latest_;
  if (!known.request.isLike(request) || known.call.comm == nullptr) return prepareNew(request);
  if (Status status = usable(); !status.ok()) return tl::unexpected(std::move(status));
  if (Status status = checkBuffers(request, rank()); !status.ok()) return tl::unexpected(std::move(status));
  PendingCall pending = known.call;
  pending.planned.in = request.in;
  pending.planned.out = request.out;
  nameExporter(request, pending.planned);
  return pending;
}

Result<PendingCall> Communicator::prepareNew(const CallRequest& request) {
  ResolvedOp op;
  const auto shape = shapeOf(request, op);
  if (!shape) return tl::unexpected(shape.error());

  PendingCall pending;
  if (Status status = checkBuffers(request, rank()); !status.ok()) return tl::unexpected(std::move(status));

  const bool isMessage = request.collective == Collective::SendRecv;
  const bool hasPlan = isMessage ? request.root != rank().value : request.count > 0;
  if (hasPlan) {
    auto plan = planFor(*shape);
    if (!plan) return tl::unexpected(std::move(plan).error());
    pending.planned.plan = std::move(*plan);
  }
  pending.comm = this;
  pending.call = {request.collective, shape->type, op.code, shape->root.value, shape->count, 0, request.receives};
  pending.planned.in = request.in;
  pending.planned.out = request.out;
  nameExporter(request, pending.planned);
  pending.planned.factor = op.scaling.factor;
  pending.planned.factorSource = op.factorSource;
  pending.peer = Rank(request.root);
  pending.receives = request.receives;

  observe::FlightEvent& event = pending.planned.event;
  event.collective = request.collective;
  event.type = static_cast<DataType>(request.type);
  event.op = op.op;
  event.count = request.count;
  event.peer = hasRootOrPeer(request.collective) ? request.root : -1;
  // An operator of the user's own may be another one the next time.
  if (hasPlan && !isMessage && (!reduces(request.collective) || RedOps::isBuiltIn(request.op))) {
    const BufferBytes bytes = bufferBytes(request, ranks());
    stopAgain();
    pending.isLatest = true;
    pending.isEager = std::max(bytes.in, bytes.out) <= exec::host::kEagerBytes;
    latest_ = {request, pending};
  }
  if (hasPlan && isMessage) {
    pending.planned.call = pending.call;
    pending.planned.signature = exec::host::packSignature(pending.call);
    if (isBlocking()) pending.eager = exec::host::eagerEndOf(*pending.planned.plan, *turn_);
    if (known_.empty()) known_.resize(kKnown);
    known_[placeOf(request)] = {request, pending};
  }
  return pending;
}

Result<plan::Explanation> Communicator::explain(const CallRequest& request) {
  ResolvedOp op;
  const auto shape = shapeOf(request, op);
  if (!shape) return tl::unexpected(shape.error());
  plan::Explanation explanation;
  const BufferBytes bytes = bufferBytes(request, ranks());
  explanation.bytes = std::max(bytes.in, bytes.out);
  explanation.ranks = ranks();
  explanation.nodes = layout_.nodes();
  explanation.constants = gpu_ != nullptr ? gpu_->constants() : settings_.constants;
  explanation.simd = exec::host::name(settings_.simd);
  auto chosen = gpu_ != nullptr ? gpu_->summarize(*shape, &explanation.rejected) : planner_->summarize(*shape, &explanation.rejected);
  if (!chosen) return tl::unexpected(std::move(chosen).error());
  explanation.chosen = *chosen;
  return explanation;
}

Result<plan::Summary> Communicator::summarize(const PendingCall& pending) const {
  plan::Shape shape;
  shape.collective = pending.call.collective;
  shape.type = pending.call.type;
  shape.op = pending.planned.event.op;
  shape.count = pending.call.count;
  shape.root = Rank(pending.call.root);
  shape.receives = pending.receives;
  return planner_->summarize(shape);
}

Result<std::shared_ptr<const exec::host::HostPlan>> Communicator::planFor(const plan::Shape& shape) {
  if (auto plan = plans_.find(shape)) return plan;
  auto made = planner_->makePlan(shape);
  if (!made) return made;
  observe::log(observe::Level::Info, observe::Subsys::Tuning, "{}: {} elements of {} -> algorithm {}", name(shape.collective), shape.count,
               name(shape.type), (*made)->algorithm);
  plans_.insert(shape, *made);
  return made;
}

/// Gives a call its place among the calls of this communicator.
void Communicator::assign(PendingCall& pending) {
  pending.planned.call = pending.call;
  number(pending.planned);
}

void Communicator::number(exec::host::PlannedCall& planned) {
  if (planned.call.collective != Collective::SendRecv) planned.event.sequence = planned.call.sequence = issuedCollectives_++;
  planned.signature = exec::host::packSignature(planned.call);
  takeEpochs(planned);
}

namespace {

uint64_t epochsOf(const exec::host::HostPlan& plan) {
  return plan.usesWindow ? static_cast<uint64_t>(plan.geometry.slices) * static_cast<uint64_t>(plan.rounds) : 0;
}

}  // namespace

void Communicator::takeEpochs(exec::host::PlannedCall& planned) {
  if (planned.plan == nullptr || !planned.plan->usesWindow) return;
  planned.windowEpoch = nextEpoch_;
  nextEpoch_ += epochsOf(*planned.plan);
}

namespace {

bool isToSelf(const PendingCall& c) { return c.planned.plan == nullptr && c.call.collective == Collective::SendRecv; }

}  // namespace

Status Communicator::pairSelfMessages(std::vector<PendingCall>& calls) {
  auto pairs = pairOwnMessages(rank(), std::span(calls), isToSelf);
  if (!pairs) return std::move(pairs).error();
  for (const auto& [send, receive] : *pairs) {
    plan::Shape shape;
    shape.collective = Collective::SendRecv;
    shape.type = DataType::I8;
    shape.count = send->call.count;
    shape.root = rank();
    auto plan = planFor(shape);
    if (!plan) return std::move(plan).error();
    send->planned.plan = std::move(*plan);
    send->planned.out = receive->planned.out;
  }
  std::erase_if(calls, isToSelf);  // the receives: their sends do the work
  return {};
}

std::unique_ptr<Work> Communicator::issue(std::span<PendingCall> calls) {
  stopAgain();
  auto work = std::make_unique<Work>(turn_);
  turn_->isShared.store(true, std::memory_order_relaxed);  // before the work is queued, which orders it for the stream's thread
  work->reset(takeTicket());
  addAll(*work, calls);
  return work;
}

Work& Communicator::issueHere(std::span<PendingCall> calls) {
  stopAgain();
  alone_->reset(takeTicket());
  try {
    addAll(*alone_, calls);
  } catch (...) {
    alone_->abandon();
    throw;
  }
  return *alone_;
}

void Communicator::addAll(Work& work, std::span<PendingCall> calls) {
  messages_.clear();
  bool inCollectives = false;
  for (PendingCall& c : calls) {
    assign(c);
    turn_->record(c.planned.event, observe::FlightKind::Enqueued);
    if (c.call.collective == Collective::SendRecv) {
      messages_.push_back(&c);
      continue;
    }
    if (!inCollectives) work.beginChain();
    inCollectives = true;
    work.add(std::move(c.planned));
  }
  const auto chainOf = [](const PendingCall& c) { return std::pair(c.peer.value, c.receives); };
  std::sort(messages_.begin(), messages_.end(), [&](const PendingCall* a, const PendingCall* b) {
    return std::tuple(chainOf(*a), a) < std::tuple(chainOf(*b), b);  // of a pair and direction in the order of the calls
  });
  const PendingCall* previous = nullptr;
  for (PendingCall* const c : messages_) {
    if (previous == nullptr || chainOf(*previous) != chainOf(*c)) work.beginChain();
    previous = c;
    work.add(std::move(c->planned));
  }
  if (messages_.size() > kMostKept) messages_ = {};
}

/// Numbers are taken once nothing can fail for want of memory: works wait for those before them.
Status Communicator::runAlone(PendingCall& call) {
  Work& work = *alone_;
  stopAgain();
  work.clear();
  work.beginChain();
  call.planned.call = call.call;
  const uint64_t epochs = epochsOf(*call.planned.plan);
  const bool isEager = call.isEager;
  number(work.add(std::move(call.planned)));
  work.start(takeTicket());
  Work* const works[] = {&work};
  TUTTI_TRY(exec::host::drive(works, spins_));
  // What may be lent has to be looked at each time.
  runsAgain_ = call.isLatest && isEager && isBlocking() && work.canRunAgain();
  latestEpochs_ = epochs;
  return {};
}

Status Communicator::finishAgain() {
  (void)takeTicket();
  Work* const works[] = {alone_.get()};
  return exec::host::drive(works, spins_, !alone_->isFinished());
}

std::span<const std::byte> Communicator::flightBytes() const {
  return isOpen() ? lasting_->flight.bytes() : std::span<const std::byte>();
}

}  // namespace tutti::comm
