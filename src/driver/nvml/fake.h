// An NVML without a GPU, for tests: says of devices what a test has written down.
//
// Owner: the Nvml that it is given to; a test keeps a plain pointer, and changes nothing while others call. Any thread may call.
// 1. Link n of a device leads where `links[n]` says; an empty text is a link that is down.
// 2. failAt(n) fails the nth call from then on.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "driver/nvml/api.h"

namespace tutti::driver::nvml {

struct FakeDevice {
  std::string busId;               ///< "0000:1b:00.0"
  std::vector<std::string> links;  ///< bus id of the other end: of a device in the list, or of a switch
  std::optional<FabricInfo> fabric;
  int32_t sm = 90;                 ///< compute capability × 10
  bool isHidden = false;           ///< this process may not see it
  std::vector<int32_t> c2cMBps{};  // NOLINT(readability-redundant-member-init): of each C2C link; 0 is one that is down
};

class FakeApi final : public Api {
 public:
  explicit FakeApi(std::vector<FakeDevice> devices, PeerStatus peers = PeerStatus::Ok) : devices_(std::move(devices)), peers_(peers) {}

#define TUTTI_NVML_CALL(name, symbol, required, parameters, arguments) Error name parameters override;
#include "driver/nvml/calls.def"
#undef TUTTI_NVML_CALL
  const char* errorString(Error error) override;

  void failAt(size_t nth, Error error = Error::Unknown);
  /// The symbol that failAt() has made fail; null: none yet.
  const char* failed() const;
  /// How often it has been started without being shut down.
  int started() const;

 private:
  /// Whether this call, `symbol`, is to go on; otherwise *error is what it fails with.
  bool enter(const char* symbol, Error* error);
  const FakeDevice* deviceOf(Handle handle) const;
  /// The device's link of that number; null, and why, when there is none.
  const std::string* linkOf(Handle handle, uint32_t link, Error* error) const;

  const std::vector<FakeDevice> devices_;
  const PeerStatus peers_;
  mutable std::mutex mutex_;  ///< protects what follows
  int started_ = 0;
  size_t calls_ = 0;
  size_t failAt_ = 0;
  Error failWith_ = Error::Success;
  const char* failed_ = nullptr;
};

}  // namespace tutti::driver::nvml
