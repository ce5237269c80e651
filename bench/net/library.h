// The same transfers as a program makes them: two ranks of the library that count as on two hosts, so that sockets connect them.
//
// Owner: one of the two processes. Throws nothing; what fails ends the process with its reason.
#pragma once

#include <cstddef>
#include <span>

namespace tutti::bench {

class LibraryRank {
 public:
  /// `control`: a socket to the other process, over which the unique id goes. Before anything else of the library is used in the process.
  LibraryRank(bool first, int control);
  ~LibraryRank();
  LibraryRank(const LibraryRank&) = delete;
  LibraryRank& operator=(const LibraryRank&) = delete;

  /// Ping-pong: seconds of half a round trip, over `times` of them. The first rank sends `out` and receives `in`, as long; the other sends
  /// back what it has received.
  double ping(std::span<const std::byte> out, std::span<std::byte> in, int times);
  /// The first rank's bytes into the other's, until the receiver's word that it has all of it: seconds.
  double copy(std::span<std::byte> buffer);

 private:
  const bool first_;
  void* comm_ = nullptr;
};

}  // namespace tutti::bench
