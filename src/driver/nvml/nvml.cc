#include "driver/nvml/nvml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <utility>

#include "core/format.h"

namespace tutti::driver::nvml {
namespace {

/// Answers that say that there is nothing, rather than that something went wrong.
bool isNothing(Error error) {
  return error == Error::NotSupported || error == Error::FunctionNotFound || error == Error::ArgumentVersionMismatch;
}

}  // namespace

const char* describe(PeerStatus status) {
  switch (status) {
    case PeerStatus::Ok: return "works";
    case PeerStatus::ChipsetNotSupported: return "the chipset does not support it";
    case PeerStatus::GpuNotSupported: return "the GPU does not support it";
    case PeerStatus::TopologyNotSupported: return "the topology does not support it";
    case PeerStatus::DisabledByRegistry: return "disabled by a registry key";
    case PeerStatus::NotSupported: return "not supported";
    case PeerStatus::Unknown: return "unknown";
  }
  return "unknown";
}

std::string canonicalBusId(const char* busId) {
  std::string text(busId);
  const size_t domain = text.find(':');
  if (domain != std::string::npos && domain > 4 && text.find_first_not_of('0') >= domain - 4) text.erase(0, domain - 4);
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

Result<std::unique_ptr<Nvml>> Nvml::start(std::unique_ptr<Api> api) {
  const Error error = api->init();
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(api)));
  if (error == Error::Success) return nvml;
  Status status = nvml->failure(error, "nvmlInit_v2", "");
  nvml->api_.reset();  // nothing to shut down
  return tl::unexpected(std::move(status));
}

Nvml::~Nvml() {
  if (api_ != nullptr) (void)api_->shutdown();
}

Status Nvml::failure(Error error, const char* call, const std::string& asked) {
  const char* const words = api_->errorString(error);
  return tutti::error(Code::SystemError, "{}({}) failed: {} ({})", call, asked, words == nullptr ? "unknown error" : words,
                      static_cast<int32_t>(error));
}

