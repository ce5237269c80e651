// A connection whose other side has proved what it may be: sealed frames in both directions, each in order.
//
// Owner: shared by whoever speaks on it; it lives on while a frame is under way. send(), finish() and close() may be called by any
// thread, everything else on the reactor's thread.
// 1. Handlers run on the reactor's thread, with no lock held. onClosed runs once, unless this side closed it first; nothing after it.
// 2. It holds the reactor while it is open. An idle connection costs its descriptor and no memory to speak of.
// 3. A frame that was not sealed by the other side ends it. A peer that does not answer the kernel's probes is taken for gone.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/asio.h"
#include "bootstrap/messages.h"
#include "bootstrap/reactor.h"
#include "bootstrap/seal.h"

namespace tutti::bootstrap {

using Socket = asio::generic::stream_protocol::socket;

/// A new socket of the family of `address`, close-on-exec, not connected.
Result<Socket> openSocket(Reactor& reactor, int family);
/// Small messages leave at once; a peer that has vanished is noticed within half a minute.
void tuneSocket(int fd);

/// Whether a cause that Link::OnClosed was told, also as the text of one that another process was told, is that nothing is heard of the
/// other side: it may be there, and not be reached.
bool isSilence(const Status& cause);

class Link : public std::enable_shared_from_this<Link> {
 public:
  using OnFrame = std::function<void(Kind kind, std::span<const std::byte> payload)>;
  using OnClosed = std::function<void(const Status& cause)>;

  /// `peer`: how texts call the other side.
  Link(Reactor& reactor, Socket socket, const SessionKeys& keys, std::string peer);
  ~Link();

  void start(OnFrame onFrame, OnClosed onClosed);
  void send(Kind kind, std::vector<std::byte> payload);
  /// Sends what is queued, waits until the other side has closed too, so that it gets all of it; after a few seconds in any case. No
  /// handler runs any more. `unsaid` is let go of when the system has all that was queued, or the connection is gone.
  void finish(std::shared_ptr<void> unsaid = nullptr);
  /// No handler runs any more once the thread has come to it.
  void close();
  /// Stops reading, so that the other side's frames stay where they are; and goes on.
  void setReading(bool isReading);

  const std::string& peer() const { return peer_; }
  /// Frames that send() was given and the system has not taken yet, in bytes.
  size_t queuedBytes() const { return queuedBytes_.load(std::memory_order_relaxed); }

 private:
  void read();
  void onRead(size_t bytes);
  bool takeFrame();
  void write();
  void compact();
  void sayEnd();
  void giveUpWriting(const asio::error_code& problem);
  void end(const Status& cause);
  Status whyGone(const asio::error_code& problem) const;
  void release();

  Reactor& reactor_;
  ReactorHold hold_;
  std::shared_ptr<void> unsaid_;
  std::optional<Socket> socket_;  // gone when it is closed
  Sealer sealer_;
  Opener opener_;
  const std::string peer_;
  OnFrame onFrame_;
  OnClosed onClosed_;
  std::vector<std::byte> in_;
  size_t begin_ = 0;     // of the first frame in in_ that was not handed on
  size_t received_ = 0;  // where the bytes in in_ end
  bool isReading_ = true;
  bool hasReadUnderWay_ = false;
  std::deque<std::vector<std::byte>> out_;
  size_t underWay_ = 0;  // frames at the front of out_ that are being written
  bool isFinishing_ = false;
  bool isBroken_ = false;  // nothing can be written any more; reading will come to an end
  asio::error_code broken_;  // why
  std::atomic<size_t> queuedBytes_{0};  // a hint, for whoever wants to slow down: orders nothing
};

}  // namespace tutti::bootstrap
