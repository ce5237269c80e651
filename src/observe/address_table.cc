#include "observe/address_table.h"

namespace tutti::observe {

void AddressTable::add(std::string_view peer, std::span<const Row> rows) {
  if (rows.size() < 2 || !isShown()) return;
  std::string outcome;
  for (const Row& row : rows) outcome += row.refusal + '\n';
  uint64_t times = 0;
  {
    const std::lock_guard lock(mutex_);
    if (outcomes_.size() >= kMostTables && outcomes_.count(outcome) == 0) outcome = "another";
    times = ++outcomes_[outcome];
  }
  if ((times & (times - 1)) != 0) return;
  for (const Row& row : rows)
    info(subsys_, "{}: address  {:<28} of {}  {}{}{}", head_, row.address, peer,
         row.refusal.empty() ? "chosen" : "not chosen: ", row.refusal, times == 1 ? "" : format(" (so far {} times)", times));
}

}  // namespace tutti::observe
