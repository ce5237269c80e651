// An external network behind the internal interface.
//
// Owner: whoever opened it; comms and listeners share the library. Any thread; their comms: one at a time.
// 1. A device whose properties no device can have is an error of the whole network: none of it is used.
// 2. Its comms have no descriptors: they are tested again and again while something is under way.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "transport/net/network.h"
#include "transport/plugin/library.h"

namespace tutti::transport::plugin {

class PluginNetwork final : public net::Network {
 public:
  /// `commId`: what tells a plugin of version 11 the communicators apart.
  static Result<std::unique_ptr<PluginNetwork>> create(std::shared_ptr<Library> library, uint64_t commId);

  std::string_view name() const override;
  int32_t devices() const override { return static_cast<int32_t>(properties_.size()); }
  Result<net::Properties> properties(int32_t device) const override;
  Result<std::unique_ptr<net::Listener>> listen(int32_t device) override;
  Result<std::unique_ptr<net::Connecting>> connect(int32_t device, const net::Handle& handle) override;

  /// A library with its context, if it has one: finalized when the network and all its comms are gone.
  struct Session;

 private:
  explicit PluginNetwork(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  Status readDevices();
  Status checkDevice(int32_t device) const;

  std::shared_ptr<Session> session_;
  std::vector<net::Properties> properties_;
};

/// The first external network of the list (NCCL_NET_PLUGIN) whose init succeeds and that has devices; the rest is passed over, and a line
/// of the log says why. `wanted` (NCCL_NET), when not empty, is the name that it must have, in any case. Null: there is none.
std::unique_ptr<net::Network> openExternal(std::string_view list, std::string_view wanted, uint64_t commId);

}  // namespace tutti::transport::plugin
