#include "bootstrap/gathering.h"

#include <algorithm>
#include <utility>

#include "core/format.h"

namespace tutti::bootstrap {

Status Gathering::enroll(const Division& division, const Member& member, int32_t rank, const Note& note) {
  if (!division_) {
    division_ = division;
    const Block block = blockAt(division.index, division.ranks, division.ids);
    first_ = division.index == 0 ? 0 : block.first;
    expected_ = division.index == 0 ? division.ranks : block.count;
  }
  if (division.ranks != division_->ranks)
    return error(Code::InvalidArgument, "rank {} says that the communicator has {} ranks, others with the same unique id say {}", rank,
                 division.ranks, division_->ranks);
  if (division != *division_)
    return error(Code::InvalidArgument, "rank {} gives {} unique ids, and this one as number {}; others give {}, and it as number {}", rank,
                 division.ids, division.index, division_->ids, division_->index);
  const Block block = blockAt(division.index, division.ranks, division.ids);
  if (rank < block.first || rank >= block.first + block.count)
    return error(Code::InvalidArgument, "rank {} of {} is not of the ranks {} to {} that the unique id number {} of {} is for", rank,
                 division.ranks, block.first, block.first + block.count - 1, division.index, division.ids);
  return add(member, rank, note);
}

Status Gathering::take(const Part& part) {
  const Division& division = part.division;
  if (!division_) {  // none of this root's own ranks has come yet
    division_ = Division{division.ranks, division.ids, 0};
    expected_ = division.ranks;
  }
  if (division_->index != 0 || division.index == 0 || division.ranks != division_->ranks || division.ids != division_->ids)
    return error(Code::InvalidArgument,
                 "the root of unique id number {} of {} brings ranks of a communicator of {}; others say {} unique ids and {} ranks",
                 division.index, division.ids, division.ranks, division_->ids, division_->ranks);
  const Block block = blockAt(division.index, division.ranks, division.ids);
  for (const Part::Entry& entry : part.entries) {
    if (entry.rank < block.first || entry.rank >= block.first + block.count)
      return error(Code::InternalError, "a root brings rank {}, which is not of its block", entry.rank);
    TUTTI_TRY(add(part.members[static_cast<size_t>(entry.member)], entry.rank, entry.note));
  }
  return {};
}

Status Gathering::add(const Member& member, int32_t rank, const Note& note) {
  if (entries_.count(rank) != 0)
    return error(Code::InvalidUsage, "rank {} has joined already: two callers with the same unique id claim the same rank", rank);
  const auto [place, isNew] = memberOfToken_.try_emplace(member.token, static_cast<int32_t>(members_.size()));
  if (isNew) {
    members_.push_back(member);
  } else if (!(members_[static_cast<size_t>(place->second)] == member)) {
    return error(Code::InternalError, "rank {} describes its process (pid {}) differently from other ranks there", rank, member.pid);
  }
  entries_.emplace(rank, Entry{place->second, note});
  ++arrived_;
  return {};
}

std::string Gathering::describeMissing() const {
  constexpr int32_t kMost = 16;  // names; the rest is counted
  if (!division_) return "all ranks";
  const int32_t missing = expected_ - arrived_;
  std::string text = missing == 1 ? "rank" : "ranks";
  int32_t named = 0;
  for (int32_t rank = first_; rank < first_ + expected_ && named < std::min(missing, kMost); ++rank) {
    if (entries_.count(rank) == 0) text += format("{} {}", named++ > 0 ? "," : "", rank);
  }
  if (missing > named) text += format(" and {} more", missing - named);
  return text + format(" of {}", division_->ranks);
}

const Member* Gathering::memberOf(int32_t rank) const {
  const auto entry = entries_.find(rank);
  return entry == entries_.end() ? nullptr : &members_[static_cast<size_t>(entry->second.member)];
}

Part Gathering::part() const {
  Part part{division_.value_or(Division{}), members_, {}};
  part.entries.reserve(entries_.size());
  for (const auto& [rank, entry] : entries_) part.entries.push_back({rank, entry.member, entry.note});
  return part;
}

Table Gathering::table() const {
  Table table;
  std::vector<int32_t> renumbered(members_.size(), -1);
  for (int32_t rank = 0; rank < expected_; ++rank) {
    const Entry& entry = entries_.at(rank);
    int32_t& number = renumbered[static_cast<size_t>(entry.member)];
    if (number < 0) {
      number = static_cast<int32_t>(table.members.size());
      table.members.push_back(members_[static_cast<size_t>(entry.member)]);
    }
    table.memberOf.push_back(number);
    table.notes.push_back(entry.note);
  }
  return table;
}

}  // namespace tutti::bootstrap
