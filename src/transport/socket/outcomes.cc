#include "transport/socket/outcomes.h"

#include <algorithm>
#include <utility>

namespace tutti::transport::socket {
namespace {

std::string hostOf(Address address) {
  address.setPort(0);
  return address.text();
}

std::string refusalOf(const Outcomes::Outcome& one) {
  switch (one.kind) {
    case Outcomes::Kind::Taken: return {};
    case Outcomes::Kind::Failed: return one.problem;
    case Outcomes::Kind::Silent: return "had not answered when another one did";
    case Outcomes::Kind::Untried: return "not tried: another one answered";
  }
  return {};
}

}  // namespace

void Outcomes::order(std::vector<Address>& addresses) const {
  const std::lock_guard lock(mutex_);
  if (useless_.empty()) return;
  std::stable_partition(addresses.begin(), addresses.end(), [&](const Address& a) { return useless_.count(hostOf(a)) == 0; });
}

void Outcomes::note(std::span<const Outcome> all) {
  {
    const std::lock_guard lock(mutex_);
    for (const Outcome& one : all) {
      if (one.kind == Kind::Taken) useless_.erase(hostOf(one.address));
      if (one.kind == Kind::Failed || one.kind == Kind::Silent) useless_.insert(hostOf(one.address));
    }
  }
  if (!table_.isShown()) return;
  std::vector<observe::AddressTable::Row> rows;
  std::string taken;
  for (const Outcome& one : all) {
    rows.push_back({one.address.text(), refusalOf(one)});
    if (one.kind == Kind::Taken) taken = one.address.text();
  }
  table_.add("the peer at " + taken, rows);
}

}  // namespace tutti::transport::socket
