#include "driver/nvml/fake.h"

#include <algorithm>
#include <cstring>

#include "core/format.h"

namespace tutti::driver::nvml {
namespace {

Handle handleOf(size_t index) { return reinterpret_cast<Handle>(index + 1); }

template <size_t kRoom>
void copyText(std::array<char, kRoom>& to, const std::string& text) {
  std::strncpy(to.data(), text.c_str(), kRoom - 1);
}

/// Eight digits of domain and capitals, as the library writes it.
std::string libraryText(const std::string& busId) {
  std::string text = "0000" + busId;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

bool FakeApi::enter(const char* symbol, Error* error) {
  const std::lock_guard lock(mutex_);
  if (++calls_ == failAt_) {
    failed_ = symbol;
    *error = failWith_;
    return false;
  }
  *error = started_ > 0 ? Error::Success : Error::Uninitialized;
  return started_ > 0;
}

void FakeApi::failAt(size_t nth, Error error) {
  const std::lock_guard lock(mutex_);
  calls_ = 0;
  failAt_ = nth;
  failWith_ = error;
  failed_ = nullptr;
}

const char* FakeApi::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

int FakeApi::started() const {
  const std::lock_guard lock(mutex_);
  return started_;
}

const FakeDevice* FakeApi::deviceOf(Handle handle) const {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  return number == 0 || number > devices_.size() ? nullptr : &devices_[number - 1];
}

const std::string* FakeApi::linkOf(Handle handle, uint32_t link, Error* error) const {
  const FakeDevice* const device = deviceOf(handle);
  *error = Error::InvalidArgument;
  if (device == nullptr) return nullptr;
  if (device->links.empty()) *error = Error::NotSupported;
  if (link >= device->links.size()) return nullptr;
  *error = Error::Success;
  return &device->links[link];
}

const char* FakeApi::errorString(Error error) { return error == Error::Unknown ? "Unknown Error" : "Some Error"; }

Error FakeApi::init() {
  Error error = Error::Success;
  if (!enter("nvmlInit_v2", &error) && error != Error::Uninitialized) return error;
  const std::lock_guard lock(mutex_);
  ++started_;
  return Error::Success;
}

Error FakeApi::shutdown() {
  Error error = Error::Success;
  (void)enter("nvmlShutdown", &error);
  const std::lock_guard lock(mutex_);
  --started_;
  return error;
}

Error FakeApi::deviceGetCount(uint32_t* count) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetCount_v2", &error)) return error;
  *count = static_cast<uint32_t>(devices_.size());
  return Error::Success;
}

Error FakeApi::deviceGetHandleByIndex(uint32_t index, Handle* device) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetHandleByIndex_v2", &error)) return error;
  if (index >= devices_.size()) return Error::InvalidArgument;
  if (devices_[index].isHidden) return Error::NoPermission;
  *device = handleOf(index);
  return Error::Success;
}

Error FakeApi::deviceGetPciInfo(Handle device, PciInfo* info) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetPciInfo_v3", &error)) return error;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr) return Error::InvalidArgument;
  copyText(info->busId, libraryText(found->busId));
  return Error::Success;
}

Error FakeApi::deviceGetComputeCapability(Handle device, int32_t* major, int32_t* minor) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetCudaComputeCapability", &error)) return error;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr) return Error::InvalidArgument;
  *major = found->sm / 10;
  *minor = found->sm % 10;
  return Error::Success;
}

Error FakeApi::deviceGetHandleByPciBusId(const char* busId, Handle* device) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetHandleByPciBusId_v2", &error)) return error;
  const auto found = std::ranges::find(devices_, busId, &FakeDevice::busId);
  if (found == devices_.end()) return Error::NotFound;
  *device = handleOf(static_cast<size_t>(found - devices_.begin()));
  return Error::Success;
}

Error FakeApi::deviceGetIndex(Handle device, uint32_t* index) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetIndex", &error)) return error;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr) return Error::InvalidArgument;
  *index = static_cast<uint32_t>(found - devices_.data());
  return Error::Success;
}

Error FakeApi::deviceGetUuid(Handle device, char* uuid, uint32_t room) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetUUID", &error)) return error;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr || room < 48) return Error::InvalidArgument;
  std::strncpy(uuid, format("GPU-{}", found->busId).c_str(), room - 1);
  uuid[room - 1] = '\0';
  return Error::Success;
}

Error FakeApi::deviceGetNvLinkState(Handle device, uint32_t link, Switched* active) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetNvLinkState", &error)) return error;
  const std::string* const remote = linkOf(device, link, &error);
  if (remote != nullptr) *active = remote->empty() ? Switched::Off : Switched::On;
  return error;
}

Error FakeApi::deviceGetNvLinkVersion(Handle device, uint32_t link, uint32_t* version) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetNvLinkVersion", &error)) return error;
  if (linkOf(device, link, &error) != nullptr) *version = 6;
  return error;
}

Error FakeApi::deviceGetNvLinkRemotePciInfo(Handle device, uint32_t link, PciInfo* info) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetNvLinkRemotePciInfo_v2", &error)) return error;
  const std::string* const remote = linkOf(device, link, &error);
  if (remote == nullptr) return error;
  copyText(info->busId, libraryText(*remote));
  return Error::Success;
}

Error FakeApi::deviceGetNvLinkRemoteDeviceType(Handle device, uint32_t link, RemoteType* type) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetNvLinkRemoteDeviceType", &error)) return error;
  const std::string* const remote = linkOf(device, link, &error);
  if (remote == nullptr) return error;
  *type = std::ranges::find(devices_, *remote, &FakeDevice::busId) == devices_.end() ? RemoteType::Switch : RemoteType::Gpu;
  return Error::Success;
}

Error FakeApi::deviceGetP2PStatus(Handle from, Handle to, PeerCapability, PeerStatus* status) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetP2PStatus", &error)) return error;
  if (deviceOf(from) == nullptr || deviceOf(to) == nullptr || from == to) return Error::InvalidArgument;
  *status = peers_;
  return Error::Success;
}

Error FakeApi::deviceGetFieldValues(Handle device, int32_t count, FieldValue* values) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetFieldValues", &error)) return error;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr || count < 1) return Error::InvalidArgument;
  for (int32_t i = 0; i < count; ++i) {
    FieldValue& value = values[i];
    const bool isLink = value.field != Field::C2cLinks;
    const bool isThere = !found->c2cMBps.empty() && (!isLink || value.scope < found->c2cMBps.size());
    value.error = isThere ? Error::Success : Error::NotSupported;
    if (!isThere) continue;
    const int32_t rate = isLink ? found->c2cMBps[value.scope] : 0;
    value.value = value.field == Field::C2cLinks        ? found->c2cMBps.size()
                  : value.field == Field::C2cLinkStatus ? (rate > 0 ? 1 : 0)
                                                        : static_cast<uint64_t>(rate);
    value.value |= uint64_t{0xabcd} << 32;  // what the rest of the union holds is nobody's business
  }
  return Error::Success;
}

Error FakeApi::deviceGetGpuFabricInfo(Handle device, FabricInfo* info) {
  Error error = Error::Success;
  if (!enter("nvmlDeviceGetGpuFabricInfoV", &error)) return error;
  if (info->version != kFabricInfoVersion) return Error::ArgumentVersionMismatch;
  const FakeDevice* const found = deviceOf(device);
  if (found == nullptr) return Error::InvalidArgument;
  if (!found->fabric) return Error::NotSupported;
  *info = *found->fabric;
  return Error::Success;
}

}  // namespace tutti::driver::nvml
