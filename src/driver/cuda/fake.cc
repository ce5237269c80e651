#include "driver/cuda/fake.h"

#include <cstring>

#include "core/format.h"
#include "driver/cuda/fake_driver.h"

namespace tutti::driver::cuda {
namespace {

/// Calls that give something back, or wait for work: they do it even when they are made to fail. A wait that fails tells of work that has
/// ended with an error.
bool isDoneAllTheSame(Call call) {
  switch (call) {
    case Call::streamSynchronize:
    case Call::eventSynchronize:
    case Call::devicePrimaryCtxRelease:
    case Call::ctxPopCurrent:
    case Call::memRelease:
    case Call::memAddressFree:
    case Call::memUnmap:
    case Call::memFree:
    case Call::memHostUnregister:
    case Call::ipcCloseMemHandle:
    case Call::streamDestroy:
    case Call::userObjectRelease:
    case Call::eventDestroy: return true;
    default: return false;
  }
}

Context contextOf(Device device) { return reinterpret_cast<Context>(uintptr_t{0xc000} + static_cast<uintptr_t>(device)); }
Device deviceOf(Context context) { return static_cast<Device>(reinterpret_cast<uintptr_t>(context) - 0xc000); }

void copyText(char* to, int32_t room, const std::string& text) {
  if (room <= 0) return;
  std::strncpy(to, text.c_str(), static_cast<size_t>(room));
  to[room - 1] = '\0';
}

}  // namespace

FakeApi::FakeApi(FakeOptions options) : driver_(std::make_unique<FakeDriver>(std::move(options))) {}
FakeApi::~FakeApi() = default;

template <class Act>
Error FakeApi::enter(Call call, const Act& act) {
  std::unique_lock lock(mutex_);
  if (call == Call::getErrorName) return act();
  const bool fails = ++calls_ == failAt_ || failNext_ == call;
  if (!fails) {
    const Error refused = driver_->permit(call);
    const Error error = refused == Error::Success ? act() : refused;
    const FakeQueues::Mark wait = driver_->takeWait();
    const auto destroyed = driver_->takeDestroyed();
    lock.unlock();
    for (const auto& destroy : destroyed) destroy();
    driver_->queues().await(wait);
    return error;
  }
  failed_ = call;
  failNext_.reset();
  if (isDoneAllTheSame(call)) (void)act();
  const FakeQueues::Mark wait = driver_->takeWait();
  const auto destroyed = driver_->takeDestroyed();
  lock.unlock();
  for (const auto& destroy : destroyed) destroy();
  driver_->queues().await(wait);
  return failWith_;
}

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments)  \
  Error FakeApi::name parameters {                                     \
    return enter(Call::name, [&] { return driver_->name arguments; }); \
  }
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

void FakeApi::failAt(size_t nth, Error error) { plan(nth, std::nullopt, error); }

void FakeApi::failNext(Call call, Error error) { plan(0, call, error); }

void FakeApi::plan(size_t nth, std::optional<Call> call, Error error) {
  const std::lock_guard lock(mutex_);
  calls_ = 0;
  failAt_ = nth;
  failNext_ = call;
  failWith_ = error;
  failed_.reset();
}

size_t FakeApi::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::optional<Call> FakeApi::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

FakeCounts FakeApi::alive() const {
  const std::lock_guard lock(mutex_);
  return driver_->alive();
}

Bytes FakeApi::used(Device device) const {
  const std::lock_guard lock(mutex_);
  return driver_->used(device);
}

bool FakeApi::accessible(Device device, DevicePtr address, Bytes bytes) const {
  const std::lock_guard lock(mutex_);
  return driver_->accessible(device, address, bytes.value);
}

bool FakeApi::losesAt(DevicePtr address) const {
  const std::lock_guard lock(mutex_);
  return driver_->loses(driver_->current(), address);
}

Error FakeApi::enqueue(Stream stream, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  return driver_->enqueue(stream, std::move(work));
}

Error FakeApi::beginCapture(Stream stream, CaptureMode mode) {
  const std::lock_guard lock(mutex_);
  return driver_->beginCapture(stream, mode);
}

