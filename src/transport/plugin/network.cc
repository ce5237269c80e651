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

Result<std::unique_ptr<PluginNetwork>> PluginNetwork::create(std::shared_ptr<Library> library, uint64_t commId) {
  auto session = std::make_shared<Session>(std::move(library));
  if (Status status = session->open(commId); !status.ok()) return tl::unexpected(std::move(status));
  std::unique_ptr<PluginNetwork> network(new PluginNetwork(std::move(session)));
  if (Status status = network->readDevices(); !status.ok()) return tl::unexpected(std::move(status));
  return network;
}

std::string_view PluginNetwork::name() const { return session_->library().networkName(); }

Status PluginNetwork::readDevices() {
  const Library& library = session_->library();
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

Status PluginNetwork::checkDevice(int32_t device) const {
  if (device >= 0 && device < devices()) return Status();
  return error(Code::InvalidArgument, "device {} of {} of network {}", device, devices(), name());
}

Result<net::Properties> PluginNetwork::properties(int32_t device) const {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  return properties_[static_cast<size_t>(device)];
}

Result<std::unique_ptr<net::Listener>> PluginNetwork::listen(int32_t device) {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  return PluginListener::create(session_, device);
}

Result<std::unique_ptr<net::Connecting>> PluginNetwork::connect(int32_t device, const net::Handle& handle) {
  if (Status status = checkDevice(device); !status.ok()) return tl::unexpected(std::move(status));
  return std::unique_ptr<net::Connecting>(std::make_unique<PluginConnecting>(session_, device, handle));
}

std::unique_ptr<net::Network> openExternal(std::string_view list, std::string_view wanted, uint64_t commId) {
  for (const std::string& name : pluginNames(list)) {
    auto library = Library::load(name);
    if (!library) {
      if (library.error().code() == Code::SystemError) {
        observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: Could not find: {}. {}", name, library.error().text());
      } else {
        observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: {}", library.error().text());
      }
      continue;
    }
    const std::string& own = (*library)->networkName();
    observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: Loaded net plugin {} (v{})", own, (*library)->version().number);
    if (!wanted.empty() && (wanted.size() != own.size() || strncasecmp(own.data(), wanted.data(), own.size()) != 0)) continue;
    auto network = PluginNetwork::create(std::move(*library), commId);
    if (!network) {
      observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: {}: {}", name, network.error().text());
      continue;
    }
    if ((*network)->devices() == 0) {
      observe::info(Subsys::Init | Subsys::Net, "NET/Plugin: {} has no device", (*network)->name());
      continue;
    }
    observe::info(Subsys::Init | Subsys::Net, "Initialized NET plugin {}", (*network)->name());
    return std::move(*network);
  }
  return nullptr;
}

}  // namespace tutti::transport::plugin
