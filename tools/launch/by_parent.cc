#include "launch/by_parent.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace tutti::launch {
namespace {

constexpr char kPut = 'P';
constexpr char kGet = 'G';
constexpr size_t kIdBytes = sizeof(ncclUniqueId);

Status checkSocket(int descriptor) {
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET) return {};
  return error(Code::InvalidUsage, "TUTTI_RUN_FD={} is not the socket that tutti run gave this rank: a program in between has closed it",
               descriptor);
}

/// Of a rank whose socket tutti run has closed.
Status noId() { return error(Code::RemoteError, "there will be no unique id: rank 0 has ended without giving one, or tutti run has gone"); }

Status sendMessage(int descriptor, const void* data, size_t bytes) {
  ssize_t sent = 0;
  do {
    sent = send(descriptor, data, bytes, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes)) return {};
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return noId();
  return error(Code::RemoteError, "tutti run does not take the unique id's message: {}", std::strerror(errno));
}

}  // namespace

Result<ncclUniqueId> exchangeByParent(const Standing& standing, const MakeId& makeId, Deadline deadline) {
  const int descriptor = standing.descriptor;
  if (Status status = checkSocket(descriptor); !status.ok()) return tl::unexpected(std::move(status));
  if (standing.rank == 0) {
    Result<ncclUniqueId> id = makeId();
    if (!id) return id;
    char message[1 + kIdBytes] = {kPut};
    std::memcpy(message + 1, &*id, kIdBytes);
    if (Status status = sendMessage(descriptor, message, sizeof message); !status.ok()) return tl::unexpected(std::move(status));
    return id;
  }
  if (Status status = sendMessage(descriptor, &kGet, 1); !status.ok()) return tl::unexpected(std::move(status));
  for (;;) {
    pollfd ready = {descriptor, POLLIN, 0};
    const int count = poll(&ready, 1, deadline.pollMs());
    if (count == 0) return fail(Code::RemoteError, "rank 0 has not given the unique id in time");
    ncclUniqueId id;
    const ssize_t received = count < 0 ? -1 : recv(descriptor, &id, kIdBytes, MSG_DONTWAIT);
    if (received == static_cast<ssize_t>(kIdBytes)) return id;
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    return tl::unexpected(noId());
  }
}

Result<Descriptor> Post::open(size_t rank) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail(Code::SystemError, "no socket for rank {}: {}", rank, std::strerror(errno));
  }
  sockets_[rank].reset(ends[0]);
  return Descriptor(ends[1]);
}

void Post::serve(size_t rank) {
  bool isOver = false;
  if (!read(rank, isOver) && isOver) close(rank);
}

void Post::close(size_t rank) {
  if (left_[rank] == 0) left_[rank] = ++numLeft_;
  if (descriptor(rank) < 0) return;
  bool isOver = false;
  while (rank == 0 && read(rank, isOver)) {
  }
  sockets_[rank].reset();
  isLast_ = isLast_ || rank == 0;
  for (size_t other = 1; isLast_ && other < sockets_.size(); ++other) answer(other);
}

bool Post::read(size_t rank, bool& isOver) {
  char message[1 + kIdBytes + 1];  // one byte more than any message has
  const auto receive = [&] { return recv(descriptor(rank), message, sizeof message, MSG_DONTWAIT); };
  ssize_t received = receive();
  if (received < 0 && errno == ECONNRESET) received = receive();  // told once, ahead of messages that are there: it left some unread
  isOver = received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR);
  if (received <= 0) return false;
  if (received == 1 && message[0] == kGet) {
    asks_[rank] = 1;
    answer(rank);
  }
  if (rank != 0 || received != 1 + static_cast<ssize_t>(kIdBytes) || message[0] != kPut) return true;  // nobody's message
  std::memcpy(&id_, message + 1, kIdBytes);
  ++ids_;
  for (size_t other = 0; other < sockets_.size(); ++other) answer(other);
  return true;
}

void Post::answer(size_t rank) {
  if (!asks_[rank] || descriptor(rank) < 0) return;
  if (taken_[rank] == ids_) {
    if (isLast_) sockets_[rank].reset();
    return;
  }
  asks_[rank] = 0;
  taken_[rank] = ids_;
  // A rank has one question open at a time, so its socket has room; one that has gone closes its end, which poll tells.
  (void)send(descriptor(rank), &id_, kIdBytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace tutti::launch
