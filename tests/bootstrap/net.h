// Two ends of a connection for tests: a reactor, and doors that let in whoever knows the secret.
#pragma once

#include <atomic>
#include <future>
#include <mutex>
#include <optional>

#include "bootstrap/dialer.h"
#include "bootstrap/listener.h"
#include "play.h"

namespace tutti::bootstrap::play {

/// A reactor that is held, and tasks on its thread.
struct Loop {
  Loop() {
    EXPECT_TRUE(prepareCrypto().ok());
    EXPECT_TRUE(reactor.hold().ok());
  }
  ~Loop() { reactor.stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs it on the thread and waits.
  template <class Task>
  void run(Task task) {
    std::promise<void> done;
    reactor.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  Reactor reactor;
};

inline constexpr Secret kSecret{1, 2, 3};
inline constexpr uint64_t kTopic = 77;

/// Listens on the loopback interface and keeps the connections that have proved themselves.
struct Door {
  explicit Door(Loop& l, std::string_view where = "127.0.0.1", Purpose serves = Purpose::Mesh) : loop(l) {
    auto fd = listenAt(toSocketAddress(*parseAddress(where)), "a test's door");
    EXPECT_TRUE(fd) << fd.error().text();
    address = *listeningAddress(*fd);
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(*fd));
    listener = std::make_shared<Listener>(
        loop.reactor, std::move(fds),
        [this, serves](Purpose purpose, uint64_t topic) -> std::optional<Secret> {
          if (purpose != serves || topic != kTopic) return std::nullopt;
          ++asked;
          return secret;
        },
        [this](Established connection) {
          const std::lock_guard lock(mutex);
          links.push_back(std::make_shared<Link>(loop.reactor, std::move(connection.socket), connection.keys, "a guest"));
        });
    loop.run([this] { listener->start(); });
  }
  ~Door() {
    loop.run([this] {
      listener->close();
      for (const auto& link : links) link->close();
    });
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  size_t guests() {
    const std::lock_guard lock(mutex);
    return links.size();
  }

  Loop& loop;
  Address address;
  Secret secret = kSecret;  // on the loop's thread, once it runs
  std::atomic<int> asked = 0;
  std::shared_ptr<Listener> listener;
  std::mutex mutex;
  std::vector<std::shared_ptr<Link>> links;  // under mutex
};

inline Dialer::Plan planTo(std::vector<Address> addresses) {
  Dialer::Plan plan;
  plan.addresses = std::move(addresses);
  plan.purpose = Purpose::Mesh;
  plan.topic = kTopic;
  plan.secret = kSecret;
  plan.whom = "the test's door";
  plan.pause = milliseconds(10);
  plan.roundLimit = milliseconds(1000);
  return plan;
}

/// Dials, and waits for the outcome.
inline Result<std::shared_ptr<Link>> dial(Loop& loop, Dialer::Plan plan) {
  std::promise<Result<std::shared_ptr<Link>>> done;
  auto outcome = done.get_future();
  loop.reactor.post([&, plan = std::move(plan)] {
    (void)Dialer::start(loop.reactor, plan, [&](Result<std::shared_ptr<Link>> link) { done.set_value(std::move(link)); });
  });
  return outcome.get();
}

}  // namespace tutti::bootstrap::play
