// Buffers of captured messages, which the receiver lends the sender: windows of two ranks (user_windows.h), of each direction between them
// one after the other.
//
// Owner: the Endpoint. Used by the thread that uses the communicator; nothing here blocks on another rank.
// 1. Both ranks begin with the nth message from one to the other as it is captured, and settle it: the sender has mapped the receiver's
//    buffer, or neither of them uses it. Both know which.
// 2. NCCL wants both sides to capture a message or none, but runs what does otherwise: one side may launch what the other one captures, or
//    come to it only when something is over that the first has not begun yet. So before anything else the two meet, and who has waited for
//    a while withdraws: that message and all later ones of the direction go by kernels, without another wait. Where the two come with
//    other messages, or one of them finds that it cannot be lent, both know from the cards.
// 3. Directions do not wait for each other.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <utility>

#include "transport/device/user_windows.h"

namespace tutti::transport::device {

/// How the two ranks of a direction come to their nth message together, or to none any more: one word, that both change. It holds to how
/// many messages each side has come, and whether one has withdrawn, after which no side comes any further.
class LoanTurn {
 public:
  enum class Side : uint64_t { Sender = 0, Receiver = 1 };
  enum class Met : uint8_t { NotYet, Together, Never };

  explicit LoanTurn(std::atomic<uint64_t>& word) : word_(word) {}
  /// `side` is at message `number`, from 0, and was together with the other one at all before.
  Met come(Side side, uint64_t number) const;
  /// It waits no longer. Together: the other one has come.
  Met withdraw(uint64_t number) const;

 private:
  static constexpr uint64_t kWithdrawn = uint64_t{1} << 63;
  static constexpr int kCountBits = 31;  // the two sides are at most one message apart
  static constexpr uint64_t kCount = (uint64_t{1} << kCountBits) - 1;

  static int shiftOf(Side side) { return side == Side::Sender ? 0 : kCountBits; }
  static bool hasCome(uint64_t word, Side side, uint64_t number);
  /// What `word` says of the message. NotYet: nobody has withdrawn, and at least one side has not come to it.
  static Met look(uint64_t word, uint64_t number);

  std::atomic<uint64_t>& word_;
};

class MessageLoans {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMostPatience{1};

  MessageLoans(const Surroundings& around, const Page& page, const ProcessKey& key, Rank rank)
      : around_(around), page_(page), key_(key), rank_(rank) {}

  struct Message {
    Rank from;
    Rank to;              ///< one of the two is this rank
    uint64_t number = 0;  ///< of all that were made in this direction
  };
  /// The next of its direction that is captured. `base`: the receiver's buffer; 0 at the sender.
  UserWindows::Ref begin(const Message& message, driver::cuda::DevicePtr base, Bytes bytes, Published::Readers readers,
                         Status refusal = {});
  /// Carries on with all that are not settled. Ready: none is left. `patience`: how long a peer is waited for.
  Poll advance(bool allReach, Clock::time_point now, Clock::duration patience = kMostPatience);
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
    bool hasMet = false;      ///< the two are together at the first message that is not settled
    Clock::time_point since;  ///< when this rank came to the message at which it waits; zero: it does not
  };
  Poll advance(Direction& direction, bool allReach, Clock::time_point now, Clock::duration patience);

  const Surroundings& around_;
  const Page page_;
  const ProcessKey key_;
  const Rank rank_;
  std::map<std::pair<int32_t, int32_t>, Direction> directions_;  // from, to
  Rank missing_{-1};
};

}  // namespace tutti::transport::device
