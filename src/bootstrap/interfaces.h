// Which network interfaces a process offers itself on: NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY, and the order when neither is set.
//
// No state but the system's; any thread. listInterfaces() asks the system, chooseInterfaces() is a pure function.
// 1. Unset: names that begin with "ib" first, then all others; docker* when there is nothing else, lo when there is not even that.
// 2. A list takes prefixes in its own order, with a leading "=" whole names, with a leading "^" everything else in the usual order.
// 3. Whatever the order, further addresses of an interface, of the same IP version, come after the first ones of all: what carries
//    addresses has room for few.
// 4. Interfaces that are down and addresses that mean something on one link only are never chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/address.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// One address of one interface; an interface with several addresses comes several times.
struct Interface {
  std::string name;
  Address address;  ///< without a port
  bool isUp = true;
};

enum class Family : uint8_t { Any, V4, V6 };

struct Candidate {
  Interface interface;
  std::string refusal;  ///< why it is not chosen; empty: it is
};

struct Choice {
  std::vector<Candidate> candidates;  ///< those that are chosen first, the preferred one before all
  std::vector<Interface> chosen() const;
  /// A line for each candidate: chosen, or why not; for the log.
  std::vector<std::string> table() const;
};

/// What the machine has. SystemError when it does not say.
Result<std::vector<Interface>> listInterfaces();

/// `AF_INET`, `AF_INET6`; anything else is Any.
Family parseFamily(std::string_view text);

/// Of what was chosen, the interfaces that data goes over: with InfiniBand among them, and without a list of names, these alone, because a
/// slow one beside them would hold them up.
Choice forData(Choice choice, std::string_view names);

/// InvalidUsage when nothing is left, with the reason of each.
Result<Choice> chooseInterfaces(const std::vector<Interface>& all, std::string_view names, Family family);

}  // namespace tutti::bootstrap
