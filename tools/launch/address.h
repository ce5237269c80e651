// The addresses at which rank 0 may be found: a short list that every rank of a job computes alike.
//
// Plain values. Within a host they are names of abstract Unix sockets, which nothing in the file system remains of; between hosts TCP
// ports on the hosts of rank 0. Which of the list is free is found out by trying.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "launch/descriptor.h"

namespace tutti::launch {

inline constexpr int kTries = 8;  ///< names, or ports, of a job
inline constexpr uint16_t kFirstPort = 20000;
inline constexpr uint16_t kPorts = 12000;  ///< below those that systems give to outgoing connections

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  /// "10.0.0.1:20017", "[fd00::1]:20017", "the Unix socket @tutti-…".
  std::string text() const;
};

std::array<uint16_t, kTries> portsOf(uint64_t jobHash);
Address unixAddress(uint64_t jobHash, int number);

/// All addresses of all hosts, host by host, port by port. A name that does not resolve (yet) is left out; `problem` tells the latest.
std::vector<Address> resolve(const std::vector<std::string>& hosts, const std::array<uint16_t, kTries>& ports, std::string& problem);

/// Listens on the first free address of the job; `isOneHost` chooses the kind.
Result<Descriptor> listenFor(uint64_t jobHash, bool isOneHost, Address& address);

/// True when a peer on a Unix socket is of this user, or is on TCP, where nobody can tell.
bool isOfThisUser(int descriptor);

}  // namespace tutti::launch
