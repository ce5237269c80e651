// Processes of a communicator on several hosts, for targets that play one of them: a rank each.
#pragma once

#include <cstdint>
#include <vector>

#include "bootstrap/roster.h"

namespace tutti::fuzz {

/// `hostOf`: the host of each process, hosts in the order of their first processes. Nobody can be dialled: they have no addresses.
template <class Kind = bootstrap::Membership>
Kind someHosts(const std::vector<int32_t>& hostOf, int32_t own) {
  Kind all;
  all.ranks = static_cast<int32_t>(hostOf.size());
  for (int32_t p = 0; p < all.ranks; ++p) {
    const auto host = static_cast<size_t>(hostOf[static_cast<size_t>(p)]);
    if (host == all.hosts.size()) all.hosts.push_back({.name = "host", .identity = host, .processes = {}});
    all.processOf.push_back(p);
    all.processes.push_back(
        {.token = static_cast<uint64_t>(p), .pid = p, .host = static_cast<int32_t>(host), .ranks = {p}, .addresses = {}});
    all.hosts[host].processes.push_back(p);
  }
  all.ownProcess = own;
  all.ownHost = hostOf[static_cast<size_t>(own)];
  return all;
}

}  // namespace tutti::fuzz
