// What NVML knows of GPUs and the driver does not say: NVLinks and what they lead to, why peers cannot reach each other, the fabric.
//
// Owner: one for the process; tests make their own on a fake. It owns the Api. Any thread may call.
// 1. Initialised as long as it lives. Each failure is a Status (SystemError) that names the call, the device, the error's words and number.
// 2. What a device does not have is an answer, not an error: no links, no fabric.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "driver/nvml/api.h"

namespace tutti::driver::nvml {

struct Device {
  Handle handle = nullptr;
  std::string busId;  ///< as it was asked for
};

/// An NVLink that is up.
struct Link {
  uint32_t number = 0;
  uint32_t version = 0;  ///< 0: not said
  RemoteType remote = RemoteType::Unknown;
  std::string remoteBusId;  ///< "0000:1b:00.0", small letters; empty: not said
};

struct C2cLinks {
  int32_t count = 0;
  int32_t megabytesPerSecond = 0;  ///< of each
};

class Nvml {
 public:
  static Result<std::unique_ptr<Nvml>> start(std::unique_ptr<Api> api);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// All devices of the machine that this process may see, whatever CUDA_VISIBLE_DEVICES says; those that it may not are left out.
  Result<std::vector<Device>> all();
  /// Compute capability × 10.
  Result<int32_t> capability(const Device& device);
  /// By the driver's name of the bus, "0000:1b:00.0".
  Result<Device> find(const std::string& busId);
  /// NVML's own number of the device, which CUDA_VISIBLE_DEVICES does not change.
  Result<uint32_t> index(const Device& device);
  Result<std::string> uuid(const Device& device);
  Result<std::vector<Link>> links(const Device& device);
  /// Links to the CPU that are up, and the speed of one of them; none where the device or the library knows none.
  Result<C2cLinks> c2cLinks(const Device& device);
  Result<PeerStatus> peerStatus(const Device& from, const Device& to, PeerCapability capability);
  /// Nothing when the device or the library has none. Its state says whether its cluster and clique are known.
  Result<std::optional<FabricInfo>> fabric(const Device& device);

 private:
  explicit Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}
  Status failure(Error error, const char* call, const std::string& asked);
  Result<std::optional<Link>> link(const Device& device, uint32_t number);
  std::unique_ptr<Api> api_;
};

/// "disabled by a registry key", ….
const char* describe(PeerStatus status);
/// "0000:1b:00.0" of whatever form a bus id has: eight digits of domain, capitals.
std::string canonicalBusId(const char* busId);

}  // namespace tutti::driver::nvml
