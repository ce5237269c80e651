// The built-in network: TCP over the addresses that it is given, IPv4 and IPv6.
//
// Owner: whoever made it; listeners share what they need of it. Any thread.
// 1. A device is an interface with its addresses. A listener offers those first, then the addresses of the other devices.
// 2. Nothing is read from the environment after create().
#pragma once

#include <memory>
#include <vector>

#include "transport/net/network.h"
#include "transport/socket/acceptor.h"
#include "transport/socket/address.h"
#include "transport/socket/outcomes.h"
#include "transport/socket/settings.h"

namespace tutti::transport::socket {

class SocketNetwork final : public net::Network {
 public:
  /// `addresses`: those that peers may reach, best first. At least one must be one of this machine's.
  static Result<std::unique_ptr<SocketNetwork>> create(const std::vector<LocalAddress>& addresses, const Settings& settings);

  std::string_view name() const override { return "Socket"; }
  int32_t devices() const override { return static_cast<int32_t>(devices_.size()); }
  Result<net::Properties> properties(int32_t device) const override;
  Result<std::unique_ptr<net::Listener>> listen(int32_t device) override;
  Result<std::unique_ptr<net::Connecting>> connect(int32_t device, const net::Handle& handle) override;
  std::span<const int> acceptDescriptors() const override { return {&descriptor_, 1}; }
  void speak() override { acceptor_->speak(); }
  size_t pendingForTest() const { return acceptor_->pendingForTest(); }

 private:
  struct Device {
    std::string interface;
    int64_t speedMbps = 0;
    uint32_t scope = 0;  ///< of link-local addresses
    Streams streams;
  };
  SocketNetwork(const Settings& settings, std::shared_ptr<Acceptor> acceptor);
  Status checkDevice(int32_t device) const;

  const Settings settings_;
  const std::shared_ptr<Acceptor> acceptor_;
  const std::shared_ptr<Outcomes> outcomes_ = std::make_shared<Outcomes>();
  int descriptor_;
  std::vector<Device> devices_;
};

}  // namespace tutti::transport::socket