Error FakeApi::endCapture(Stream stream, Graph* graph) {
  std::unique_lock lock(mutex_);
  const Error error = driver_->endCapture(stream, graph);
  const auto destroyed = driver_->takeDestroyed();
  lock.unlock();
  for (const auto& destroy : destroyed) destroy();
  return error;
}

bool FakeApi::isCapturing(Stream stream) const {
  const std::lock_guard lock(mutex_);
  return driver_->isCapturing(stream);
}

Error FakeApi::launchGraph(Graph graph, Stream stream) {
  const std::lock_guard lock(mutex_);
  return driver_->launchGraph(graph, stream);
}

Error FakeApi::destroyGraph(Graph graph) {
  std::unique_lock lock(mutex_);
  const Error error = driver_->destroyGraph(graph);
  const auto destroyed = driver_->takeDestroyed();
  lock.unlock();
  for (const auto& destroy : destroyed) destroy();
  return error;
}

FakeShape FakeApi::shape(Graph graph) const {
  const std::lock_guard lock(mutex_);
  return driver_->shape(graph);
}

void FakeApi::setBusy(bool busy) {
  const std::lock_guard lock(mutex_);
  driver_->setBusy(busy);
}

FakeDriver::FakeDriver(FakeOptions options)
    : options_(std::move(options)), used_(static_cast<size_t>(options_.devices)), retained_(static_cast<size_t>(options_.devices)) {}

FakeCounts FakeDriver::alive() const {
  FakeCounts counts;
  for (const size_t times : retained_) counts.contexts += times;
  for (const auto& [thread, stack] : current_) counts.pushed += stack.size();
  std::set<const Backing*> backings;
  for (const auto& [id, handle] : handles_) {
    counts.handles += handle.references;
    backings.insert(handle.backing.get());
  }
  for (const Regions* regions : {&mapped_, &plain_, &opened_})
    for (const auto& [address, region] : *regions) backings.insert(region.backing.get());
  counts.reservations = reservations_.size();
  counts.mappings = mapped_.size();
  counts.plain = plain_.size();
  counts.opened = opened_.size();
  counts.registered = registered_.size();
  counts.streams = streams_.size();
  counts.events = events_.size();
  counts.backings = backings.size();
  counts.working = queues_.working();
  counts.graphs = graphs_.size();
  counts.userObjects = objects_.size();
  return counts;
}

bool FakeDriver::canReach(Device from, Device to) const {
  return from == to || (!options_.cut.contains({from, to}) && !options_.cut.contains({to, from}));
}

Device FakeDriver::current() const {
  const auto stack = current_.find(std::this_thread::get_id());
  return stack == current_.end() || stack->second.empty() ? -1 : deviceOf(stack->second.back());
}

Error FakeDriver::init(uint32_t flags) {
  initialised_ = initialised_ || flags == 0;
  return flags == 0 ? Error::Success : Error::InvalidValue;
}

Error FakeDriver::driverGetVersion(int32_t* version) {
  *version = options_.version;
  return Error::Success;
}

Error FakeDriver::getErrorName(Error error, const char** name) {
  *name = listedName(error);
  return *name == nullptr ? Error::InvalidValue : Error::Success;
}

Error FakeDriver::deviceGetCount(int32_t* count) {
  if (!initialised_) return Error::NotInitialized;
  *count = options_.devices;
  return Error::Success;
}

Error FakeDriver::deviceGet(Device* device, int32_t ordinal) {
  if (!initialised_) return Error::NotInitialized;
  if (!isDevice(ordinal)) return Error::InvalidDevice;
  *device = ordinal;
  return Error::Success;
}

Error FakeDriver::deviceGetName(char* name, int32_t room, Device device) {
  if (!isDevice(device)) return Error::InvalidDevice;
  copyText(name, room, "Fake GPU");
  return Error::Success;
}

Error FakeDriver::deviceGetUuid(Uuid* uuid, Device device) {
  if (!isDevice(device)) return Error::InvalidDevice;
  *uuid = {};
  uuid->bytes.front() = 0xfa;
  uuid->bytes.back() = static_cast<uint8_t>(device);
  return Error::Success;
}

Error FakeDriver::deviceGetPciBusId(char* id, int32_t room, Device device) {
  if (!isDevice(device)) return Error::InvalidDevice;
  copyText(id, room, format("0000:{:02X}:00.0", 0x1a + device));
  return Error::Success;
}

