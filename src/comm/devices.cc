#include "comm/devices.h"

#include <cstdio>
#include <utility>

#include "config/params.h"
#include "observe/log.h"

namespace tutti::comm {

using config::Param;
using driver::cuda::SetUpScope;

Devices::Devices(OpenDriver openDriver, OpenExecutor openExecutor)
    : openDriver_(std::move(openDriver)),
      openExecutor_(std::move(openExecutor)),
      segments_([this](int32_t ordinal, memory::Place place) -> memory::ScratchPool* {
        Device* const device = find(ordinal);
        if (device == nullptr) return nullptr;
        if (place == memory::Place::Device) return &device->pool;
        return place == memory::Place::Host ? &device->hostPool : nullptr;  // what other processes ask for may be anything
      }) {}

void Devices::replaceForTest(OpenDriver openDriver, OpenExecutor openExecutor) {
  parking_.sweep();
  const std::lock_guard lock(mutex_);
  devices_.clear();
  pairs_.clear();
  driver_.reset();
  executor_.reset();
  started_.reset();
  isThere_ = false;
  openDriver_ = std::move(openDriver);
  openExecutor_ = std::move(openExecutor);
  ++generation_;
}

/// Once; under the lock.
Status Devices::start() {
  if (started_) return *started_;
  const auto tryAll = [this]() -> Status {
    auto executor = openExecutor_();
    if (executor == nullptr) return error(Code::InvalidUsage, "this build has no CUDA kernels (TUTTI_CUDA=OFF)");
    auto api = openDriver_();
    if (!api) return std::move(api).error();
    const driver::cuda::Error begun = (*api)->init(0);
    if (begun == driver::cuda::Error::NoDevice || begun == driver::cuda::Error::StubLibrary)
      return error(Code::InvalidUsage, "the CUDA driver has no device");
    isThere_ = true;
    auto driver = std::make_unique<driver::cuda::Driver>(std::move(*api), [](const Status& lost) { observe::warn("{}", lost.text()); });
    TUTTI_TRY(driver->init());
    const auto devices = driver->countDevices();
    if (!devices) return devices.error();
    isThere_ = *devices > 0;
    if (!isThere_) return error(Code::InvalidUsage, "the CUDA driver has no device");
    executor_ = std::move(executor);
    driver_ = std::move(driver);
    return {};
  };
  started_ = tryAll();
  if (!started_->ok()) observe::info(observe::Subsys::Init, "no GPUs: {}", started_->text());
  return *started_;
}

Result<bool> Devices::useGpus() {
  const std::string wanted = config::get<Param::TuttiDevice>();
  if (wanted == "host") return false;
  const bool isFree = wanted.empty() || wanted == "auto";
  if (!isFree && wanted != "cuda") return fail(Code::InvalidUsage, "TUTTI_DEVICE={}: known are auto, cuda, host", wanted);
  const std::lock_guard lock(mutex_);
  const Status status = start();
  if (status.ok()) return true;
  if (isFree && !isThere_) return false;
  if (isFree) return fail(status.code(), "GPUs cannot be used, and TUTTI_DEVICE=host was not asked for: {}", status.text());
  return fail(Code::InvalidUsage, "TUTTI_DEVICE=cuda: {}", status.text());
}

Result<int32_t> Devices::count() { return driver_->countDevices(); }

Result<int32_t> Devices::current() {
  const auto context = driver_->currentContext();
  if (!context) return tl::unexpected(context.error());
  if (*context == nullptr) return 0;
  const auto device = driver_->currentDevice();
  if (!device) return tl::unexpected(device.error());
  return *device;
}

Device* Devices::find(int32_t ordinal) const {
  const std::lock_guard lock(mutex_);
  const auto found = devices_.find(ordinal);
  return found == devices_.end() ? nullptr : found->second.get();
}

Result<Device*> Devices::at(int32_t ordinal) {
  if (Device* const known = find(ordinal); known != nullptr) return known;
  auto opened = open(ordinal);
  if (!opened) return tl::unexpected(std::move(opened).error());
  const std::lock_guard lock(mutex_);
  const auto [at, isNew] = devices_.try_emplace(ordinal, std::move(*opened));  // another thread may have been faster
  return at->second.get();
}

namespace {

/// Peers over NVLink carry out atomic operations where the memory is; over a bus they do not.
Result<bool> keepsLines(const memory::Gpu& gpu) {
  constexpr int32_t kFirst = 9;  // Hopper
  if (gpu.info().major < kFirst) return false;
  for (const driver::cuda::Device other : gpu.accessors()) {
    if (other == gpu.device()) continue;
    const auto atomics = gpu.driver().peerAttribute(driver::cuda::PeerAttribute::NativeAtomics, gpu.device(), other);
    if (!atomics) return tl::unexpected(atomics.error());
    if (*atomics == 0) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Device>> Devices::open(int32_t ordinal) {
  const int64_t limit = config::get<Param::TuttiMemLimit>();
  auto gpu = memory::Gpu::open(*driver_, ordinal, config::get<Param::CumemEnable>() != 0);
  if (!gpu) return tl::unexpected(std::move(gpu).error());
  auto device = std::make_unique<Device>(std::move(*gpu), Bytes(limit > 0 ? static_cast<uint64_t>(limit) : 0));
  const auto scope = SetUpScope::enter(device->gpu->context());
  if (!scope) return tl::unexpected(scope.error());
  auto stream = driver::cuda::OwnedStream::of(*driver_, driver_->createStream());
  if (!stream) return tl::unexpected(std::move(stream).error());
  device->stream = std::move(*stream);
  if (config::get<Param::LaunchOrderImplicit>()) {
    auto ended = driver::cuda::OwnedEvent::of(*driver_, driver_->createEvent());
    if (!ended) return tl::unexpected(std::move(ended).error());
    device->order = std::make_unique<LaunchOrder>(*driver_);
    device->order->ended = std::move(*ended);
  }
  if (Status status = executor_->load(device->kernels); !status.ok()) return tl::unexpected(std::move(status));
  const auto lines = keepsLines(*device->gpu);
  if (!lines) return tl::unexpected(lines.error());
  device->keepsLines = *lines;
  return device;
}

/// Memory may be allocated and freed while somebody captures: allocators do.
bool Devices::free(void* pointer) {
  driver::cuda::Driver* driver = nullptr;
  {
    const std::lock_guard lock(mutex_);
    driver = driver_.get();
  }
  if (driver == nullptr) return false;
  const auto outside = driver::cuda::OutsideCaptures::enter(*driver);
  return allocator_.free(pointer);
}

Result<void*> Devices::allocate(Bytes bytes) {
  const auto outside = driver::cuda::OutsideCaptures::enter(*driver_);
  if (!outside) return tl::unexpected(outside.error());
  const auto ordinal = current();
  if (!ordinal) return tl::unexpected(ordinal.error());
  const auto device = at(*ordinal);
  if (!device) return tl::unexpected(device.error());
  return allocator_.allocate(*(*device)->gpu, (*device)->budget, bytes);
}

namespace {

Status readProbe(const std::string& text, transport::device::PairRules& rules) {
  int from = -1;
  int to = -1;
  int end = 0;
  // Numbers that are none, or too large for a rank, are refused below or reach no pair.
  const bool spoils = std::sscanf(  // NOLINT(bugprone-unchecked-string-to-number-conversion)
      text.c_str(), "spoil=%d-%d%n", &from, &to, &end) == 2 && static_cast<size_t>(end) == text.size();
  if (!spoils && text != "0" && text != "1")
    return error(Code::InvalidUsage, "TUTTI_P2P_PROBE={}: known are 0, 1 and spoil=A-B with two ranks", text);
  rules.probes = text != "0";
  if (spoils) rules.spoilt = {from, to};
  return {};
}

}  // namespace

Result<transport::device::Surroundings> Devices::around(Device& device) {
  transport::device::Surroundings around;
  around.gpu = device.gpu.get();
  around.pool = &device.pool;
  around.hostPool = &device.hostPool;
  around.segments = &segments_;
  around.pages = &pages_;
  around.parking = &parking_;
  around.pairs = &pairs_;
  around.connecting = &connecting_;
  around.watch = &watch_;
  around.executor = executor_.get();
  around.stream = device.stream.get();
  around.sharesGpus = config::get<Param::TuttiMultiRankGpu>() != 0;
  around.rules.p2pDisabled = config::get<Param::P2pDisable>() != 0;
  around.rules.shmDisabled = config::get<Param::ShmDisable>() != 0;
  if (Status status = readProbe(config::get<Param::TuttiP2pProbe>(), around.rules); !status.ok()) return tl::unexpected(std::move(status));
  const auto level = readPeerLevel();
  if (!level) return tl::unexpected(level.error());
  if (around.rules.p2pDisabled && *level && **level != topo::PathType::Loc && !hasToldOfLevel_.exchange(true))
    observe::warn("NCCL_P2P_DISABLE=1 holds, so NCCL_P2P_LEVEL={} has no effect: unset one of them", config::get<Param::P2pLevel>());
  around.rules.isNear = [this, level = *level](driver::cuda::Device one, driver::cuda::Device other) {
    return paths_.allow(*driver_, level, one, other);
  };
  return around;
}

}  // namespace tutti::comm
