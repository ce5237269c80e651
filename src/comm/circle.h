// The processes that take part in a communicator, by host, and whom a host passes news on to: the hosts stand in a circle, and each speaks
// to those that stand 1, 2, 4, 8 … places on.
//
// A value; any thread.
// 1. With H hosts that is K = ceil(log2(H)) neighbours; a host is at most K steps from any other.
// 2. There are K paths from each host to each other one that have no host in common in between: as long as fewer than K hosts say nothing,
//    whichever they are, what is passed on by all others reaches all others.
// 3. Hosts are in the order of the roster, so that all processes have the same circle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/roster.h"

namespace tutti::comm {

class Circle {
 public:
  /// Of some of the processes of the roster, in any order, each named once or more often; its own among them.
  static Circle of(const bootstrap::Membership& all, std::span<const int32_t> processes);
  static Circle ofAll(const bootstrap::Membership& all);

  int32_t hosts() const { return static_cast<int32_t>(begins_.size()) - 1; }
  /// Where the own host stands.
  int32_t place() const { return place_; }
  /// Ascending.
  std::span<const int32_t> processesAt(int32_t place) const;

  /// Places 1, 2, 4 … further, and as many steps before. None is its own.
  std::vector<int32_t> neighboursOf(int32_t place) const;
  std::vector<int32_t> neighboursBefore(int32_t place) const;

  /// For a message; nothing when all processes of the roster take part, otherwise a bit for each from the first to the last that does.
  std::vector<std::byte> encode(const bootstrap::Membership& all) const;
  /// Nothing for what encode() never wrote: a process that is none, or not the own one.
  static std::optional<Circle> decode(const bootstrap::Membership& all, std::span<const std::byte> bytes);

  friend bool operator==(const Circle&, const Circle&) = default;

 private:
  std::vector<int32_t> processes_;  // by host, ascending
  std::vector<size_t> begins_;      // of each host's part, and where the last one ends
  int32_t place_ = 0;
};

}  // namespace tutti::comm
