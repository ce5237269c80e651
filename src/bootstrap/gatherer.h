// One all-gather between the processes of a communicator, as one of them sees it: what comes in, what goes out. Pure: no sockets, no
// threads, no clock.
//
// Owner: the mesh, on its thread.
// 1. Up: within a host, everybody sends what its part of the binomial tree has to its parent, until the host's first process has all.
//    Across: the first processes double what they have in ceil(log2(hosts)) rounds (round k: to the one 2^k before, from the one 2^k
//    behind). Down: back along the tree of the host.
// 2. A process sends and receives O(log processes) messages. What comes early waits; what makes no sense is refused and changes nothing.
// 3. A message has exactly the parts that its sender has by then, in one order: whoever takes part can neither leave out nor invent any.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"

namespace tutti::bootstrap {

class Gatherer {
 public:
  /// Sends a message of this all-gather to a process.
  using Send = std::function<void(int32_t process, std::vector<std::byte> message)>;

  Gatherer(const Membership& membership, uint64_t number, Send send);

  void start(std::span<const std::byte> own);
  /// What follows the number in a message from `process`. False when it makes no sense.
  bool take(int32_t process, std::span<const std::byte> message);

  bool isStarted() const { return isStarted_; }
  bool isComplete() const { return isComplete_; }
  /// When complete, once.
  Gathered result() { return std::move(parts_); }
  /// Whose parts are not here, ascending.
  std::vector<int32_t> missing() const;
  /// Who has to send next for this process to go on.
  std::vector<int32_t> waitsFor() const;
  /// Whether nothing more can come of it if this process sends no more.
  bool needs(int32_t process) const;

 private:
  enum class Phase : uint8_t { Up, Across, Down };
  void advance();
  void advanceLeader();
  bool expects(int32_t process, Phase phase, uint8_t round) const;
  /// The parts of a message of `process`, in their order.
  std::vector<int32_t> partsFrom(int32_t process, Phase phase, uint8_t round) const;
  void sendParts(int32_t process, Phase phase, uint8_t round);
  std::vector<int32_t> hostsFrom(int32_t host, int32_t count) const;
  int32_t leaderOf(int32_t host) const { return membership_.host(host).processes.front(); }

  const Membership& membership_;
  const uint64_t number_;
  const Send send_;
  const int32_t own_;
  const int32_t host_;
  const int32_t place_;  // within the host
  const int32_t hosts_;
  int32_t parent_ = -1;             // within the host
  std::vector<int32_t> children_;   // within the host
  std::set<int32_t> openChildren_;  // whose part has not come up
  Gathered parts_;
  std::vector<bool> has_;
  size_t have_ = 0;
  std::set<int32_t> cameAcross_;  // rounds
  int32_t round_ = 0;
  bool isStarted_ = false;
  bool hasSentUp_ = false;
  bool hasSentRound_ = false;
  bool cameDown_ = false;
  bool isComplete_ = false;
};

}  // namespace tutti::bootstrap
