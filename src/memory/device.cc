#include "memory/device.h"

#include <optional>
#include <utility>

namespace tutti::memory {

using driver::cuda::ContextScope;
using driver::cuda::Driver;
using driver::cuda::HandleType;
using driver::cuda::OwnedMemory;
using driver::cuda::PrimaryContext;

namespace {

/// What plain memory grows by: the size of the pages that drivers give it.
constexpr Bytes kPlainGranularity{uint64_t{2} << 20};

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(Driver& driver, int32_t ordinal, bool virtualMemory) {
  const auto info = driver.describe(ordinal);
  if (!info) return tl::unexpected(info.error());
  auto context = PrimaryContext::retain(driver, *info);
  if (!context) return tl::unexpected(std::move(context).error());
  std::unique_ptr<Gpu> gpu(new Gpu(std::move(*context)));
  if (Status status = gpu->learn(virtualMemory); !status.ok()) return tl::unexpected(std::move(status));
  return gpu;
}

Status Gpu::learn(bool virtualMemory) {
  const auto count = driver().countDevices();
  if (!count) return count.error();
  accessors_.push_back(device());
  for (int32_t other = 0; other < *count; ++other) {
    if (other == device()) continue;
    const auto can = driver().canAccessPeer(other, device());
    if (!can) return can.error();
    if (*can) accessors_.push_back(other);
  }
  virtualMemory_ = virtualMemory && info().virtualMemory;
  granularity_ = kPlainGranularity;
  if (!virtualMemory_) return {};
  if (info().posixFd) handles_ = HandleType::PosixFd;
  const auto granularity = driver().granularity(properties(), driver::cuda::Granularity::Recommended);
  if (!granularity) return granularity.error();
  granularity_ = *granularity;
  return info().fabric ? learnFabric() : Status();
}

/// Machines whose devices know fabric handles may still not hand them out: no fabric manager, no channel for this user, no NVSwitch.
Status Gpu::learnFabric() {
  const HandleType with = info().posixFd ? HandleType::PosixFdAndFabric : HandleType::Fabric;
  const HandleType without = std::exchange(handles_, with);
  auto tried = driver().createIfPermitted(granularity_, properties());
  if (!tried) return std::move(tried).error();
  const std::optional<driver::cuda::MemHandle> handle = *tried;
  if (!handle) {
    handles_ = without;
    return {};
  }
  const OwnedMemory memory(driver(), *handle);
  auto exported = driver().exportFabricIfPermitted(memory.get());
  if (!exported) return std::move(exported).error();
  if (!*exported) handles_ = without;
  return {};
}

Bytes Gpu::roundUp(Bytes bytes) const {
  const uint64_t unit = granularity_.value;
  return Bytes((bytes.value / unit + (bytes.value % unit != 0 ? 1 : 0)) * unit);
}

driver::cuda::AllocationProp Gpu::properties() const { return driver::cuda::pinnedOn(device(), handles_, info().rdma); }

Status allowPlainAccess(const Gpu& reader, const Gpu& owner) {
  if (reader.device() == owner.device()) return {};
  const auto scope = ContextScope::enter(reader.context());
  if (!scope) return scope.error();
  return reader.driver().enablePeerAccess(owner.context().get());
}

}  // namespace tutti::memory
