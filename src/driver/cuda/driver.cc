#include "driver/cuda/driver.h"

#include <array>
#include <cctype>
#include <utility>

namespace tutti::driver::cuda {

Status Driver::failure(Error error, Call call, const std::string& asked) {
  const char* name = nullptr;
  if (api_->getErrorName(error, &name) != Error::Success || name == nullptr) name = listedName(error);
  return tutti::error(Code::UnhandledCudaError, "{}({}) failed: {} ({})", symbolOf(call), asked, name == nullptr ? "unknown error" : name,
                      static_cast<int32_t>(error));
}

AllocationProp pinnedOn(Device device, HandleType handles, bool rdma) {
  AllocationProp prop;
  prop.type = AllocationType::Pinned;
  prop.requested = handles;
  prop.location = {LocationType::OnDevice, device};
  prop.flags.rdma = rdma ? 1 : 0;
  return prop;
}

AccessDesc readWriteFrom(Device device) { return {{LocationType::OnDevice, device}, Access::ReadWrite}; }

Status Driver::init() { return check(api_->init(0), Call::init, "0"); }

Result<int32_t> Driver::version() {
  int32_t version = 0;
  const Error error = api_->driverGetVersion(&version);
  return checked(error, version, Call::driverGetVersion, "");
}

Result<int32_t> Driver::countDevices() {
  int32_t count = 0;
  const Error error = api_->deviceGetCount(&count);
  return checked(error, count, Call::deviceGetCount, "");
}

Result<int32_t> Driver::attribute(Attribute attribute, Device device, std::optional<int32_t> unknown) {
  int32_t value = 0;
  const Error error = api_->deviceGetAttribute(&value, attribute, device);
  if (error == Error::InvalidValue && unknown) return *unknown;
  return checked(error, value, Call::deviceGetAttribute, "attribute {} of device {}", static_cast<int32_t>(attribute), device);
}

namespace {

/// Reads attributes one after another until one fails.
class AttributeReader {
 public:
  AttributeReader(Driver& driver, Device device) : driver_(driver), device_(device) {}
  int32_t read(Attribute attribute, std::optional<int32_t> unknown = std::nullopt) {
    if (!status_.ok()) return 0;
    auto value = driver_.attribute(attribute, device_, unknown);
    if (value) return *value;
    status_ = std::move(value).error();
    return 0;
  }
  bool has(Attribute attribute, std::optional<int32_t> unknown = std::nullopt) { return read(attribute, unknown) != 0; }
  Status take() { return std::move(status_); }

 private:
  Driver& driver_;
  Device device_;
  Status status_;
};

}  // namespace

Result<DeviceInfo> Driver::describe(int32_t ordinal) {
  DeviceInfo info;
  std::array<char, 256> text{};
  size_t bytes = 0;
  Status status = check(api_->deviceGet(&info.device, ordinal), Call::deviceGet, "device {}", ordinal);
  if (status.ok())
    status = check(api_->deviceGetName(text.data(), text.size() - 1, info.device), Call::deviceGetName, "device {}", ordinal);
  if (status.ok()) info.name = text.data();
  text = {};
  if (status.ok())
    status = check(api_->deviceGetPciBusId(text.data(), text.size() - 1, info.device), Call::deviceGetPciBusId, "device {}", ordinal);
  for (const char* at = text.data(); status.ok() && *at != '\0'; ++at)
    info.pciBusId += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  if (status.ok()) status = check(api_->deviceGetUuid(&info.uuid, info.device), Call::deviceGetUuid, "device {}", ordinal);
  if (status.ok()) status = check(api_->deviceTotalMem(&bytes, info.device), Call::deviceTotalMem, "device {}", ordinal);
  if (!status.ok()) return tl::unexpected(std::move(status));
  info.memory = Bytes(bytes);
  AttributeReader reader(*this, info.device);
  info.major = reader.read(Attribute::ComputeCapabilityMajor);
  info.minor = reader.read(Attribute::ComputeCapabilityMinor);
  info.multiprocessors = reader.read(Attribute::MultiprocessorCount);
  info.virtualMemory = reader.has(Attribute::VirtualMemory) && reader.has(Attribute::UnifiedAddressing);
  info.posixFd = info.virtualMemory && reader.has(Attribute::PosixFileDescriptor);
  info.fabric = info.virtualMemory && reader.has(Attribute::FabricHandle, 0);
  info.rdma = info.virtualMemory && reader.has(Attribute::RdmaWithVirtualMemory);
  info.hostRegister = reader.has(Attribute::HostRegister);
  info.wideStreamOps = reader.has(Attribute::WideStreamOps);
  if (status = reader.take(); !status.ok()) return tl::unexpected(std::move(status));
  return info;
}

Result<Uuid> Driver::uuidOf(Device device) {
  Uuid uuid;
  const Error error = api_->deviceGetUuid(&uuid, device);
  return checked(error, uuid, Call::deviceGetUuid, "device {}", device);
}

Result<bool> Driver::canAccessPeer(Device device, Device peer) {
  int32_t can = 0;
  const Error error = api_->deviceCanAccessPeer(&can, device, peer);
  return checked(error, can != 0, Call::deviceCanAccessPeer, "from device {} to {}", device, peer);
}

Result<int32_t> Driver::peerAttribute(PeerAttribute attribute, Device from, Device to) {
  int32_t value = 0;
  const Error error = api_->deviceGetP2PAttribute(&value, attribute, from, to);
  return checked(error, value, Call::deviceGetP2PAttribute, "attribute {} from device {} to {}", static_cast<int32_t>(attribute), from, to);
}

Result<Context> Driver::retainPrimary(Device device) {
  Context context = nullptr;
  const Error error = api_->devicePrimaryCtxRetain(&context, device);
  return checked(error, context, Call::devicePrimaryCtxRetain, "device {}", device);
}

void Driver::releasePrimary(Device device) {
  lose(api_->devicePrimaryCtxRelease(device), Call::devicePrimaryCtxRelease, "device {}", device);
}

Status Driver::pushContext(Context context) {
  return check(api_->ctxPushCurrent(context), Call::ctxPushCurrent, "context {}", static_cast<const void*>(context));
}

void Driver::popContext() {
  Context popped = nullptr;
  const Error error = api_->ctxPopCurrent(&popped);
  lose(error, Call::ctxPopCurrent, "");
}

Result<Context> Driver::currentContext() {
  Context context = nullptr;
  const Error error = api_->ctxGetCurrent(&context);
  return checked(error, context, Call::ctxGetCurrent, "");
}

Result<Device> Driver::currentDevice() {
  Device device = -1;
  const Error error = api_->ctxGetDevice(&device);
  return checked(error, device, Call::ctxGetDevice, "");
}

Status Driver::enablePeerAccess(Context peer) {
  const Error error = api_->ctxEnablePeerAccess(peer, 0);
  if (error == Error::PeerAccessAlreadyEnabled) return {};
  return check(error, Call::ctxEnablePeerAccess, "context {}", static_cast<const void*>(peer));
}

}  // namespace tutti::driver::cuda
