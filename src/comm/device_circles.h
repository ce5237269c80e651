// Finds ranks whose calls on GPUs can never meet, from the order in which they have issued them (docs/decisions/0049).
//
// Owner: the communicator's rank. tellIssue(): the thread that issues its calls; look(): any thread.
// 1. What is found is certain. A send that may fit into its pipes waits for nobody; a call of which the peer's part may have been issued
//    long ago neither; and of a rank that has captured calls nothing is known. Calls of several communicators are not connected.
// 2. A search of full books takes some milliseconds. So there is none before the rank has issued nothing for kStandstill while its GPU is
//    not done, none where nobody has issued anything since the one before, and fewer the longer that lasts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "exec/host/deadlock.h"
#include "transport/device/page.h"
#include "transport/local/hub.h"

namespace tutti::comm {

/// What a rank has issued, the oldest first.
using IssuedCalls = std::vector<transport::device::IssueBook::Issued>;

/// A circle among what ranks have issued, if there is one. `sendRoom`: bytes; a send of no more waits for nobody. `hasCome(peer, call)`,
/// with the peer's part of a call as `call`: whether the peer had issued it when `ranks` were read, or may have.
std::vector<exec::host::Blocked> findCircle(std::span<const IssuedCalls> ranks, uint64_t sendRoom,
                                            const std::function<bool(Rank peer, const Call& call)>& hasCome);

using HeldUpRanks = std::vector<std::optional<transport::device::IssueBook::HeldUp>>;  ///< by rank

/// The ranks of a circle in which each is held up by the lack of the next one's part; empty: none that `rank` is in, or leads to.
std::vector<Rank> circleOfHeldUp(const HeldUpRanks& ranks, Rank rank);

class DeviceCircles {
 public:
  static constexpr int64_t kStandstillMs = 100;

  /// `isOn`: else nothing is ever found.
  DeviceCircles(std::shared_ptr<transport::local::Hub> hub, Rank rank, bool isOn, uint64_t sendRoom)
      : hub_(std::move(hub)), rank_(rank), isOn_(isOn && hub_->ranks() > 1), sendRoom_(sendRoom) {}

  bool isOn() const { return isOn_; }
  /// The rank issues calls now.
  void tellIssue();
  /// `isIdle()`: nothing of the rank is on its GPU; asked under a lock that others only try.
  std::optional<exec::host::Deadlock> look(const transport::device::Page& page, const std::function<bool()>& isIdle);

 private:
  std::vector<exec::host::Blocked> searchBooks(const transport::device::Page& page, int64_t nowMs, const std::function<bool()>& isIdle);
  std::vector<exec::host::Blocked> searchHeldUp(const transport::device::Page& page);

  const std::shared_ptr<transport::local::Hub> hub_;
  const Rank rank_;
  const bool isOn_;
  const uint64_t sendRoom_;
  std::atomic<int64_t> issuedMs_ = 0;  ///< when the rank issued something last (relaxed: a hint)
  std::atomic<int64_t> nextMs_ = 0;    ///< nobody looks before (relaxed: a hint)
  std::mutex mutex_;                   ///< protects what follows
  int64_t nextSearchMs_ = 0;
  int64_t pauseMs_ = 0;    ///< between searches without result
  uint64_t own_ = 0;       ///< calls of the rank at the latest search
  uint64_t searched_ = 0;  ///< and of all ranks
  HeldUpRanks suspects_;   ///< of a circle that is to be confirmed
};

}  // namespace tutti::comm
