// Windows of the user: memory that every rank of a communicator has registered, and that all of them have mapped (ncclCommWindowRegister);
// and buffers of captured calls, which ranks lend each other for as long as the graph is there. Of captured messages the members are two
// ranks (message_loans.h), otherwise all; what follows says "all" of the members.
//
// Owner: the Endpoint. Used by the thread that uses the communicator; nothing here blocks on another rank.
// 1. The kth registration of a rank belongs to the kth of all others: they are made in the same order. begin() takes a place in that order,
//    advance() carries on with the first that is not settled: its rank says where its memory is, maps what the others say, and says whether
//    it could. So a window that is settled is mapped by all ranks or usable by none, and all ranks know which.
// 2. Of a symmetric window (NCCL_WIN_COLL_SYMMETRIC) users promise that all ranks pass the same offsets to a call. Only that makes a rank
//    know, without asking, where its peers' buffers of a call are; windows without it are mapped and not used.
// 3. A card is one of two that take turns: whoever writes the card of k + 2 has settled k + 1, for which every peer has settled k.
// 4. A window holds the physical memory that was there when it was registered, its peers' as well as its own. What is there at a call is
//    asked of the driver each time (bufferOf): a program that frees and allocates anew gets an error, not somebody else's bytes.
// 5. Nothing is mapped, allocated or asked of other ranks once a window is settled: calls that are captured use it as others do.
// 6. A lent buffer is a window of one call: it begins where the rank's buffer does, and no other call finds it. Captures are alike on all
//    ranks, as with NCCL, so these take their places in the same order.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/device/surroundings.h"

namespace tutti::transport::device {

struct UserWindow {
  uint64_t number = 0;  ///< in the order of registrations; the same on all ranks
  driver::cuda::DevicePtr base = 0;
  Bytes bytes;
  WindowKind kind = WindowKind::Plain;
  bool isSettled = false;
  bool isUsable = false;                    ///< all ranks have mapped it
  Status refusal;                           ///< this rank's memory cannot be shared: why
  std::string reason;                       ///< not usable: why
  uint64_t message = 0;                     ///< of a captured message: its number in its direction, of all that were made
  uint64_t buffer = 0;                      ///< the driver's number of the memory
  bool hasFinePages = false;                ///< once settled: that of some rank
  std::vector<driver::cuda::DevicePtr> at;  ///< by rank: where this rank's GPU finds the window of that one; 0: it has none

  UserWindow() = default;
  UserWindow(const UserWindow&) = delete;
  UserWindow& operator=(const UserWindow&) = delete;
  ~UserWindow();
  /// Reached::goesSlowly() of what it has mapped.
  bool goesSlowly() const;
  bool holds(driver::cuda::DevicePtr address, uint64_t size) const {
    return address >= base && address - base <= bytes.value && size <= bytes.value - (address - base);
  }

 private:
  friend class UserWindows;
  const memory::Gpu* gpu_ = nullptr;
  Published::Hold published_;
  uint64_t offset_ = 0;
  bool isAnnounced_ = false;
  bool isMapped_ = false;
  std::vector<Reached> reached_;
};

class UserWindows {
 public:
  using Ref = std::shared_ptr<UserWindow>;
  struct Member {
    Rank rank;
    UserWindowCard* cards;  ///< two, that take turns
  };
  /// `ranks`: of the communicator.
  UserWindows(const Surroundings& around, int32_t ranks, std::vector<Member> members, const ProcessKey& key, Rank rank)
      : around_(around), ranks_(ranks), members_(std::move(members)), key_(key), rank_(rank) {}
  static std::vector<Member> allOf(const Page& page);
  ~UserWindows();
  UserWindows(const UserWindows&) = delete;
  UserWindows& operator=(const UserWindows&) = delete;

  /// [base, base + bytes) of this rank's GPU is the next window. It takes part also where it cannot be shared: `refusal`, with which it
  /// may begin. `readers`: the other ranks. A base of 0: this rank has nothing there, as all others but the root of a gather.
  Ref begin(driver::cuda::DevicePtr base, Bytes bytes, WindowKind kind, Published::Readers readers = Published::Readers::Any,
            Status refusal = {});
  /// Ready: all that have begun are settled. `allReach`: no two ranks exchange data through the host.
  Poll advance(bool allReach);
  /// The first that is not settled; null: all are.
  Ref firstUnsettled() const { return unsettled_.empty() ? nullptr : unsettled_.front(); }
  /// Carries on with that one. Ready: it is settled.
  Poll advanceFirst(bool allReach);
  /// All that are not settled are, and cannot be used: no member does more about them.
  void giveUp(const std::string& reason);
  /// Whose news advance() lacks.
  Rank missing() const { return missing_; }
  /// Of the symmetric ones that all ranks have mapped, the latest that holds all of it; null: none does. The same on all ranks for the same
  /// place in the same window, as each of them sees the same windows.
  Ref find(driver::cuda::DevicePtr address, uint64_t size) const;
  bool isEmpty() const { return windows_.empty(); }  ///< none is settled
  /// The window of that pointer; null: there is none.
  Ref find(const void* window) const;
  /// Nothing of this rank uses it any more but what holds it: its mappings stay until that has let go. Also of one that was lent, if it may
  /// outlive this.
  void end(const Ref& window);
  /// All that is mapped, for whoever keeps it; no window is usable then.
  std::vector<Reached> takeReached();

 private:
  void announce(UserWindow& window);
  void finish(UserWindow& window);
  bool isAnnouncedByAll(uint64_t number);
  bool isMappedByAll(UserWindow& window);
  std::string unlike(const UserWindow& window, bool allReach) const;
  void map(UserWindow& window, bool allReach);
  Poll settle(UserWindow& window, bool allReach);
  static UserWindowCard& card(const Member& member, uint64_t number) { return member.cards[number % 2]; }
  UserWindowCard& ownCard(uint64_t number) const;

  const Surroundings& around_;
  const int32_t ranks_;
  const std::vector<Member> members_;
  const ProcessKey key_;
  const Rank rank_;
  Rank missing_{-1};
  uint64_t next_ = 0;  // number
  std::deque<Ref> unsettled_;
  std::vector<Ref> windows_;  // settled
};

}  // namespace tutti::transport::device
