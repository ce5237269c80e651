// The other process of driver_probe: both sides of the conversation.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/descriptor_message.h"
#include "driver_probe.h"

namespace tutti::probe {
namespace {

using memory::DeviceMemory;
using memory::ShareKind;
using memory::ShareTicket;

constexpr int kPatienceMs = 60000;

struct Request {
  ShareKind kind = ShareKind::None;
  int32_t device = 0;
};
struct Reply {
  ShareTicket ticket;
  bool ok = false;
  std::array<char, 512> text{};
};

template <class Message>
Status sendMessage(int socket, const Message& message) {
  if (send(socket, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message)) return {};
  return error(Code::SystemError, "cannot send to the other process: {}", std::strerror(errno));
}

Status awaitInput(int socket) {
  pollfd ready{socket, POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) == 1) return {};
  return error(Code::SystemError, "the other process does not answer");
}

template <class Message>
Status receiveMessage(int socket, Message* message) {
  TUTTI_TRY(awaitInput(socket));
  if (recv(socket, message, sizeof *message, MSG_WAITALL) == static_cast<ssize_t>(sizeof *message)) return {};
  return error(Code::RemoteError, "the other process is gone");
}

Reply replyOf(const Status& status) {
  Reply reply;
  reply.ok = status.ok();
  const std::string text = status.text();
  std::memcpy(reply.text.data(), text.c_str(), std::min(text.size(), reply.text.size() - 1));
  return reply;
}

/// Serves one request on the owner's side: makes, fills, shares, waits for the reader, checks.
Status serve(int socket, const Machine& machine, const Options& options, const Request& request) {
  const bool isPlain = request.kind == ShareKind::LegacyIpc;
  auto gpu = memory::Gpu::open(*machine.driver, request.device, !isPlain && !options.plain);
  if (!gpu) return std::move(gpu).error();
  const driver::cuda::Device own[] = {request.device};
  auto memory = DeviceMemory::allocate(**gpu, Bytes(kShareBytes), own);
  if (!memory) return std::move(memory).error();
  TUTTI_TRY(writeNow(**gpu, memory->address(), makePattern(kShareBytes, kOwnerSeed)));
  auto shared = memory->share(request.kind);
  if (!shared) return std::move(shared).error();
  Reply reply = replyOf({});
  reply.ticket = shared->ticket;
  TUTTI_TRY(sendMessage(socket, reply));
  if (shared->fd) TUTTI_TRY(sendDescriptor(socket, shared->fd.get(), "device memory"));
  shared->fd.reset();
  Request done;
  TUTTI_TRY(receiveMessage(socket, &done));
  return checkPattern(**gpu, memory->address(), kShareBytes, kReaderSeed);
}

int runOwner(int socket, const Options& options) {
  const auto machine = Machine::open(options);
  Request request;
  while (recv(socket, &request, sizeof request, MSG_WAITALL) == static_cast<ssize_t>(sizeof request)) {
    const Status status = machine ? serve(socket, *machine, options, request) : machine.error();
    if (!sendMessage(socket, replyOf(status)).ok()) return 1;
  }
  return 0;
}

}  // namespace

Result<Owner> startOwner(const Options& options) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return fail(Code::SystemError, "cannot make a socket: {}", std::strerror(errno));
  Owner owner;
  owner.socket.reset(sockets[0]);
  UniqueFd theirs(sockets[1]);
  std::fflush(stdout);
  owner.pid = fork();
  if (owner.pid < 0) return fail(Code::SystemError, "cannot fork: {}", std::strerror(errno));
  if (owner.pid > 0) return owner;
  owner.socket.reset();
  _exit(runOwner(theirs.get(), options));
}

Status shareOnce(const Owner& owner, const memory::Gpu& reader, int32_t device, ShareKind kind) {
  const int socket = owner.socket.get();
  TUTTI_TRY(sendMessage(socket, Request{kind, device}));
  Reply reply;
  TUTTI_TRY(receiveMessage(socket, &reply));
  if (!reply.ok) return error(Code::RemoteError, "the other process: {}", reply.text.data());
  UniqueFd fd;
  if (reply.ticket.kind == ShareKind::PosixFd) {
    TUTTI_TRY(awaitInput(socket));
    auto received = receiveDescriptor(socket, "device memory");
    if (!received) return std::move(received).error();
    fd = std::move(*received);
  }
  Status mine;
  {
    auto memory = DeviceMemory::open(reader, reply.ticket, fd.get());
    if (!memory) mine = std::move(memory).error();
    if (mine.ok()) mine = checkPattern(reader, memory->address(), kShareBytes, kOwnerSeed);
    if (mine.ok()) mine = writeNow(reader, memory->address(), makePattern(kShareBytes, kReaderSeed));
  }
  TUTTI_TRY(sendMessage(socket, Request{}));
  TUTTI_TRY(receiveMessage(socket, &reply));
  if (!mine.ok()) return mine;
  return reply.ok ? Status() : error(Code::RemoteError, "the other process: {}", reply.text.data());
}

}  // namespace tutti::probe
