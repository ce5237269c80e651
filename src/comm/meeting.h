// Where ranks of one communicator that make a child of it meet: by a split, or by a shrink of some of them.
//
// Owner: the set-up of each rank (Meeting); what they share lies at the parent's hub, under its lock.
// 1. It ends when all are there, or with the first error, for all of them. One that failed is remembered: a rank that comes later is
//    told, not left waiting. A split that ended well leaves nothing behind.
// 2. Whoever comes last makes the hubs of the children; each rank attaches its own when it looks next.
// 3. A rank whose process dies has come, or has not, after every single store: the others never wait for what only it could do.
// 4. Nothing waits for a lock that a stopped process has: poll() has no outcome then, and the seat is taken by a later one.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/encounter.h"

namespace tutti::comm {

/// One number of two, such that those of children differ with their parents, their kinds and their members (splitmix64's finalizer).
uint64_t mix(uint64_t a, uint64_t b);

/// Which child of a communicator: what its members know without having spoken.
struct ChildKey {
  bool mayBeBroken = false;      ///< made of a parent that was revoked, or whose work was ended for it: counted from there
  std::vector<int32_t> members;  ///< the survivors of a shrink; empty for a split
  uint64_t number = 0;           ///< how many of its kind came before
  friend auto operator<=>(const ChildKey&, const ChildKey&) = default;
};

class Meeting final : public Encounter {
 public:
  /// Announces the rank of `place`. InvalidUsage when another one has that place.
  static Result<std::shared_ptr<Meeting>> arrive(std::shared_ptr<transport::local::Hub> parent, const ChildKey& key, int32_t ranks,
                                                 Rank place, const Arrival& arrival);
  /// Somebody on another host has come to a meeting, or has ended one. Waits for nobody: what takes the lock that somebody has for long is
  /// done by the next poll() of a rank here.
  static void hear(const std::shared_ptr<transport::local::Hub>& parent, std::span<const std::byte> message);
  /// Those of shrinks that are not over, as `place` -1 sees them.
  static std::vector<std::shared_ptr<Meeting>> open(const std::shared_ptr<transport::local::Hub>& parent);

  ~Meeting() override;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  std::optional<Result<Outcome>> poll() override;
  void end(const Status& cause) override;
  std::string describeMissing(std::span<const int32_t> names) const override;

  /// True as well, and false, while somebody has the lock, or this rank its outcome.
  bool has(Rank place) const;
  bool isWaiting() const;
  /// Of the key.
  const std::vector<int32_t>& members() const { return members_; }
  bool isSame(const Meeting& other) const { return name_ == other.name_; }

 private:
  struct Table;
  struct Seat;
  Meeting(std::shared_ptr<transport::local::Hub> parent, const ChildKey& key, int32_t ranks, Rank place);
  Meeting(std::shared_ptr<transport::local::Hub> parent, const transport::local::Hub::Name& name)
      : parent_(std::move(parent)), name_(name) {}
  /// False: somebody has the lock.
  Result<bool> openTable();
  Result<bool> takeSeat();
  static bool heed(const std::shared_ptr<transport::local::Hub>& parent, std::span<const std::byte> message);
  static void heedPostponed(const std::shared_ptr<transport::local::Hub>& parent);
  Status seat(const Arrival& arrival);
  void tellOthers(const Arrival& arrival, const Status& cause) const;
  Seat& seatOf(int32_t place) const;
  int32_t countMissing() const;
  std::string missingRanks(std::span<const int32_t> names) const;
  int32_t countHere(int32_t group) const;
  std::shared_ptr<const std::vector<Arrival>> membersOfGroup(int32_t group) const;
  void completeIfAllThere();
  uint64_t hubId(uint64_t group) const;
  bool isTakenByAllHere() const;
  std::optional<Result<Outcome>> leaveTable();
  void failChildren(int32_t ranks, const Status& cause) const;
  Status makeHubs();
  Result<Outcome> take();

  const std::shared_ptr<transport::local::Hub> parent_;
  const transport::local::Hub::Name name_;
  bool holds_ = false;      // the block of the table
  bool hasCome_ = false;    // for its child, or for why there is none
  Table* table_ = nullptr;  // null before it was opened, and once this rank has its outcome
  int32_t ranks_ = 0;
  Rank place_{-1};
  std::vector<int32_t> members_;
  ChildKey key_;
  std::optional<Arrival> arrival_;           // until this rank has its seat
  std::optional<Result<Outcome>> reached_;   // until it has left the table
  std::optional<Result<Outcome>> outcome_;   // then
};

}  // namespace tutti::comm
