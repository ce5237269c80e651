// The yardstick: what a program does that knows nothing but sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::bench {

/// Connected TCP sockets over loopback: one end each for the two processes.
struct BarePair {
  std::vector<int> first;
  std::vector<int> second;
};
BarePair connectPairs(size_t count);

/// Writes or reads exactly that much; ends the program when the connection breaks.
void writeAll(int fd, const std::byte* data, size_t bytes);
void readAll(int fd, std::byte* data, size_t bytes);
/// The same without ever sleeping.
void spinRead(int fd, std::byte* data, size_t bytes);
void spinWrite(int fd, const std::byte* data, size_t bytes);
/// The same over several sockets at once, a thread each.
void writeStriped(const std::vector<int>& fds, const std::byte* data, size_t bytes);
void readStriped(const std::vector<int>& fds, std::byte* data, size_t bytes);

}  // namespace tutti::bench
