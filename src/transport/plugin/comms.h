// Listeners and connections of an external network: each call becomes one call of the plugin.
//
// Owner: a job of the engine. One thread at a time.
// 1. Every message must lie in registered memory.
// 2. A request that the plugin does not take (it returns success and no request) is Pending.
#pragma once

#include <memory>

#include "transport/net/network.h"
#include "transport/plugin/network.h"
#include "transport/plugin/session.h"

namespace tutti::transport::plugin {

using SharedSession = std::shared_ptr<PluginNetwork::Session>;

class PluginSendComm final : public net::SendComm {
 public:
  PluginSendComm(SharedSession session, void* comm) : session_(std::move(session)), comm_(comm) {}
  ~PluginSendComm() override;

  bool needsRegistration() const override { return true; }
  Result<net::MemoryKey> registerMemory(void* data, uint64_t bytes, net::MemoryKind kind) override;
  void deregisterMemory(net::MemoryKey key) override;
  Poll isend(std::span<const net::OutMessage> messages, net::Request* request) override;
  net::Tested test(net::Request request, uint64_t* bytes) override;
  Status status() const override { return status_; }
  std::string peerText() const override { return session_->library().networkName(); }

 private:
  const SharedSession session_;
  void* const comm_;
  Status status_;
};

class PluginRecvComm final : public net::RecvComm {
 public:
  PluginRecvComm(SharedSession session, void* comm) : session_(std::move(session)), comm_(comm) {}
  ~PluginRecvComm() override;

  bool needsRegistration() const override { return true; }
  Result<net::MemoryKey> registerMemory(void* data, uint64_t bytes, net::MemoryKind kind) override;
  void deregisterMemory(net::MemoryKey key) override;
  Poll irecv(const net::InMessage& message, net::Request* request) override;
  Poll iflush(const net::InMessage& message, net::Request* request) override;
  net::Tested test(net::Request request, uint64_t* bytes) override;
  Status status() const override { return status_; }
  std::string peerText() const override { return session_->library().networkName(); }

 private:
  const SharedSession session_;
  void* const comm_;
  Status status_;
};

class PluginListener final : public net::Listener {
 public:
  static Result<std::unique_ptr<net::Listener>> create(SharedSession session, int32_t device);
  ~PluginListener() override;
  const net::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<net::RecvComm>> accept() override;

 private:
  explicit PluginListener(SharedSession session) : session_(std::move(session)) {}
  const SharedSession session_;
  void* comm_ = nullptr;
  net::Handle handle_;
};

class PluginConnecting final : public net::Connecting {
 public:
  PluginConnecting(SharedSession session, int32_t device, const net::Handle& handle)
      : session_(std::move(session)), device_(device), handle_(handle) {}
  Result<std::unique_ptr<net::SendComm>> poll() override;

 private:
  const SharedSession session_;
  const int32_t device_;
  alignas(8) net::Handle handle_;  ///< the plugin may keep its state in it from call to call
};

}  // namespace tutti::transport::plugin
