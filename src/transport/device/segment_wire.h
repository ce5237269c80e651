// What client and server of segments say to each other: one message there, one back, on a socket that keeps messages apart.
//
// Any thread, one at a time for a socket; nothing here waits.
// 1. A message that is not exactly as long as it has to be, or does not begin with its mark, is none.
// 2. Both sides are of one build: a mark changes with what follows it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "transport/device/segment_server.h"

namespace tutti::transport::device {

struct SegmentRequest {
  static constexpr uint64_t kMark = 0x3271657267657374;  // "tsegreq2"
  uint64_t mark = kMark;
  int32_t device = 0;
  memory::Place place = memory::Place::Device;
  uint64_t number = 0;
};
static_assert(std::is_trivially_copyable_v<SegmentRequest> && sizeof(SegmentRequest) == 24);

/// Begins the answer: the text of the error follows, and a descriptor comes along where the ticket's kind has one.
struct SegmentReply {
  static constexpr uint64_t kMark = 0x3170657267657374;  // "tsegrep1"
  static constexpr size_t kMostText = 2048;              ///< longer ones are cut
  uint64_t mark = kMark;
  int32_t code = 0;  ///< a Code; Ok: the ticket counts
  uint32_t textBytes = 0;
  memory::ShareTicket ticket;
};
static_assert(std::is_trivially_copyable_v<SegmentReply> && sizeof(SegmentReply) == 104);

/// The abstract Unix address of a process.
struct SegmentAddress {
  explicit SegmentAddress(const ProcessKey& key);
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address_); }
  socklen_t size() const { return size_; }

 private:
  sockaddr_un address_{};
  socklen_t size_ = 0;
};

/// The system's number for what went wrong; 0 when it is sent. Never less than all of it.
int sendRequest(int socket, const SegmentName& name);
/// What a client of the server says: nothing yet, no request at all (or its end), or a request.
enum class Heard : uint8_t { Nothing, Nonsense, Request };
Heard receiveRequest(int socket, SegmentRequest* request);

/// Best effort: a client that is gone is not missed.
void sendReply(int socket, const Result<memory::Shared>& outcome);
/// Nothing: the other side has closed the socket without an answer. The socket is readable.
std::optional<Result<memory::Shared>> receiveReply(int socket);

}  // namespace tutti::transport::device
