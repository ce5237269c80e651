// How sockets are used: the NCCL_SOCKET_* variables, resolved once, when a network is made.
// A plain value.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::transport::socket {

struct Settings {
  int32_t threads = -1;           ///< helper threads of a connection; -1: as the interface's maker recommends, else none
  int32_t socketsPerThread = -1;  ///< -1 likewise
  uint64_t minTaskBytes = 65536;  ///< smallest piece of a message that helpers share
  uint64_t inlineBytes = 128;     ///< messages up to this size never go to helpers
  int64_t receiveBuffer = -1;     ///< of the kernel; -1: its own choice
  int64_t sendBuffer = -1;
  int32_t retryCount = 34;
  int32_t retrySleepMs = 100;
  int32_t handshakeTimeoutMs = 10'000;  ///< for a stranger to prove itself
  int32_t attemptTimeoutMs = 3'000;     ///< for one address to answer
  int32_t staggerMs = 200;              ///< before the next address is tried beside it
  bool namesThreads = false;            ///< helper threads have names of their own
  int32_t cores = 1024;                 ///< that the calling thread may run on, when they were read
};

/// From the environment.
Settings readSettings();

/// Threads and sockets of a connection.
struct Streams {
  int32_t threads = 0;  ///< 0: whoever tests a request moves its bytes, over one socket
  int32_t socketsPerThread = 0;
  int32_t data() const { return threads * socketsPerThread; }
};

/// Threads that help a connection of `wanted`: half of the cores at most, less one for who waits. 0: who tests a request moves the bytes of
/// all its sockets.
int32_t helperThreads(const Settings& settings, int32_t wanted);

/// `vendor`: PCI vendor of the interface, 0 when unknown. At most 16 threads and 64 sockets.
Streams chooseStreams(const Settings& settings, uint32_t vendor);

/// PCI vendor of a network interface from sysfs; 0 when it has none.
uint32_t readVendor(std::string_view interface);

/// What a network interface says that it carries, in Mb/s; 0 where it does not say, as virtual ones. `root`: of sysfs.
int64_t readSpeedMbps(std::string_view interface, std::string_view root = "/sys");

}  // namespace tutti::transport::socket
