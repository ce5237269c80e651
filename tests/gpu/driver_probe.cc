// Checks driver and device memory on the GPUs of this machine; links no CUDA.
//
// usage: driver_probe [--fake DEVICES] [--plain]
//
// Prints a line for each check: ok, skipped (and why), note, or FAILED. Ends with 1 when one failed, with 2 when there is no driver.
#include "driver_probe.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "driver/cuda/fake.h"
#include "driver/cuda/real.h"
#include "driver/nvml/nvml.h"
#include "driver/nvml/real.h"
#include "memory/device_allocator.h"
#include "memory/device_host.h"
#include "memory/device_scratch.h"
#include "memory/device_space.h"
#include "memory/mapping.h"

namespace tutti::probe {
namespace {

using driver::cuda::ContextScope;
using driver::cuda::DevicePtr;
using driver::cuda::HandleType;
using memory::Allocation;
using memory::DeviceMemory;
using memory::Gpu;
using memory::ShareKind;

constexpr uint64_t kMega = uint64_t{1} << 20;

DevicePtr addressOf(const void* host) { return reinterpret_cast<DevicePtr>(host); }

class Stopwatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Result<Machine> Machine::open(const Options& options) {
  std::unique_ptr<driver::cuda::Api> api;
  if (options.fake > 0) {
    driver::cuda::FakeOptions fake;
    fake.devices = options.fake;
    fake.fabric = true;
    api = std::make_unique<driver::cuda::FakeApi>(fake);
  } else {
    auto real = driver::cuda::openDriver();
    if (!real) return tl::unexpected(std::move(real).error());
    api = std::move(*real);
  }
  Machine machine;
  machine.driver = std::make_unique<driver::cuda::Driver>(
      std::move(api), [](const Status& status) { std::printf("LOST     %s\n", status.text().c_str()); });
  if (Status status = machine.driver->init(); !status.ok()) return tl::unexpected(std::move(status));
  const auto count = machine.driver->countDevices();
  if (!count) return tl::unexpected(count.error());
  for (int32_t ordinal = 0; ordinal < *count; ++ordinal) {
    auto gpu = Gpu::open(*machine.driver, ordinal, !options.plain);
    if (!gpu) return tl::unexpected(std::move(gpu).error());
    machine.gpus.push_back(std::move(*gpu));
  }
  return machine;
}

std::vector<uint8_t> makePattern(uint64_t bytes, uint32_t seed) {
  std::vector<uint8_t> data(bytes);
  for (uint64_t at = 0; at < bytes; ++at) data[at] = patternAt(at, seed);
  return data;
}

Status copyNow(const Gpu& gpu, DevicePtr to, DevicePtr from, uint64_t bytes) {
  driver::cuda::Driver& driver = gpu.driver();
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return scope.error();
  const auto stream = driver::cuda::OwnedStream::of(driver, driver.createStream());
  if (!stream) return stream.error();
  TUTTI_TRY(driver.copy(to, from, Bytes(bytes), stream->get()));
  return driver.synchronize(stream->get());
}

Status writeNow(const Gpu& gpu, DevicePtr to, const std::vector<uint8_t>& data) {
  return copyNow(gpu, to, addressOf(data.data()), data.size());
}

Status checkPattern(const Gpu& gpu, DevicePtr from, uint64_t bytes, uint32_t seed) {
  std::vector<uint8_t> data(bytes);
  TUTTI_TRY(copyNow(gpu, addressOf(data.data()), from, bytes));
  for (uint64_t at = 0; at < bytes; ++at) {
    if (data[at] != patternAt(at, seed))
      return error(Code::InternalError, "byte {} at {:#x} is {}, expected {}", at, from, data[at], patternAt(at, seed));
  }
  return {};
}

namespace {

void reportDevices(const Machine& machine, Report& report) {
  const auto version = machine.driver->version();
  report.note("driver", format("CUDA {}.{}", version.value_or(0) / 1000, version.value_or(0) % 1000 / 10));
  for (const auto& gpu : machine.gpus) {
    const auto& info = gpu->info();
    report.note(
        format("device {}", gpu->device()),
        format("{}, {}, sm_{}{}, {} SMs, {} MiB; virtual memory {}, descriptors {}, fabric says {} and works {}, rdma {}, unit {} KiB",
               info.name, info.pciBusId, info.major, info.minor, info.multiprocessors, info.memory.value / kMega, gpu->hasVirtualMemory(),
               info.posixFd, info.fabric, includes(gpu->handles(), HandleType::Fabric), info.rdma, gpu->granularity().value / 1024));
  }
}

void reportNvml(const Machine& machine, Report& report) {
  auto api = driver::nvml::openNvml();
  if (!api) return report.skip("NVML", api.error().text());
  auto nvml = driver::nvml::Nvml::start(std::move(*api));
  if (!nvml) return report.fail("NVML", nvml.error().text());
  std::vector<driver::nvml::Device> devices;
  for (const auto& gpu : machine.gpus) {
    auto device = (*nvml)->find(gpu->info().pciBusId);
    if (!device) return report.fail("NVML device", device.error().text());
    const auto links = (*nvml)->links(*device);
    const auto uuid = (*nvml)->uuid(*device);
    const auto fabric = (*nvml)->fabric(*device);
    if (!links || !uuid || !fabric)
      return report.fail("NVML device", (!links ? links.error() : !uuid ? uuid.error() : fabric.error()).text());
    report.pass(
        format("NVML device {}", gpu->device()),
        format("{}; {} links up, the first to {} (type {}), version {}; fabric state {}", *uuid, links->size(),
               links->empty() ? "nothing" : links->front().remoteBusId, links->empty() ? -1 : static_cast<int>(links->front().remote),
               links->empty() ? 0 : links->front().version, *fabric ? static_cast<int>((*fabric)->state) : 0));
    devices.push_back(std::move(*device));
  }
  for (size_t to = 1; to < devices.size(); ++to) {
    const auto status = (*nvml)->peerStatus(devices[0], devices[to], driver::nvml::PeerCapability::NvLink);
    if (!status) return report.fail("NVML peers", status.error().text());
    report.pass(format("NVML NVLink from device 0 to {}", to), driver::nvml::describe(*status));
  }
}

/// Memory of every device, written through the address of one and read through that of another.
void checkPeers(const Machine& machine, Report& report) {
  constexpr uint64_t kBytes = 8 * kMega;
  const auto peers = static_cast<int32_t>(machine.gpus.size());
  Bytes largest;
  std::vector<DeviceMemory> memories;
  Stopwatch allocation;
  for (const auto& gpu : machine.gpus) {
    largest = std::max(largest, gpu->info().memory);
    const driver::cuda::Device own[] = {gpu->device()};
    auto memory = DeviceMemory::allocate(*gpu, Bytes(kBytes), own);
    if (!memory) return report.fail("allocate", memory.error().text());
    memories.push_back(std::move(*memory));
  }
  report.pass("allocate on every device", format("{:.2f} ms for {} of {} MiB", allocation.ms(), peers, kBytes / kMega));
  for (const auto& reader : machine.gpus) {
    Stopwatch watch;
    auto space = memory::AddressSpace::reserve(*reader, peers, memory::AddressSpace::strideFor(largest));
    if (!space) return report.fail(format("address space of device {}", reader->device()), space.error().text());
    std::vector<memory::PeerMapping> mapped;
    for (const auto& peer : machine.gpus) {
      const std::string what = format("device {} maps device {}", reader->device(), peer->device());
      const auto& accessors = peer->accessors();
      if (std::find(accessors.begin(), accessors.end(), reader->device()) == accessors.end()) {
        report.skip(what, "they cannot reach each other");
        continue;
      }
      auto mapping = space->map(peer->device(), 0, memories[static_cast<size_t>(peer->device())].allocation());
      if (!mapping) return report.fail(what, mapping.error().text());
      mapped.push_back(std::move(*mapping));
    }
    const double ms = watch.ms();
    report.pass(format("address space of device {}", reader->device()),
                format("base {:#x}, stride {} GiB, {} peers mapped in {:.2f} ms", space->view().base, space->view().stride >> 30,
                       mapped.size(), ms));
    for (const auto& memory : mapped) {
      const auto peer = static_cast<size_t>((memory.address() - space->view().base) / space->view().stride);
      const std::string what = format("device {} writes and reads device {}", reader->device(), peer);
      const auto seed = static_cast<uint32_t>(reader->device() * 64 + static_cast<int32_t>(peer));
      Status status = writeNow(*reader, memory.address(), makePattern(kBytes, seed));
      if (status.ok()) status = checkPattern(*machine.gpus[peer], memories[peer].address(), kBytes, seed);
      if (status.ok()) status = writeNow(*machine.gpus[peer], memories[peer].address(), makePattern(kBytes, seed + 1));
      if (status.ok()) status = checkPattern(*reader, memory.address(), kBytes, seed + 1);
      report.check(what, status);
    }
  }
}

/// Plain memory of one device used by another, after its context has been told.
void checkPlainPeers(Machine& machine, Report& report) {
  if (machine.gpus.size() < 2) return report.skip("plain memory of a peer", "one device");
  auto owner = Gpu::open(*machine.driver, 1, false);
  if (!owner) return report.fail("plain memory of a peer", owner.error().text());
  auto memory = DeviceMemory::allocate(**owner, Bytes(kMega), {});
  if (!memory) return report.fail("plain memory of a peer", memory.error().text());
  Status status = allowPlainAccess(*machine.gpus[0], **owner);
  if (status.ok()) status = allowPlainAccess(*machine.gpus[0], **owner);
  if (status.ok()) status = writeNow(*machine.gpus[0], memory->address(), makePattern(kMega, 3));
  if (status.ok()) status = checkPattern(**owner, memory->address(), kMega, 3);
  report.check("plain memory of a peer", status, "access allowed twice");
}

void checkHost(const Machine& machine, Report& report) {
  constexpr uint64_t kBytes = 2 * kMega;
  const auto mapping = memory::Mapping::shareable(Bytes(kBytes));
  if (!mapping) return report.fail("host memory", mapping.error().text());
  auto registered = memory::RegisteredHost::make(*machine.gpus.front(), mapping->data(), mapping->size());
  if (!registered) return report.fail("host memory", registered.error().text());
  for (const auto& gpu : machine.gpus) {
    const std::string what = format("device {} uses registered host memory", gpu->device());
    const auto address = registered->addressFor(*gpu);
    if (!address) return report.fail(what, address.error().text());
    const auto seed = static_cast<uint32_t>(500 + gpu->device());
    const driver::cuda::Device own[] = {gpu->device()};
    auto memory = DeviceMemory::allocate(*gpu, Bytes(kBytes), own);
    Status status = memory ? writeNow(*gpu, memory->address(), makePattern(kBytes, seed)) : memory.error();
    if (status.ok()) status = copyNow(*gpu, *address, memory->address(), kBytes);
    const auto expected = makePattern(kBytes, seed);
    if (status.ok() && std::memcmp(mapping->data(), expected.data(), kBytes) != 0)
      status = error(Code::InternalError, "the host sees something else");
    report.check(what, status, *address == addressOf(mapping->data()) ? "at the host's address" : "at an address of its own");
  }
}

void checkPointers(const Machine& machine, Report& report) {
  const Gpu& gpu = *machine.gpus.back();
  auto memory = DeviceMemory::allocate(gpu, Bytes(3 * kMega), gpu.accessors());
  if (!memory) return report.fail("pointers", memory.error().text());
  const auto info = machine.driver->describePointer(memory->address() + kMega);
  if (!info) return report.fail("pointers", info.error().text());
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return report.fail("pointers", scope.error().text());
  const auto range = machine.driver->rangeOf(memory->address() + kMega);
  if (!range) return report.fail("pointers", range.error().text());
  const bool right =
      info->type == driver::cuda::MemoryType::OnDevice && info->device == gpu.device() && range->address == memory->address();
  const std::string detail =
      format("type {}, device {}, legacy IPC {}, handle types {}; range by attribute {:#x} + {}, by call {:#x} + {}, memory {:#x} + {}",
             static_cast<int>(info->type), info->device, info->legacyIpc, static_cast<int>(info->handles), info->range.address,
             info->range.bytes.value, range->address, range->bytes.value, memory->address(), memory->size().value);
  right ? report.pass("pointer into device memory", detail) : report.fail("pointer into device memory", detail);
  int here = 0;
  const auto host = machine.driver->describePointer(addressOf(&here));
  if (!host) return report.fail("pointer into host memory", host.error().text());
  host->type == driver::cuda::MemoryType::Unregistered
      ? report.pass("pointer into host memory", "not known")
      : report.note("pointer into host memory", format("type {}", static_cast<int>(host->type)));
  if (!memory->isVirtual()) return;
  const auto found = Allocation::at(gpu, memory->address() + kMega);
  if (!found) return report.fail("allocation behind an address", found.error().text());
  report.check("allocation behind an address",
               found->size() == memory->size() ? Status() : error(Code::InternalError, "it has {} bytes", found->size().value),
               format("handle types {}", static_cast<int>(found->handles())));
}

Result<uint64_t> freeOf(const Gpu& gpu) {
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  const auto left = gpu.driver().memoryLeft();
  if (!left) return tl::unexpected(left.error());
  return left->free.value;
}

void checkScratch(const Machine& machine, Report& report) {
  const Gpu& gpu = *machine.gpus.front();
  const uint64_t unit = gpu.granularity().value;
  constexpr uint64_t kWindow = memory::ScratchPool::kWindowAlignment.value;
  memory::Budget budget(gpu.device(), Bytes(4 * unit));
  memory::ScratchPool pool(gpu, budget);
  const auto before = freeOf(gpu);
  {
    auto first = pool.take(memory::Purpose::Pipes, Bytes(3 * unit));
    auto second = pool.take(memory::Purpose::Boards, Bytes(unit - kWindow));
    const auto third = pool.take(memory::Purpose::Windows, Bytes(kWindow + 1));
    auto last = pool.take(memory::Purpose::Windows, Bytes(kWindow));
    if (!first || !second || third || !last) return report.fail("scratch within a budget", "the budget is not exact");
    const auto during = freeOf(gpu);
    report.pass("scratch within a budget", format("{}; the device has {} bytes less", budget.usage().text(),
                                                  before && during ? static_cast<int64_t>(*before - *during) : -1));
    report.note("refused", third.error().text());
  }
  pool.trim();
  const auto after = freeOf(gpu);
  const bool same = before && after && *after >= *before;
  same ? report.pass("scratch is given back") : report.fail("scratch is given back", "the device has less memory than before");
}

void checkAllocator(const Machine& machine, Report& report) {
  const Gpu& gpu = *machine.gpus.back();
  memory::Budget budget(gpu.device(), Bytes(0));
  memory::DeviceAllocator allocator;
  Stopwatch watch;
  const auto memory = allocator.allocate(gpu, budget, Bytes(5 * kMega));
  if (!memory) return report.fail("allocator", memory.error().text());
  const double ms = watch.ms();
  Status status;
  for (const driver::cuda::Device device : gpu.accessors()) {
    if (status.ok() && !gpu.hasVirtualMemory()) status = allowPlainAccess(*machine.gpus[static_cast<size_t>(device)], gpu);
    if (status.ok()) status = writeNow(*machine.gpus[static_cast<size_t>(device)], addressOf(*memory), makePattern(kMega, 9));
    if (status.ok()) status = checkPattern(gpu, addressOf(*memory), kMega, 9);
  }
  if (status.ok() && !allocator.free(*memory)) status = error(Code::InternalError, "it does not free what it allocated");
  report.check("allocator", status, format("{} devices write to it; allocated in {:.2f} ms", gpu.accessors().size(), ms));
}

void checkSharing(const Machine& machine, const Owner& owner, Report& report) {
  const auto devices = static_cast<int32_t>(machine.gpus.size());
  for (const ShareKind kind : {ShareKind::PosixFd, ShareKind::LegacyIpc, ShareKind::Fabric}) {
    const std::string name = kind == ShareKind::PosixFd  ? "by descriptor"
                             : kind == ShareKind::Fabric ? "by fabric handle"
                                                         : "by legacy IPC";
    for (int32_t device = 0; device < devices; ++device) {
      const Gpu& reader = *machine.gpus[static_cast<size_t>((device + 1) % devices)];
      const std::string what = format("another process shares memory of device {} {}, device {} uses it", device, name, reader.device());
      const HandleType handles = machine.gpus[static_cast<size_t>(device)]->handles();
      const bool can =
          kind == ShareKind::LegacyIpc || includes(handles, kind == ShareKind::PosixFd ? HandleType::PosixFd : HandleType::Fabric);
      if (!can) {
        report.skip(what, "this machine has no such handles");
        continue;
      }
      Stopwatch watch;
      const Status status = shareOnce(owner, reader, device, kind);
      report.check(what, status, format("{:.1f} ms with all copies", watch.ms()));
    }
  }
}

int run(const Options& options) {
  Report report;
  auto owner = startOwner(options);
  if (!owner) {
    report.fail("the other process", owner.error().text());
    return 1;
  }
  Stopwatch watch;
  auto machine = Machine::open(options);
  if (!machine || machine->gpus.empty()) {
    report.fail("driver", machine ? "no device" : machine.error().text());
    return 2;
  }
  report.pass("driver and contexts", format("{:.0f} ms", watch.ms()));
  reportDevices(*machine, report);
  options.fake > 0 ? report.skip("NVML", "the driver is a fake") : reportNvml(*machine, report);
  if (machine->gpus.front()->hasVirtualMemory()) {
    checkPeers(*machine, report);
  } else {
    report.skip("address spaces", "no virtual memory");
  }
  checkPlainPeers(*machine, report);
  checkHost(*machine, report);
  checkPointers(*machine, report);
  checkScratch(*machine, report);
  checkAllocator(*machine, report);
  checkSharing(*machine, *owner, report);
  owner->socket.reset();
  int outcome = -1;
  waitpid(owner->pid, &outcome, 0);
  if (outcome != 0) report.fail("the other process", format("ended with {}", outcome));
  std::printf("%d failed\n", report.failures());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::probe

int main(int argc, char** argv) {
  tutti::probe::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--plain") == 0) {
      options.plain = true;
    } else if (std::strcmp(argv[i], "--fake") == 0 && i + 1 < argc) {
      options.fake = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: driver_probe [--fake DEVICES] [--plain]\n");
      return 2;
    }
  }
  return tutti::probe::run(options);
}
