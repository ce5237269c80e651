// What came of the addresses that the connectors of a network have tried: for the log, and so that later ones begin with what works.
//
// Owner: the network and its connectors. Any thread.
#pragma once

#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "observe/address_table.h"
#include "transport/socket/address.h"

namespace tutti::transport::socket {

class Outcomes {
 public:
  enum class Kind : uint8_t { Taken, Failed, Silent, Untried };
  struct Outcome {
    Address address;
    Kind kind;
    std::string problem;  ///< where it failed
  };

  /// Moves addresses that were no use the last time, with whatever port, behind the others.
  void order(std::vector<Address>& addresses) const;
  /// Of a connection that stands: all addresses of its peer, in the order in which they were tried.
  void note(std::span<const Outcome> all);

 private:
  observe::AddressTable table_{observe::Subsys::Init | observe::Subsys::Net, "NET/Socket "};
  mutable std::mutex mutex_;
  std::set<std::string> useless_;  // without ports
};

}  // namespace tutti::transport::socket
