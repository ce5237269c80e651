// A connected pair of comms over any network, for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "transport/net/network.h"
#include "transport/socket/network.h"

namespace tutti::transport::socket {

inline Address at(const char* ip, uint16_t port = 0) {
  const auto address = Address::parse(ip, port);
  EXPECT_TRUE(address) << ip;
  return address ? *address : Address();
}

inline std::unique_ptr<SocketNetwork> makeNetwork(const std::vector<const char*>& ips = {"127.0.0.1"}, const Settings& settings = {}) {
  std::vector<LocalAddress> locals;
  for (const char* ip : ips) locals.push_back({.interface = "lo", .address = at(ip)});
  auto network = SocketNetwork::create(locals, settings);
  if (!network) {
    ADD_FAILURE() << network.error().text();
    return nullptr;
  }
  return std::move(*network);
}

struct Joined {
  std::unique_ptr<net::SendComm> send;
  std::unique_ptr<net::RecvComm> recv;
  Status problem;

  static Joined make(net::Network& from, net::Network& to, std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    Joined joined;
    auto listener = to.listen(0);
    if (!listener) return joined.problem = listener.error(), std::move(joined);
    auto connecting = from.connect(0, (*listener)->handle());
    if (!connecting) return joined.problem = connecting.error(), std::move(joined);
    const auto end = std::chrono::steady_clock::now() + patience;
    while ((!joined.send || !joined.recv) && std::chrono::steady_clock::now() < end) {
      if (!joined.send) {
        auto sent = (*connecting)->poll();
        if (!sent) return joined.problem = sent.error(), std::move(joined);
        joined.send = std::move(*sent);
      }
      if (!joined.recv) {
        auto got = (*listener)->accept();
        if (!got) return joined.problem = got.error(), std::move(joined);
        joined.recv = std::move(*got);
      }
      std::this_thread::yield();
    }
    if (!joined.send || !joined.recv) joined.problem = Status(Code::SystemError, "no connection in time");
    return joined;
  }

  /// Tests both requests until they are done. The size that was received; nothing on failure.
  std::optional<uint64_t> finish(net::Request out, net::Request in) const {
    uint64_t bytes = 0;
    bool outDone = !out;
    bool inDone = !in;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((!outDone || !inDone) && std::chrono::steady_clock::now() < end) {
      if (!outDone) {
        const Poll poll = send->test(out, nullptr).poll;
        if (poll == Poll::Failed) return std::nullopt;
        outDone = poll == Poll::Ready;
      }
      if (!inDone) {
        const Poll poll = recv->test(in, &bytes).poll;
        if (poll == Poll::Failed) return std::nullopt;
        inDone = poll == Poll::Ready;
      }
    }
    return outDone && inDone ? std::optional(bytes) : std::nullopt;
  }
};

}  // namespace tutti::transport::socket
