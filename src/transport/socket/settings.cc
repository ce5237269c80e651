#include "transport/socket/settings.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>

#include "config/params.h"
#include "core/thread.h"
#include "core/unique_fd.h"
#include "observe/log.h"

namespace tutti::transport::socket {
namespace {

using config::Param;

constexpr int32_t kMostThreads = 16;
constexpr int32_t kMostSockets = 64;
constexpr uint32_t kAmazon = 0x1d0f;
constexpr uint32_t kGoogle = 0x1ae0;

/// A number that is used as int32: negative ones mean "automatic".
int32_t count(int64_t value) { return static_cast<int32_t>(std::clamp<int64_t>(value, -1, std::numeric_limits<int32_t>::max())); }

uint64_t bytes(int64_t value, uint64_t fallback) { return value < 0 ? fallback : static_cast<uint64_t>(value); }

}  // namespace

Settings readSettings() {
  Settings settings;
  settings.threads = count(config::get<Param::SocketNthreads>());
  settings.socketsPerThread = count(config::get<Param::NsocksPerthread>());
  settings.minTaskBytes = std::max<uint64_t>(1, bytes(config::get<Param::SocketMinTasksize>(), settings.minTaskBytes));
  settings.inlineBytes = bytes(config::get<Param::SocketInline>(), settings.inlineBytes);
  settings.receiveBuffer = config::get<Param::SocketRcvbuf>();
  settings.sendBuffer = config::get<Param::SocketSndbuf>();
  settings.retryCount = std::max(0, count(config::get<Param::SocketRetryCnt>()));
  settings.retrySleepMs = std::max(0, count(config::get<Param::SocketRetrySleepMsec>()));
  settings.namesThreads = config::get<Param::SetThreadName>() != 0;
  settings.cores = availableCores();
  return settings;
}

int32_t helperThreads(const Settings& settings, int32_t wanted) {
  return std::clamp(settings.cores / 2 - 1, 0, wanted);
}

Streams chooseStreams(const Settings& settings, uint32_t vendor) {
  Streams streams;
  if (vendor == kAmazon) streams = {.threads = 2, .socketsPerThread = 8};
  if (vendor == kGoogle) streams = {.threads = 4, .socketsPerThread = 1};
  if (settings.threads >= 0) streams.threads = settings.threads;
  if (settings.socketsPerThread >= 0) streams.socketsPerThread = settings.socketsPerThread;
  if (settings.threads < 0 && settings.socketsPerThread > 1 && streams.threads == 0) streams.threads = 1;
  if (streams.threads == 0) return {};
  if (streams.threads > kMostThreads) {
    observe::warn("NET/Socket : NCCL_SOCKET_NTHREADS is {}, {} are used", streams.threads, kMostThreads);
    streams.threads = kMostThreads;
  }
  const int32_t allowed = kMostSockets / streams.threads;
  if (streams.socketsPerThread > allowed) {
    observe::warn("NET/Socket : NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD is more than {}; {} sockets per thread are used",
                  kMostSockets, allowed);
  }
  streams.socketsPerThread = std::clamp(streams.socketsPerThread, 1, allowed);
  return streams;
}

namespace {

/// A number that sysfs has of an interface; 0 where it has none.
int64_t readNumber(std::string_view root, std::string_view interface, std::string_view what, int base) {
  if (interface.empty() || interface.find('/') != std::string_view::npos) return 0;
  const std::string path = format("{}/class/net/{}/{}", root, interface, what);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[24] = {};
  if (!file || read(file.get(), text, sizeof text - 1) <= 0) return 0;
  return std::strtoll(text, nullptr, base);
}

}  // namespace

uint32_t readVendor(std::string_view interface) { return static_cast<uint32_t>(readNumber("/sys", interface, "device/vendor", 16)); }

int64_t readSpeedMbps(std::string_view interface, std::string_view root) {
  return std::max<int64_t>(0, readNumber(root, interface, "speed", 10));
}

}  // namespace tutti::transport::socket
