#include "comm/networks.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "bootstrap/interfaces.h"
#include "config/params.h"
#include "observe/log.h"
#include "transport/plugin/network.h"
#include "transport/socket/network.h"

namespace tutti::comm {

using config::Param;
using transport::net::Network;
using transport::net::Use;

namespace {

constexpr std::string_view kSocket = "socket";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// On the interfaces that the variables of sockets leave.
Result<std::shared_ptr<Network>> openSockets() {
  namespace socket = transport::socket;
  const auto all = bootstrap::listInterfaces();
  if (!all) return tl::unexpected(all.error());
  const std::string names = config::get<Param::SocketIfname>();
  auto choice = bootstrap::chooseInterfaces(*all, names, bootstrap::parseFamily(config::get<Param::SocketFamily>()));
  if (!choice) return tl::unexpected(std::move(choice).error());
  const bootstrap::Choice forData = bootstrap::forData(std::move(*choice), names);
  for (const std::string& line : forData.table())
    observe::info(observe::Subsys::Init | observe::Subsys::Net, "NET/Socket : interface{}", line);
  std::vector<socket::LocalAddress> addresses;
  for (const bootstrap::Interface& interface : forData.chosen()) {
    const bootstrap::SocketAddress raw = bootstrap::toSocketAddress(interface.address);
    auto address = socket::Address::of(reinterpret_cast<const sockaddr*>(&raw.storage), raw.size);
    if (address) addresses.push_back({interface.name, *address, 0});
  }
  auto network = socket::SocketNetwork::create(addresses, socket::readSettings());
  if (!network) return tl::unexpected(std::move(network).error());
  return std::shared_ptr<Network>(std::move(*network));
}

Result<std::shared_ptr<Network>> open(const std::string& wanted, const Use& use) {
  if (wanted == kSocket) return openSockets();
  const std::string plugins = config::get<Param::NetPlugin>();
  if (auto external = transport::plugin::openExternal(plugins, wanted, use)) return std::shared_ptr<Network>(std::move(external));
  if (wanted.empty()) return openSockets();
  return fail(Code::InvalidUsage, "there is no network '{}': known are Socket and what NCCL_NET_PLUGIN ('{}') loads", wanted, plugins);
}

/// What the environment wants, otherwise `wanted`.
std::string nameOf(const std::string& wanted) {
  const std::string environment = config::get<Param::Net>();
  return lower(environment.empty() ? wanted : environment);
}

}  // namespace

Result<std::shared_ptr<Network>> openNetwork(const std::string& wanted) { return open(nameOf(wanted), {}); }

/// Keeps an engine, and ends it with the last who uses it.
struct Networks::Life {
  Networks& owner;
  Entry* entry = nullptr;
  std::unique_ptr<progress::Engine> engine;

  explicit Life(Networks& networks) : owner(networks) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  ~Life() {
    if (engine == nullptr) return;
    engine.reset();
    const std::lock_guard lock(owner.mutex_);
    entry->isRunning = false;
    owner.ended_.notify_all();
  }
};

void Networks::forgetEngines() {
  const std::unique_lock lock(mutex_, std::try_to_lock);  // who has it is not here
  if (!lock.owns_lock()) return;
  for (auto& [name, entry] : entries_) entry = {};
}

Result<std::shared_ptr<progress::Engine>> Networks::engine(const std::string& wanted, const Use& use) {
  const std::string name = nameOf(wanted);
  auto made = std::make_shared<Life>(*this);  // it takes the lock when it goes
  std::unique_lock lock(mutex_);
  Entry& entry = entries_[name];
  std::shared_ptr<Life> life;
  ended_.wait(lock, [&] { return (life = entry.life.lock()) != nullptr || !entry.isRunning; });
  if (life != nullptr) return std::shared_ptr<progress::Engine>(life, life->engine.get());
  auto network = open(name, use);
  if (!network) return tl::unexpected(std::move(network).error());
  observe::info(observe::Subsys::Init | observe::Subsys::Net, "Using network {}", (*network)->name());
  auto engine = progress::Engine::create(std::move(*network), config::get<Param::SetThreadName>() != 0);
  if (!engine) return tl::unexpected(std::move(engine).error());
  made->engine = std::move(*engine);
  made->entry = &entry;
  entry.life = made;
  entry.isRunning = true;
  return std::shared_ptr<progress::Engine>(made, made->engine.get());
}

}  // namespace tutti::comm