Error FakeDriver::deviceTotalMem(size_t* bytes, Device device) {
  if (!isDevice(device)) return Error::InvalidDevice;
  *bytes = options_.memory.value;
  return Error::Success;
}

Error FakeDriver::deviceGetAttribute(int32_t* value, Attribute attribute, Device device) {
  if (!isDevice(device)) return Error::InvalidDevice;
  switch (attribute) {
    case Attribute::MultiprocessorCount: *value = 132; break;
    case Attribute::PciBusId: *value = 0x1a + device; break;
    case Attribute::UnifiedAddressing: *value = 1; break;
    case Attribute::ComputeCapabilityMajor: *value = 9; break;
    case Attribute::HostRegister: *value = options_.hostRegister ? 1 : 0; break;
    case Attribute::HostPointerForRegistered: *value = 1; break;
    case Attribute::WideStreamOps: *value = options_.wideStreamOps ? 1 : 0; break;
    case Attribute::VirtualMemory: *value = options_.virtualMemory ? 1 : 0; break;
    case Attribute::PosixFileDescriptor: *value = options_.posixFd ? 1 : 0; break;
    case Attribute::RdmaWithVirtualMemory:
    case Attribute::Rdma: *value = options_.rdma ? 1 : 0; break;
    case Attribute::FabricHandle: *value = options_.fabric ? 1 : 0; break;
    default: *value = 0;
  }
  return Error::Success;
}

Error FakeDriver::deviceCanAccessPeer(int32_t* can, Device device, Device peer) {
  if (!isDevice(device) || !isDevice(peer)) return Error::InvalidDevice;
  *can = device != peer && canReach(device, peer) ? 1 : 0;
  return Error::Success;
}

Error FakeDriver::deviceGetP2PAttribute(int32_t* value, PeerAttribute attribute, Device from, Device to) {
  if (!isDevice(from) || !isDevice(to) || from == to) return Error::InvalidDevice;
  const bool has = attribute == PeerAttribute::AccessSupported || (attribute == PeerAttribute::NativeAtomics && options_.nvlink);
  *value = has && canReach(from, to) ? 1 : 0;
  return Error::Success;
}

Error FakeDriver::devicePrimaryCtxRetain(Context* context, Device device) {
  if (!initialised_) return Error::NotInitialized;
  if (!isDevice(device)) return Error::InvalidDevice;
  ++retained_[static_cast<size_t>(device)];
  *context = contextOf(device);
  return Error::Success;
}

Error FakeDriver::devicePrimaryCtxRelease(Device device) {
  if (!isDevice(device) || retained_[static_cast<size_t>(device)] == 0) return Error::InvalidContext;
  --retained_[static_cast<size_t>(device)];
  return Error::Success;
}

Error FakeDriver::ctxPushCurrent(Context context) {
  const Device device = deviceOf(context);
  if (!isDevice(device) || retained_[static_cast<size_t>(device)] == 0) return Error::InvalidContext;
  current_[std::this_thread::get_id()].push_back(context);
  return Error::Success;
}

Error FakeDriver::ctxPopCurrent(Context* context) {
  auto& stack = current_[std::this_thread::get_id()];
  if (stack.empty()) return Error::InvalidContext;
  *context = stack.back();
  stack.pop_back();
  return Error::Success;
}

Error FakeDriver::ctxGetCurrent(Context* context) {
  const Device device = current();
  *context = device < 0 ? nullptr : contextOf(device);
  return Error::Success;
}

Error FakeDriver::ctxGetDevice(Device* device) {
  if (current() < 0) return Error::InvalidContext;
  *device = current();
  return Error::Success;
}

Error FakeDriver::ctxEnablePeerAccess(Context peer, uint32_t flags) {
  if (flags != 0) return Error::InvalidValue;
  const Device from = current();
  const Device to = deviceOf(peer);
  if (from < 0 || !isDevice(to) || from == to) return Error::InvalidContext;
  if (!canReach(from, to)) return Error::PeerAccessUnsupported;
  return peers_.insert({from, to}).second ? Error::Success : Error::PeerAccessAlreadyEnabled;
}

}  // namespace tutti::driver::cuda
