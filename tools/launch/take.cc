// The part of every rank but 0 of the exchange over sockets.
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "launch/address.h"
#include "launch/by_socket.h"
#include "launch/wire.h"

namespace tutti::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatienceForOne{3000};  // for one address
constexpr milliseconds kFirstPause{5};
constexpr milliseconds kLongestPause{200};

bool waitFor(int socket, short events, Deadline deadline) {
  pollfd ready = {socket, events, 0};
  int count = 0;
  do {
    count = poll(&ready, 1, deadline.pollMs());
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

Descriptor connectTo(const Address& address, Deadline deadline) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return socket;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) return socket;
  if (errno == EINPROGRESS && waitFor(socket.get(), POLLOUT, deadline)) {
    int problem = 0;
    socklen_t size = sizeof problem;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == 0) return socket;
  }
  socket.reset();
  return socket;
}

template <class T>
bool write(int socket, const T& message) {
  return send(socket, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
}

template <class T>
bool read(int socket, T& message, Deadline deadline) {
  auto* bytes = reinterpret_cast<char*>(&message);
  for (size_t filled = 0; filled < sizeof message;) {
    if (!waitFor(socket, POLLIN, deadline)) return false;
    const ssize_t received = recv(socket, bytes + filled, sizeof message - filled, 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (received <= 0) return false;
    filled += static_cast<size_t>(received);
  }
  return true;
}

/// Nothing when whoever listens there, if anybody, is not rank 0 of this job.
std::optional<Result<ncclUniqueId>> ask(const Address& address, const Standing& standing, const Key& key, Deadline deadline) {
  const Descriptor owner = connectTo(address, deadline);
  const int socket = owner.get();
  if (!owner || !isOfThisUser(socket)) return std::nullopt;
  wire::Hello hello;
  hello.nonce = drawNonce();
  Nonce theirs;
  if (!write(socket, hello) || !read(socket, theirs, deadline)) return std::nullopt;
  const Key session = sessionKey(key, hello.nonce, theirs);
  const wire::Request request = {static_cast<uint32_t>(standing.rank), static_cast<uint32_t>(standing.ranks)};
  wire::Sealed<wire::Answer> sealedAnswer;
  if (!write(socket, wire::sealed(session, wire::kRequest, request)) || !read(socket, sealedAnswer, deadline)) return std::nullopt;
  wire::Answer answer;
  if (!wire::unsealed(session, wire::kAnswer, sealedAnswer, answer)) return std::nullopt;
  switch (answer.verdict) {
    case wire::Verdict::Served: break;
    case wire::Verdict::Again: return std::nullopt;  // of an earlier run that has not quite ended: ours will listen soon
    case wire::Verdict::Disagrees:
      return fail(Code::InvalidArgument, "rank 0 says that there are {} ranks; this is rank {} of {}", answer.ranks, standing.rank,
                  standing.ranks);
  }
  // Without thanks rank 0 would wait for this rank, and answer it again.
  if (!write(socket, wire::sealed(session, wire::kThanks, wire::Thanks{request.rank}))) return std::nullopt;
  return answer.id;
}

std::vector<Address> addressesOf(const Standing& standing, uint64_t hash, std::string& problem) {
  if (!standing.isOneHost()) return resolve(standing.hosts, portsOf(hash), problem);
  std::vector<Address> addresses;
  for (int number = 0; number < kTries; ++number) addresses.push_back(unixAddress(hash, number));
  return addresses;
}

std::string describePlaces(const Standing& standing, uint64_t hash, const std::string& problem) {
  if (standing.isOneHost()) return format("at {}", unixAddress(hash, 0).text());
  std::string hosts;
  for (const std::string& host : standing.hosts) hosts += format("{}{}", hosts.empty() ? "" : ", ", host);
  std::string ports;
  for (const uint16_t port : portsOf(hash)) ports += format("{}{}", ports.empty() ? "" : ", ", port);
  return format("on {}, ports {}{}{}", hosts, ports, problem.empty() ? "" : "; ", problem);
}

}  // namespace

Result<ncclUniqueId> takeId(const Standing& standing, const std::string& secret, Deadline deadline) {
  if (Status status = startSeals(); !status.ok()) return tl::unexpected(std::move(status));
  const Key key = keyOf(standing.jobKey, secret);
  const uint64_t hash = publicHash(key);
  std::string problem;
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    problem.clear();
    for (const Address& address : addressesOf(standing, hash, problem)) {
      if (auto answer = ask(address, standing, key, deadline.orAfter(kPatienceForOne))) return *std::move(answer);
      if (deadline.isOver()) break;
    }
    if (deadline.isOver()) break;
    std::this_thread::sleep_for(pause);
  }
  return fail(Code::RemoteError,
              "rank 0 of job '{}' was not found {}; has it started, with the same TUTTI_JOB_SECRET, and does the firewall "
              "let these ports pass? Else set NCCL_COMM_ID to host:port of rank 0",
              standing.jobKey, describePlaces(standing, hash, problem));
}

}  // namespace tutti::launch
