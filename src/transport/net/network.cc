#include "transport/net/network.h"

#include <cmath>

namespace tutti::transport::net {

Comm::~Comm() = default;
Listener::~Listener() = default;
Connecting::~Connecting() = default;
Network::~Network() = default;

Result<MemoryKey> Comm::registerMemory(void* /*data*/, uint64_t /*bytes*/, MemoryKind /*kind*/) { return MemoryKey(); }
void Comm::deregisterMemory(MemoryKey /*key*/) {}

Poll RecvComm::iflush(const InMessage& /*message*/, Request* request) {
  *request = Request();
  return Poll::Ready;
}

Result<std::shared_ptr<Network>> Network::forCommunicator(const Use& /*use*/) { return std::shared_ptr<Network>(); }

namespace {

Status outOfRange(const Properties& properties, std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return error(Code::InternalError, "device \"{}\" claims {} {}; {} to {} is possible", properties.name, what, value, least, most);
}

}  // namespace

Status checkProperties(const Properties& p) {
  constexpr int64_t kMany = int64_t{1} << 30;
  constexpr int64_t kMostSpeed = int64_t{1} << 30;  // 10^15 bits a second
  constexpr size_t kLongestName = 4096;
  if (p.name.empty() || p.name.size() >= kLongestName) return error(Code::InternalError, "a device has a name of {} bytes", p.name.size());
  if (p.pciPath.size() >= kLongestName) return error(Code::InternalError, "device \"{}\" has a path of {} bytes", p.name, p.pciPath.size());
  if (!std::isfinite(p.latencyUs) || p.latencyUs < 0 || p.latencyUs > 1e9F) {
    return error(Code::InternalError, "device \"{}\" claims a latency of {} us", p.name, p.latencyUs);
  }
  TUTTI_TRY(outOfRange(p, "speed (Mbit/s)", p.speedMbps, 0, kMostSpeed));
  TUTTI_TRY(outOfRange(p, "memory kinds", p.memoryKinds, 1, 7));
  TUTTI_TRY(outOfRange(p, "connections", p.maxComms, 1, INT32_MAX));
  TUTTI_TRY(outOfRange(p, "receives", p.maxReceives, 1, kMany));
  TUTTI_TRY(outOfRange(p, "offload type", p.offloadType, 0, 2));
  TUTTI_TRY(outOfRange(p, "members", p.numMembers, 0, Properties::kMaxMembers));
  if (p.maxMessageBytes < 64)
    return error(Code::InternalError, "device \"{}\" claims messages of {} bytes at most", p.name, p.maxMessageBytes);
  return Status();
}

}  // namespace tutti::transport::net
