// What carries pieces of large messages over the data streams of one connection, where that is asked for: threads, and who waits, by
// drive(), for the streams that they are too few for; or drive() alone, where threads would take the cores of who waits.
//
// Owner: a SendComm or RecvComm, whose thread calls everything here. Each thread serves its own streams.
// 1. Pieces of a stream go in the order of share(); which stream a piece takes depends on sizes alone, so both sides agree.
// 2. A message's count-down reaches 0 when its last piece is through; nothing touches its memory afterwards.
// 3. Destruction shuts the streams down, and returns when the threads have ended: within a millisecond.
// 4. Idle threads sleep.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/queue.h"
#include "core/status.h"
#include "core/unique_fd.h"
#include "transport/socket/settings.h"

namespace tutti::transport::socket {

class Helpers {
 public:
  enum class Direction : uint8_t { Send, Receive };

  /// `sockets`: of the connection; all but the first are data streams. They are dealt out to as many threads as are wanted, as far as the
  /// settings' cores allow (helperThreads); and where that is fewer, to drive() as well.
  static Result<std::unique_ptr<Helpers>> create(Direction direction, std::span<const UniqueFd> sockets, int32_t wantedThreads,
                                                 const Settings& settings);
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  ~Helpers();

  bool hasThreads() const { return !workers_.empty(); }
  /// How a message is cut: at most one piece for each stream; without threads it is one piece, and the next message takes another stream.
  /// 0: not at all.
  uint32_t pieceBytes(uint64_t bytes, uint64_t leastBytes) const;
  /// Whether a peer may cut so.
  bool plausible(uint64_t bytes, uint32_t pieceBytes) const;
  /// Sets `left` to the number of pieces and hands them to the threads, or to drive(). At most kQueue messages at once.
  void share(std::byte* data, uint64_t bytes, uint32_t pieceBytes, std::atomic<uint32_t>* left);

  /// Moves what it can of the streams without a thread. Where none has one, only of the messages whose count-downs these are, as far as
  /// they are at the front of their streams: who tests asks for the oldest first. Whether anything moved.
  bool drive(std::span<const std::atomic<uint32_t>> lefts);

  /// errno of the first stream that broke; 0: none.
  int error() const { return error_.load(std::memory_order_acquire); }  // pairs with the release in fail()
  /// To sleep on: one becomes ready whenever a stream broke or there is something to do for who tests.
  void addDescriptors(std::vector<int>& descriptors) const;

 private:
  static constexpr size_t kQueue = 64;

  struct Piece {
    std::byte* data = nullptr;
    uint64_t bytes = 0;
    std::atomic<uint32_t>* left = nullptr;
  };
  struct Stream {
    explicit Stream(int socket) : fd(socket), queue(kQueue) {}
    int fd;
    SpscQueue<Piece> queue;
    Piece current;  ///< of who serves it; left is null: none
  };
  struct Worker {
    UniqueFd wake;
    std::vector<std::unique_ptr<Stream>> streams;
    std::atomic<bool> asleep{false};  ///< worker (seq_cst) and share() (seq_cst): Dekker's handshake with the queues
    std::vector<pollfd> fds;          ///< the thread's own
    std::thread thread;
  };

  explicit Helpers(Direction direction) : direction_(direction) {}
  void run(Worker& worker);
  static bool hasPiece(Stream& stream);
  bool work(Stream& stream, bool tells);
  bool sleep(Worker& worker);
  void fail(int error);
  static void wake(Worker& worker);

  const Direction direction_;
  UniqueFd done_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Stream>> driven_;  ///< those without a thread
  std::vector<Stream*> streams_;                 ///< all, in the order in which pieces take them
  size_t next_ = 0;
  std::atomic<bool> stop_{false};  ///< destructor (seq_cst); pairs with the loads in run() and sleep()
  std::atomic<int> error_{0};
};

}  // namespace tutti::transport::socket
