#include "transport/socket/helpers.h"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/thread.h"
#include "transport/socket/stream.h"

namespace tutti::transport::socket {

Result<std::unique_ptr<Helpers>> Helpers::create(Direction direction, std::span<const UniqueFd> sockets, int32_t wantedThreads,
                                                 const Settings& settings) {
  const int32_t threads = helperThreads(settings, wantedThreads);
  std::unique_ptr<Helpers> helpers(new Helpers(direction));
  helpers->done_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!helpers->done_) return tutti::fail(Code::SystemError, "make an eventfd: {}", errorText(errno));
  for (int32_t i = 0; i < threads; ++i) {
    auto worker = std::make_unique<Worker>();
    worker->wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!worker->wake) return tutti::fail(Code::SystemError, "make an eventfd: {}", errorText(errno));
    helpers->workers_.push_back(std::move(worker));
  }
  const size_t servers = helpers->workers_.size() + (threads < wantedThreads ? 1 : 0);
  for (size_t i = 1; i < sockets.size(); ++i) {
    const size_t server = (i - 1) % servers;
    auto& served = server < helpers->workers_.size() ? helpers->workers_[server]->streams : helpers->driven_;
    served.push_back(std::make_unique<Stream>(sockets[i].get()));
    helpers->streams_.push_back(served.back().get());
  }
  for (auto& worker : helpers->workers_) {
    auto started = startThread(settings.namesThreads ? "tutti socket" : nullptr, "that helps a socket",
                               [self = helpers.get(), worker = worker.get()] { self->run(*worker); });
    if (!started) return tl::unexpected(std::move(started).error());
    worker->thread = std::move(*started);
  }
  return helpers;
}

Helpers::~Helpers() {
  stop_.store(true, std::memory_order_seq_cst);
  for (Stream* stream : streams_) (void)shutdown(stream->fd, SHUT_RDWR);
  for (auto& worker : workers_) {
    wake(*worker);
    if (worker->thread.joinable()) worker->thread.join();
  }
}

uint32_t Helpers::pieceBytes(uint64_t bytes, uint64_t leastBytes) const {
  const uint64_t pieces = hasThreads() ? streams_.size() : 1;
  const uint64_t even = (bytes + pieces - 1) / pieces;
  const uint64_t piece = std::max(even, leastBytes);
  return piece > std::numeric_limits<uint32_t>::max() ? 0 : static_cast<uint32_t>(piece);
}

bool Helpers::plausible(uint64_t bytes, uint32_t pieceBytes) const { return (bytes + pieceBytes - 1) / pieceBytes <= streams_.size(); }

void Helpers::wake(Worker& worker) { (void)eventfd_write(worker.wake.get(), 1); }

void Helpers::share(std::byte* data, uint64_t bytes, uint32_t pieceBytes, std::atomic<uint32_t>* left) {
  const auto pieces = static_cast<uint32_t>((bytes + pieceBytes - 1) / pieceBytes);
  left->store(pieces, std::memory_order_relaxed);  // published by the queues
  for (uint64_t at = 0; at < bytes; at += pieceBytes) {
    (void)streams_[next_]->queue.tryPush({data + at, std::min<uint64_t>(pieceBytes, bytes - at), left});
    next_ = (next_ + 1) % streams_.size();
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the pushes come before the look at `asleep`
  for (auto& worker : workers_) {
    if (worker->asleep.load(std::memory_order_seq_cst)) wake(*worker);
  }
}

void Helpers::fail(int error) {
  int none = 0;
  error_.compare_exchange_strong(none, error, std::memory_order_release);  // pairs with error()
  (void)eventfd_write(done_.get(), 1);
}

/// Whether there is anything for it to do.
bool Helpers::hasPiece(Stream& stream) {
  if (stream.current.left != nullptr) return true;
  const auto next = stream.queue.tryPop();
  if (next) stream.current = *next;
  return next.has_value();
}

/// Whether anything moved on the stream. `tells`: who tests hears that a message is through.
bool Helpers::work(Stream& stream, bool tells) {
  if (!hasPiece(stream)) return false;
  Piece& piece = stream.current;
  const iovec part{piece.data, std::min<uint64_t>(piece.bytes, uint64_t{1} << 20)};
  const Transfer done = direction_ == Direction::Send ? sendSome(stream.fd, &part, 1) : receiveSome(stream.fd, &part, 1);
  if (done.error != 0 || done.ended) {
    fail(done.ended ? EPIPE : done.error);
    return false;
  }
  piece.data += done.bytes;
  piece.bytes -= done.bytes;
  if (piece.bytes == 0) {
    // release: pairs with the acquire in test() of the comm; acq: the last one speaks for all pieces.
    if (piece.left->fetch_sub(1, std::memory_order_acq_rel) == 1 && tells) (void)eventfd_write(done_.get(), 1);
    piece.left = nullptr;
  }
  return done.bytes > 0;
}

void Helpers::addDescriptors(std::vector<int>& descriptors) const {
  descriptors.push_back(done_.get());
  for (const auto& stream : driven_) descriptors.push_back(stream->fd);
}

bool Helpers::drive(std::span<const std::atomic<uint32_t>> lefts) {
  bool moved = false;
  for (auto& stream : driven_) {
    if (!hasPiece(*stream)) continue;
    const bool isAmong = std::ranges::any_of(lefts, [&](const auto& left) { return &left == stream->current.left; });
    if (isAmong || hasThreads()) moved = work(*stream, false) || moved;
  }
  return moved;
}

/// Until there is something to do. False: the end.
bool Helpers::sleep(Worker& worker) {
  std::vector<pollfd>& fds = worker.fds;
  fds.assign(1, {worker.wake.get(), POLLIN, 0});
  worker.asleep.store(true, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool found = false;
  for (auto& stream : worker.streams) {
    const bool hadPiece = stream->current.left != nullptr;
    if (!hasPiece(*stream)) continue;
    found = found || !hadPiece;
    const int16_t direction = direction_ == Direction::Send ? POLLOUT : POLLIN;
    fds.push_back({stream->fd, direction, 0});
  }
  if (!found && !stop_.load(std::memory_order_seq_cst)) (void)::poll(fds.data(), fds.size(), -1);
  worker.asleep.store(false, std::memory_order_seq_cst);
  eventfd_t ignored = 0;
  if (fds[0].revents != 0) (void)eventfd_read(worker.wake.get(), &ignored);
  return !stop_.load(std::memory_order_seq_cst);
}

void Helpers::run(Worker& worker) {
  while (!stop_.load(std::memory_order_seq_cst) && error() == 0) {
    bool moved = false;
    for (auto& stream : worker.streams) moved = work(*stream, true) || moved;
    if (!moved && !sleep(worker)) return;
  }
}

}  // namespace tutti::transport::socket
