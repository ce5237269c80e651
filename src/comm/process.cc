#include "comm/process.h"

#include <utility>

#include "bootstrap/interfaces.h"
#include "config/params.h"
#include "transport/socket/network.h"

namespace tutti::comm {

Result<void*> StreamTable::create() {
  auto stream = std::make_shared<exec::host::Stream>();
  if (Status status = stream->start(config::get<config::Param::SetThreadName>() ? "tutti stream" : nullptr); !status.ok())
    return tl::unexpected(std::move(status));
  void* handle = stream.get();
  const std::lock_guard lock(mutex_);
  live_.emplace(handle, std::move(stream));
  return handle;
}

std::shared_ptr<exec::host::Stream> StreamTable::find(void* handle) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(handle);
  return it == live_.end() ? nullptr : it->second;
}

std::shared_ptr<exec::host::Stream> StreamTable::remove(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(handle);
  if (it == live_.end()) return nullptr;
  std::shared_ptr<exec::host::Stream> stream = std::move(it->second);
  live_.erase(it);
  return stream;
}

Result<progress::Engine*> NetworkEngine::engine() {
  namespace socket = transport::socket;
  const std::lock_guard lock(mutex_);
  if (engine_ != nullptr) return engine_.get();
  const auto all = bootstrap::listInterfaces();
  if (!all) return tl::unexpected(all.error());
  const auto choice = bootstrap::chooseInterfaces(*all, config::get<config::Param::SocketIfname>(),
                                                  bootstrap::parseFamily(config::get<config::Param::SocketFamily>()));
  if (!choice) return tl::unexpected(choice.error());
  std::vector<socket::LocalAddress> addresses;
  for (const bootstrap::Interface& interface : choice->chosen) {
    const bootstrap::SocketAddress raw = bootstrap::toSocketAddress(interface.address);
    auto address = socket::Address::of(reinterpret_cast<const sockaddr*>(&raw.storage), raw.size);
    if (address) addresses.push_back({interface.name, *address, 0});
  }
  auto network = socket::SocketNetwork::create(addresses, socket::readSettings());
  if (!network) return tl::unexpected(std::move(network).error());
  auto engine = progress::Engine::create(std::move(*network));
  if (!engine) return tl::unexpected(std::move(engine).error());
  engine_ = std::move(*engine);
  return engine_.get();
}

Process& process() {
  static Process* const state = new Process;  // never destroyed, see the header
  return *state;
}

ThreadState& thisThread() {
  // One pointer of thread-local storage, whatever the state grows to: the library is opened into other people's processes.
  thread_local std::unique_ptr<ThreadState> state;
  if (!state) [[unlikely]]
    state = std::make_unique<ThreadState>();
  return *state;
}

}  // namespace tutti::comm
