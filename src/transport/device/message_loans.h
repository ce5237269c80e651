// Buffers of captured messages, which the receiver lends the sender: windows of two ranks (user_windows.h), of each direction between them
// one after the other.
//
// Owner: the Endpoint. Used by the thread that uses the communicator; nothing here blocks on another rank.
// 1. Both ranks begin with the nth message from one to the other as it is captured, and settle it: the sender has mapped the receiver's
//    buffer, or neither of them uses it. Both know which.
// 2. Pairs need not capture alike, as with NCCL: one side may launch what the other one captures, or come to it only when something is over
//    that the first has not begun yet. So before anything else the two meet, and who has waited kPatience for the other one withdraws: that
//    message and all later ones of the direction go by kernels, without another wait.
// 3. Directions do not wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <utility>

#include "transport/device/user_windows.h"

namespace tutti::transport::device {

/// How the two ranks of a direction come to their nth message together, or to none any more: one word, that both change.
class LoanTurn {
 public:
  enum class Side : uint64_t { Sender = 1, Receiver = 2 };
  enum class Met : uint8_t { NotYet, Together, Never };

  explicit LoanTurn(std::atomic<uint64_t>& word) : word_(word) {}
  /// `side` is at message `number`, from 0, and was together with the other one at all before.
  Met come(Side side, uint64_t number) const;
  /// It waits no longer. Together: the other one has come.
  Met withdraw(Side side, uint64_t number) const;

 private:
  static constexpr uint64_t kBoth = 3;
  static constexpr uint64_t kNever = ~uint64_t{0};
  static uint64_t at(uint64_t number, uint64_t sides) { return number << 2 | sides; }

  std::atomic<uint64_t>& word_;
};

class MessageLoans {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{1};

  MessageLoans(const Surroundings& around, const Page& page, const ProcessKey& key, Rank rank)
      : around_(around), page_(page), key_(key), rank_(rank) {}

  /// The next message from `from` to `to`, one of which is this rank. `base`: the receiver's buffer; 0 at the sender.
  UserWindows::Ref begin(Rank from, Rank to, driver::cuda::DevicePtr base, Bytes bytes, Published::Readers readers, Status refusal = {});
  /// Carries on with all that are not settled. Ready: none is left.
  Poll advance(bool allReach, Clock::time_point now);
  /// Whose news advance() lacks.
  Rank missing() const { return missing_; }

 private:
  struct Direction {
    Direction(const MessageLoans& loans, Rank from, Rank to);

    MessageLoanCards& cards;
    UserWindows windows;
    LoanTurn turn;
    LoanTurn::Side side;
    Rank peer;
    bool isOver = false;      ///< somebody has withdrawn
    Clock::time_point since;  ///< when this rank came to the message at which it waits; zero: it does not
  };
  Poll advance(Direction& direction, bool allReach, Clock::time_point now);

  const Surroundings& around_;
  const Page page_;
  const ProcessKey key_;
  const Rank rank_;
  std::map<std::pair<int32_t, int32_t>, Direction> directions_;  // from, to
  Rank missing_{-1};
};

}  // namespace tutti::transport::device
