#include "transport/socket/network.h"

#include <net/if.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "transport/socket/connector.h"
#include "transport/socket/handshake.h"
#include "transport/socket/recv_comm.h"

namespace tutti::transport::socket {
namespace {

constexpr int64_t kUnknownSpeedMbps = 10'000;
constexpr int32_t kMaxComms = 65536;
constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 40;

class SocketListener final : public net::Listener {
 public:
  /// `acceptor`: has been opened for `invitation`.
  SocketListener(std::shared_ptr<Acceptor> acceptor, const Invitation& invitation, const Settings& settings)
      : acceptor_(std::move(acceptor)),
        id_(invitation.listenId),
        streams_(invitation.streams),
        settings_(settings),
        handle_(encode(invitation)) {}
  ~SocketListener() override { acceptor_->close(id_); }

  const net::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<net::RecvComm>> accept() override {
    auto taken = acceptor_->take(id_);
    if (!taken) return tl::unexpected(std::move(taken).error());
    std::optional<Accepted>& accepted = *taken;
    if (!accepted.has_value()) return std::unique_ptr<net::RecvComm>();
    auto comm = RecvComm::create(std::move(accepted->streams), accepted->peer, streams_, settings_);
    if (!comm) return tl::unexpected(std::move(comm).error());
    return std::unique_ptr<net::RecvComm>(std::move(*comm));
  }

 private:
  const std::shared_ptr<Acceptor> acceptor_;
  const uint64_t id_;
  const Streams streams_;
  const Settings settings_;
  const net::Handle handle_;
};

}  // namespace

SocketNetwork::SocketNetwork(const Settings& settings, std::shared_ptr<Acceptor> acceptor)
    : settings_(settings), acceptor_(std::move(acceptor)), descriptor_(acceptor_->descriptor()) {}

Result<std::unique_ptr<SocketNetwork>> SocketNetwork::create(const std::vector<LocalAddress>& addresses, const Settings& settings) {
  if (Status status = setUpCrypto(); !status.ok()) return tl::unexpected(std::move(status));
  auto acceptor = Acceptor::create(addresses, settings);
  if (!acceptor) return tl::unexpected(std::move(acceptor).error().at("set up the socket network"));
  std::unique_ptr<SocketNetwork> network(new SocketNetwork(settings, std::move(*acceptor)));
  for (const LocalAddress& local : addresses) {
    auto& devices = network->devices_;
    auto same = std::find_if(devices.begin(), devices.end(), [&](const Device& device) { return device.interface == local.interface; });
    if (same == devices.end()) {
      const int64_t speedMbps = local.speedMbps > 0 ? local.speedMbps : readSpeedMbps(local.interface);
      devices.push_back({.interface = local.interface,
                         .speedMbps = speedMbps > 0 ? speedMbps : kUnknownSpeedMbps,
                         .scope = if_nametoindex(local.interface.c_str()),
                         .streams = chooseStreams(settings, readVendor(local.interface))});
    }
  }
  return network;
}

Status SocketNetwork::checkDevice(int32_t device) const {
  if (device >= 0 && device < devices()) return Status();
  return error(Code::InvalidArgument, "device {} of {} of the socket network", device, devices());
}

Result<net::Properties> SocketNetwork::properties(int32_t device) const {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  const Device& one = devices_[static_cast<size_t>(device)];
  net::Properties properties;
  properties.name = one.interface;
  properties.pciPath = format("/sys/class/net/{}/device", one.interface);
  properties.guid = static_cast<uint64_t>(device);
  properties.speedMbps = one.speedMbps;
  properties.maxComms = kMaxComms;
  properties.members[0] = device;
  properties.maxMessageBytes = kMaxMessageBytes;
  properties.maxCollectiveBytes = kMaxMessageBytes;
  return properties;
}

Result<std::unique_ptr<net::Listener>> SocketNetwork::listen(int32_t device) {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  const Device& one = devices_[static_cast<size_t>(device)];
  Invitation invitation;
  fillRandom(invitation.key);
  fillRandom({reinterpret_cast<uint8_t*>(&invitation.listenId), sizeof invitation.listenId});
  invitation.streams = one.streams;
  if (Status status = acceptor_->open(invitation.listenId, invitation.key, static_cast<uint16_t>(1 + one.streams.data())); !status.ok())
    return tl::unexpected(std::move(status).at("listen for a peer"));
  invitation.addresses = acceptor_->addresses(one.interface);
  std::unique_ptr<net::Listener> listener = std::make_unique<SocketListener>(acceptor_, invitation, settings_);
  forget(invitation.key);
  return listener;
}

Result<std::unique_ptr<net::Connecting>> SocketNetwork::connect(int32_t device, const net::Handle& handle) {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  auto invitation = decode(handle);
  if (!invitation) return tl::unexpected(std::move(invitation).error());
  auto connector = Connector::create(*invitation, devices_[static_cast<size_t>(device)].scope, settings_, outcomes_);
  forget(invitation->key);
  if (!connector) return tl::unexpected(std::move(connector).error());
  return std::unique_ptr<net::Connecting>(std::move(*connector));
}

}  // namespace tutti::transport::socket
