// What a root knows of the ranks that have registered: a table that fills. Pure: no sockets, no threads, no clock.
//
// Owner: the root, under whose lock it is used.
// 1. Every rank is taken once. Work and space are linear in ranks and processes that have come, whatever they say.
// 2. A root of several takes the ranks of its own block from processes, and, if it is the first, the other blocks from their roots.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/messages.h"

namespace tutti::bootstrap {

class Gathering {
 public:
  /// The first rank says how many there are; all others must agree.
  Status enroll(const Division& division, const Member& member, int32_t rank, const Note& note);
  Status take(const Part& part);

  /// All ranks that this root is to bring are there; false before the first.
  bool isComplete() const { return division_ && arrived_ == expected_; }
  bool isEmpty() const { return arrived_ == 0; }
  /// Of the first rank that came; nothing before.
  const std::optional<Division>& division() const { return division_; }
  /// "ranks 1, 4 of 8".
  std::string describeMissing() const;
  const Member* memberOf(int32_t rank) const;

  /// For the first root: all blocks when complete. For another: its own block.
  Part part() const;
  /// Of a complete gathering of all ranks: members in the order of their first rank.
  Table table() const;

 private:
  struct Entry {
    int32_t member = 0;
    Note note{};
  };
  Status add(const Member& member, int32_t rank, const Note& note);

  std::optional<Division> division_;
  int32_t first_ = 0;  // the ranks that are expected here: an interval
  int32_t expected_ = 0;
  int32_t arrived_ = 0;
  std::vector<Member> members_;
  std::unordered_map<uint64_t, int32_t> memberOfToken_;
  std::unordered_map<int32_t, Entry> entries_;  // no larger than those who came, however many they say to be
};

}  // namespace tutti::bootstrap
