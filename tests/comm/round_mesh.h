// The all-gathers of processes that a test plays itself.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/mesh.h"

namespace tutti::comm::play {

/// The all-gathers of processes that a test plays itself: each begins them in the same order.
struct Rounds {
  explicit Rounds(size_t count) : processes(count) {}
  struct Round {
    bootstrap::Gathered parts;
    size_t come = 0;
  };
  const size_t processes;
  std::vector<Round> rounds;
  std::function<void(size_t round, int32_t process, std::vector<std::byte>& part)> spoil;  ///< What a stranger sends instead.
};

class RoundMesh final : public bootstrap::Mesh {
 public:
  RoundMesh(Rounds& all, int32_t self) : all_(all), self_(self) {}
  Status send(int32_t, std::span<const std::byte>) override { return {}; }
  Status tell(int32_t, std::span<const std::byte>) override { return {}; }
  bool isReachable(int32_t) const override { return true; }
  void after(std::chrono::milliseconds, std::function<void()>) override {}
  void setHandlers(OnMessage, OnLost) override {}
  std::shared_ptr<bootstrap::Exchange> allGather(std::span<const std::byte> own, std::chrono::milliseconds) override {
    const size_t number = begun_++;
    if (all_.rounds.size() <= number) all_.rounds.push_back({bootstrap::Gathered(all_.processes), 0});
    std::vector<std::byte> part(own.begin(), own.end());
    if (all_.spoil) all_.spoil(number, self_, part);
    all_.rounds[number].parts[static_cast<size_t>(self_)] = std::move(part);
    ++all_.rounds[number].come;
    return std::make_shared<Waiting>(all_, number);
  }
  std::shared_ptr<bootstrap::Exchange> barrier(std::chrono::milliseconds limit) override { return allGather({}, limit); }
  Counters counters() const override { return {}; }

 private:
  class Waiting final : public bootstrap::Exchange {
   public:
    Waiting(Rounds& all, size_t number) : all_(all), number_(number) {}
    std::optional<Result<std::shared_ptr<const bootstrap::Gathered>>> poll() const override {
      if (all_.rounds[number_].come < all_.processes) return std::nullopt;
      return std::make_shared<const bootstrap::Gathered>(all_.rounds[number_].parts);
    }
    std::vector<int32_t> missing() const override { return {}; }

   private:
    Rounds& all_;
    const size_t number_;
  };
  Rounds& all_;
  const int32_t self_;
  size_t begun_ = 0;
};

}  // namespace tutti::comm::play
