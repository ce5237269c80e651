#include "transport/plugin/network.h"

#include <strings.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "observe/log.h"
#include "transport/plugin/comms.h"
#include "transport/plugin/session.h"

namespace tutti::transport::plugin {
namespace {

constexpr int kMostDevices = 1024;
constexpr size_t kLongestText = 4096;

using observe::Subsys;

/// Copies a plugin's text; Failed when it does not end.
Status copyText(const char* from, std::string* to) {
  if (from == nullptr) return Status();
  const size_t size = strnlen(from, kLongestText);
  if (size == kLongestText) return error(Code::InternalError, "a text of a device does not end");
  to->assign(from, size);
  return Status();
}

Result<net::Properties> translate(const abi::PropertiesV11& raw, uint64_t mostBytes) {
  net::Properties p;
  Status status = copyText(raw.name, &p.name);
  if (status.ok()) status = copyText(raw.pciPath, &p.pciPath);
  if (!status.ok()) return tl::unexpected(std::move(status));
  p.guid = raw.guid;
  p.memoryKinds = raw.ptrSupport;
  p.registrationIsGlobal = raw.regIsGlobal != 0;
  p.forceFlush = raw.forceFlush != 0;
  p.speedMbps = raw.speed;
  p.port = raw.port;
  p.latencyUs = raw.latency;
  p.maxComms = raw.maxComms;
  p.maxReceives = raw.maxRecvs;
  p.offloadType = raw.netDeviceType;
  p.offloadVersion = raw.netDeviceVersion;
  p.numMembers = raw.vProps.ndevs;
  for (size_t i = 0; i < p.members.size(); ++i) p.members[i] = raw.vProps.devs[i];
  p.maxMessageBytes = std::min<uint64_t>(raw.maxP2pBytes, mostBytes);
  p.maxCollectiveBytes = raw.maxCollBytes;
  p.maxMultiRequest = raw.maxMultiRequestSize;
  if (raw.maxP2pBytes > uint64_t{1} << 40) {
    return fail(Code::InternalError, "device \"{}\" claims messages of {} bytes; 1 TiB is the most", p.name, raw.maxP2pBytes);
  }
  if (status = net::checkProperties(p); !status.ok()) return tl::unexpected(std::move(status));
  return p;
}

}  // namespace

Result<std::unique_ptr<PluginNetwork>> PluginNetwork::create(std::shared_ptr<Library> library, const net::Use& use) {
  std::unique_ptr<PluginNetwork> network(new PluginNetwork(std::move(library)));
  auto session = open(network->library_, use);
  if (!session) return tl::unexpected(std::move(session).error());
  network->session_ = std::move(*session);
  if (Status status = network->readDevices(); !status.ok()) return tl::unexpected(std::move(status));
  return network;
}

Result<std::shared_ptr<PluginNetwork::Session>> PluginNetwork::open(const std::shared_ptr<Library>& library, const net::Use& use) {
  auto session = std::make_shared<Session>(library, use);
  if (Status status = session->open(); !status.ok()) return tl::unexpected(std::move(status));
  return session;
}

std::string_view PluginNetwork::name() const { return library_->networkName(); }

Result<std::shared_ptr<net::Network>> PluginNetwork::forCommunicator(const net::Use& use) {
  if (!library_->version().tellsTraffic) return std::shared_ptr<net::Network>();
  std::shared_ptr<PluginNetwork> made(new PluginNetwork(library_));
  made->properties_ = properties_;
  const std::lock_guard lock(mutex_);
  if (session_ != nullptr && session_->use() == use) {
    made->session_ = std::move(session_);
    return std::shared_ptr<net::Network>(std::move(made));
  }
  auto session = open(library_, use);
  if (!session) return tl::unexpected(std::move(session).error());
  made->session_ = std::move(*session);
  session_ = nullptr;  // after the new one, so that the plugin does not end in between
  return std::shared_ptr<net::Network>(std::move(made));
}

Status PluginNetwork::readDevices() {
  const Library& library = *library_;
  int count = 0;
  TUTTI_TRY(statusOf(library.version().devices(library.raw(), &count), name(), "devices"));
  if (count < 0 || count > kMostDevices) return error(Code::InternalError, "network {} claims {} devices", name(), count);
  for (int device = 0; device < count; ++device) {
    abi::PropertiesV11 raw{};
    TUTTI_TRY(statusOf(library.version().getProperties(library.raw(), device, &raw), name(), "getProperties"));
    auto properties = translate(raw, library.version().maxMessageBytes);
    if (!properties) return std::move(properties).error().at(format("device {} of network {}", device, name()));
    properties_.push_back(std::move(*properties));
  }
  return Status();
}

Result<std::shared_ptr<PluginNetwork::Session>> PluginNetwork::sessionFor(int32_t device) const {
  if (device < 0 || device >= devices()) return fail(Code::InvalidArgument, "device {} of {} of network {}", device, devices(), name());
  const std::lock_guard lock(mutex_);
  if (session_ == nullptr) return fail(Code::InternalError, "network {} makes connections for one communicator at a time", name());
  return session_;
}

Result<net::Properties> PluginNetwork::properties(int32_t device) const {
  if (device < 0 || device >= devices()) return fail(Code::InvalidArgument, "device {} of {} of network {}", device, devices(), name());
  return properties_[static_cast<size_t>(device)];
}

Result<std::unique_ptr<net::Listener>> PluginNetwork::listen(int32_t device) {
  auto session = sessionFor(device);
  if (!session) return tl::unexpected(std::move(session).error());
  return PluginListener::create(std::move(*session), device);
}

Result<std::unique_ptr<net::Connecting>> PluginNetwork::connect(int32_t device, const net::Handle& handle) {
  auto session = sessionFor(device);
  if (!session) return tl::unexpected(std::move(session).error());
  return std::unique_ptr<net::Connecting>(std::make_unique<PluginConnecting>(std::move(*session), device, handle));
}

std::unique_ptr<net::Network> openExternal(std::string_view list, std::string_view wanted, const net::Use& use) {
  std::string problems;
  const auto refuse = [&](std::string_view what) {
    observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: {}", what);
    problems += format("{}{}", problems.empty() ? "" : "; ", what);
  };
  for (const std::string& name : pluginNames(list)) {
    auto library = Library::load(name);
    if (!library) {
      const bool isMissing = library.error().code() == Code::SystemError;
      refuse(isMissing ? format("Could not find: {}. {}", name, library.error().text()) : library.error().text());
      continue;
    }
    const std::string& own = (*library)->networkName();
    observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: Loaded net plugin {} (v{})", own, (*library)->version().number);
    if (!wanted.empty() && (wanted.size() != own.size() || strncasecmp(own.data(), wanted.data(), own.size()) != 0)) continue;
    auto network = PluginNetwork::create(std::move(*library), use);
    if (!network) {
      refuse(format("{}: {}", name, network.error().text()));
      continue;
    }
    if ((*network)->devices() == 0) {
      refuse(format("{} has no device", (*network)->name()));
      continue;
    }
    observe::info(Subsys::Init | Subsys::Net, "Initialized NET plugin {}", (*network)->name());
    return std::move(*network);
  }
  const bool isNamed = list.find_first_not_of(" \t") != std::string_view::npos;
  if (isNamed && wanted.empty() && !problems.empty())
    observe::warn("NET/Plugin: NCCL_NET_PLUGIN={} gives no network, so sockets are used: {}", list, problems);
  return nullptr;
}

}  // namespace tutti::transport::plugin
