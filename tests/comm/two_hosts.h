// Two hosts of one rank each in one process: engines over the loopback interface, and a mesh whose messages a test hands over itself.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"
#include "comm/courier.h"
#include "comm/distant.h"
#include "progress/linked.h"
#include "transport/local/hub.h"

namespace tutti::comm {

using transport::local::Hub;

struct Letter {
  int32_t from;
  int32_t to;
  std::vector<std::byte> message;
};

/// What is under way, which processes are known as gone, and what is to be called later.
struct Post {
  std::mutex mutex;
  std::deque<Letter> letters;
  std::set<int32_t> gone;
  std::vector<std::function<void()>> later;

  /// Time passes, too.
  std::deque<Letter> takeAll() {
    std::unique_lock lock(mutex);
    const auto due = std::exchange(later, {});
    lock.unlock();
    for (const auto& call : due) call();
    lock.lock();
    return std::exchange(letters, {});
  }
};

class PostMesh final : public bootstrap::Mesh {
 public:
  PostMesh(int32_t self, Post& post) : self_(self), post_(post) {}
  Status send(int32_t process, std::span<const std::byte> message) override {
    const std::lock_guard lock(post_.mutex);
    if (post_.gone.count(process) != 0) return error(Code::RemoteError, "process {} is gone", process);
    post_.letters.push_back({self_, process, {message.begin(), message.end()}});
    return {};
  }
  Status tell(int32_t process, std::span<const std::byte> message) override { return send(process, message); }
  bool isReachable(int32_t process) const override {
    const std::lock_guard lock(post_.mutex);
    return post_.gone.count(process) == 0;
  }
  void after(std::chrono::milliseconds, std::function<void()> call) override {
    const std::lock_guard lock(post_.mutex);
    post_.later.push_back(std::move(call));
  }
  void setHandlers(OnMessage, OnLost) override {}
  std::shared_ptr<bootstrap::Exchange> allGather(std::span<const std::byte>, std::chrono::milliseconds) override { return nullptr; }
  std::shared_ptr<bootstrap::Exchange> barrier(std::chrono::milliseconds) override { return nullptr; }
  Counters counters() const override { return {}; }

 private:
  const int32_t self_;
  Post& post_;
};

/// Process p is alone on its side of the test; processes 1 and 2 are on one host, of which only 1 exists.
class TwoHosts {
 public:
  static constexpr uint64_t kHub = 77;

  TwoHosts() {
    for (int32_t p = 0; p < 2; ++p) {
      Side& side = sides_[static_cast<size_t>(p)];
      side.roster = std::make_shared<bootstrap::Roster>();
      bootstrap::Roster& roster = *side.roster;
      roster.ranks = 3;
      roster.processOf = {0, 1, 2};
      for (int32_t r = 0; r < 3; ++r)
        roster.processes.push_back({.token = 1, .pid = 100 + r, .host = r == 0 ? 0 : 1, .ranks = {r}, .addresses = {}});
      roster.hosts = {{"left", 1, {0}}, {"right", 2, {1, 2}}};
      roster.ownProcess = roster.ownHost = p;
      roster.mesh = std::make_shared<PostMesh>(p, post);
      side.engine = progress::makeEngine();
      side.arena = transport::local::Arena::ofThreads(p);
      side.courier = std::make_shared<Courier>(roster, side.engine);
    }
  }

  /// The hub on a side, as that side's process has it; not yet introduced.
  std::shared_ptr<Hub> makeHub(int32_t p) {
    const auto& arena = sides_[static_cast<size_t>(p)].arena;
    const auto place = Hub::format(*arena, kHub, std::vector<int32_t>{0, 1, 2});
    EXPECT_TRUE(place);
    auto hub = Hub::attach(arena, *place, 3);
    EXPECT_TRUE(hub);
    return *hub;
  }
  std::shared_ptr<Hub> introduce(int32_t p) {
    auto hub = makeHub(p);
    courier(p).introduce(hub);
    return hub;
  }
  Courier& courier(int32_t p) { return *sides_[static_cast<size_t>(p)].courier; }

  /// Hands over what is for a process that exists, and what is said in answer; the rest is returned.
  std::vector<Letter> deliver() {
    std::vector<Letter> others;
    for (auto letters = post.takeAll(); !letters.empty(); letters = post.takeAll())
      for (const Letter& letter : letters) {
        if (letter.to < 2) {
          courier(letter.to).hear(letter.from, letter.message);
        } else {
          others.push_back(letter);
        }
      }
    return others;
  }
  /// Drives both sides until `done`.
  template <class Done>
  bool driveUntil(Done&& done) {
    return progress::driveUntil(
        [this] {
          (void)deliver();
          for (Side& side : sides_) (void)side.engine->progress();
        },
        std::forward<Done>(done));
  }

  Post post;

 private:
  struct Side {
    std::shared_ptr<bootstrap::Roster> roster;
    std::shared_ptr<progress::Engine> engine;
    std::shared_ptr<transport::local::Arena> arena;
    std::shared_ptr<Courier> courier;
  };
  Side sides_[2];
};

}  // namespace tutti::comm