Result<std::vector<Device>> Nvml::all() {
  uint32_t count = 0;
  Error error = api_->deviceGetCount(&count);
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetCount_v2", ""));
  std::vector<Device> devices;
  for (uint32_t index = 0; index < count; ++index) {
    Device device;
    error = api_->deviceGetHandleByIndex(index, &device.handle);
    if (error == Error::NoPermission) continue;
    if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetHandleByIndex_v2", format("{}", index)));
    PciInfo info;
    error = api_->deviceGetPciInfo(device.handle, &info);
    if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetPciInfo_v3", format("device {}", index)));
    info.busId.back() = '\0';
    device.busId = canonicalBusId(info.busId.data());
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<int32_t> Nvml::capability(const Device& device) {
  int32_t major = 0;
  int32_t minor = 0;
  const Error error = api_->deviceGetComputeCapability(device.handle, &major, &minor);
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetCudaComputeCapability", device.busId));
  return major * 10 + minor;
}

Result<Device> Nvml::find(const std::string& busId) {
  Device device{nullptr, busId};
  const Error error = api_->deviceGetHandleByPciBusId(busId.c_str(), &device.handle);
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetHandleByPciBusId_v2", busId));
  return device;
}

Result<uint32_t> Nvml::index(const Device& device) {
  uint32_t index = 0;
  const Error error = api_->deviceGetIndex(device.handle, &index);
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetIndex", device.busId));
  return index;
}

Result<std::string> Nvml::uuid(const Device& device) {
  std::array<char, 96> text{};
  const Error error = api_->deviceGetUuid(device.handle, text.data(), text.size());
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetUUID", device.busId));
  text.back() = '\0';
  return std::string(text.data());
}

Result<std::vector<Link>> Nvml::links(const Device& device) {
  std::vector<Link> links;
  for (uint32_t number = 0; number < kMostLinks; ++number) {
    auto found = link(device, number);
    if (!found) return tl::unexpected(std::move(found).error());
    if (std::optional<Link>& link = *found; link) links.push_back(std::move(*link));
  }
  return links;
}

/// Nothing when the device has no such link, or it is down.
Result<std::optional<Link>> Nvml::link(const Device& device, uint32_t number) {
  const auto asked = [&] { return format("link {} of {}", number, device.busId); };
  Switched active = Switched::Off;
  Error error = api_->deviceGetNvLinkState(device.handle, number, &active);
  if (isNothing(error) || error == Error::InvalidArgument) return std::nullopt;
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetNvLinkState", asked()));
  if (active != Switched::On) return std::nullopt;
  Link link;
  link.number = number;
  error = api_->deviceGetNvLinkVersion(device.handle, number, &link.version);
  if (error != Error::Success && !isNothing(error)) return tl::unexpected(failure(error, "nvmlDeviceGetNvLinkVersion", asked()));
  error = api_->deviceGetNvLinkRemoteDeviceType(device.handle, number, &link.remote);
  if (error != Error::Success && !isNothing(error)) return tl::unexpected(failure(error, "nvmlDeviceGetNvLinkRemoteDeviceType", asked()));
  PciInfo remote;
  error = api_->deviceGetNvLinkRemotePciInfo(device.handle, number, &remote);
  if (error != Error::Success && !isNothing(error)) return tl::unexpected(failure(error, "nvmlDeviceGetNvLinkRemotePciInfo_v2", asked()));
  remote.busId.back() = '\0';
  if (error == Error::Success) link.remoteBusId = canonicalBusId(remote.busId.data());
  return link;
}

Result<C2cLinks> Nvml::c2cLinks(const Device& device) {
  constexpr uint32_t kMost = 64;  // nothing has as many
  constexpr uint32_t kActive = 1;
  const auto number = [](const FieldValue& value) { return static_cast<uint32_t>(value.value); };
  C2cLinks found;
  FieldValue links{.field = Field::C2cLinks};
  Error error = api_->deviceGetFieldValues(device.handle, 1, &links);
  const bool isUnknown = isNothing(error) || error == Error::InvalidArgument;  // to an older library the field is no field
  if (isUnknown || (error == Error::Success && links.error != Error::Success)) return found;
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetFieldValues", format("C2C links of {}", device.busId)));
  for (uint32_t link = 0; link < std::min(number(links), kMost); ++link) {
    FieldValue asked[] = {{.field = Field::C2cLinkStatus, .scope = link}, {.field = Field::C2cLinkMBps, .scope = link}};
    error = api_->deviceGetFieldValues(device.handle, 2, asked);
    if (error != Error::Success)
      return tl::unexpected(failure(error, "nvmlDeviceGetFieldValues", format("C2C link {} of {}", link, device.busId)));
    if (asked[0].error != Error::Success || number(asked[0]) != kActive || asked[1].error != Error::Success) continue;
    ++found.count;
    found.megabytesPerSecond = static_cast<int32_t>(std::min<uint32_t>(number(asked[1]), INT32_MAX));
  }
  return found;
}

Result<PeerStatus> Nvml::peerStatus(const Device& from, const Device& to, PeerCapability capability) {
  PeerStatus status = PeerStatus::Unknown;
  const Error error = api_->deviceGetP2PStatus(from.handle, to.handle, capability, &status);
  if (error != Error::Success)
    return tl::unexpected(failure(error, "nvmlDeviceGetP2PStatus",
                                  format("capability {} from {} to {}", static_cast<int32_t>(capability), from.busId, to.busId)));
  return status;
}

Result<std::optional<FabricInfo>> Nvml::fabric(const Device& device) {
  FabricInfo info;
  info.version = kFabricInfoVersion;
  const Error error = api_->deviceGetGpuFabricInfo(device.handle, &info);
  if (isNothing(error)) return std::nullopt;
  if (error != Error::Success) return tl::unexpected(failure(error, "nvmlDeviceGetGpuFabricInfoV", device.busId));
  if (info.state == FabricState::NotSupported) return std::nullopt;
  return info;
}

}  // namespace tutti::driver::nvml
