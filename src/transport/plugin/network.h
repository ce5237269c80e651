// An external network behind the internal interface.
//
// Owner: whoever opened it; comms and listeners share the library. Any thread; their comms: one at a time.
// 1. A device whose properties no device can have is an error of the whole network: none of it is used.
// 2. A version that makes a context for each communicator has one for each of them: made by forCommunicator(), but for the first one, which
//    takes over the context that the devices were read with. Each is finalized when its network and all comms of it are gone.
// 3. Its comms have no descriptors: they are tested again and again while something is under way.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "transport/net/network.h"
#include "transport/plugin/library.h"

namespace tutti::transport::plugin {

class PluginNetwork final : public net::Network {
 public:
  /// `use`: the communicator that is most likely to be the first, if any is in sight.
  static Result<std::unique_ptr<PluginNetwork>> create(std::shared_ptr<Library> library, const net::Use& use);

  std::string_view name() const override;
  int32_t devices() const override { return static_cast<int32_t>(properties_.size()); }
  Result<net::Properties> properties(int32_t device) const override;
  Result<std::shared_ptr<net::Network>> forCommunicator(const net::Use& use) override;
  Result<std::unique_ptr<net::Listener>> listen(int32_t device) override;
  Result<std::unique_ptr<net::Connecting>> connect(int32_t device, const net::Handle& handle) override;

  /// A library with its context, if it has one: finalized when the network and all its comms are gone.
  struct Session;

 private:
  explicit PluginNetwork(std::shared_ptr<Library> library) : library_(std::move(library)) {}
  static Result<std::shared_ptr<Session>> open(const std::shared_ptr<Library>& library, const net::Use& use);
  Status readDevices();
  /// What a connection of that device is made with.
  Result<std::shared_ptr<Session>> sessionFor(int32_t device) const;

  const std::shared_ptr<Library> library_;
  std::vector<net::Properties> properties_;
  mutable std::mutex mutex_;  ///< protects what follows
  std::shared_ptr<Session> session_;  ///< null once a communicator has taken it over
};

/// The first external network of the list (NCCL_NET_PLUGIN) whose init succeeds and that has devices; the rest is passed over, and a line
/// of the log says why. `use` as for create(). `wanted` (NCCL_NET), when not empty, is the name that it must have, in any case. Null: there
/// is none.
std::unique_ptr<net::Network> openExternal(std::string_view list, std::string_view wanted, const net::Use& use);

}  // namespace tutti::transport::plugin
