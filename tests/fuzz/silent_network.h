// A network over which nothing comes and nobody can be reached: for targets that need one and must not open sockets.
#pragma once

#include <memory>
#include <string_view>

#include "transport/net/network.h"

namespace tutti::fuzz {

class SilentNetwork final : public transport::net::Network {
 public:
  std::string_view name() const override { return "Silent"; }
  int32_t devices() const override { return 1; }
  Result<transport::net::Properties> properties(int32_t) const override {
    transport::net::Properties one;
    one.name = "silent0";
    one.maxMessageBytes = uint64_t{1} << 20;
    return one;
  }
  Result<std::unique_ptr<transport::net::Listener>> listen(int32_t) override { return std::make_unique<Deaf>(); }
  Result<std::unique_ptr<transport::net::Connecting>> connect(int32_t, const transport::net::Handle&) override {
    return fail(Code::RemoteError, "nobody is there");
  }

 private:
  class Deaf final : public transport::net::Listener {
   public:
    const transport::net::Handle& handle() const override { return handle_; }
    Result<std::unique_ptr<transport::net::RecvComm>> accept() override { return std::unique_ptr<transport::net::RecvComm>(); }

   private:
    const transport::net::Handle handle_{};
  };
};

/// Accepts one connection, the one that it was made with.
class OneListener final : public transport::net::Listener {
 public:
  explicit OneListener(std::unique_ptr<transport::net::RecvComm> comm) : comm_(std::move(comm)) {}
  const transport::net::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<transport::net::RecvComm>> accept() override { return std::move(comm_); }

 private:
  const transport::net::Handle handle_{};
  std::unique_ptr<transport::net::RecvComm> comm_;
};

}  // namespace tutti::fuzz
