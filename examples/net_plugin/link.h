// The transport of the example: messages over a Unix-domain socket, between processes of one host.
//
// Owner: the plugin's comm objects. One thread at a time.
// 1. Messages go in order; a receive takes the next one, which must have its tag and fit.
// 2. No call waits.
// 3. Memory must be registered, and a message must lie in its registration: the example checks what networks rely on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>

namespace example {

inline constexpr int kSuccess = 0;
inline constexpr int kSystemError = 2;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kRemoteError = 6;

struct Region {
  std::byte* data;
  size_t size;
  bool holds(const void* at, size_t bytes) const {
    const auto* begin = static_cast<const std::byte*>(at);
    return begin >= data && begin + bytes <= data + size;
  }
};

struct Frame {
  uint64_t bytes;
  int32_t tag;
  uint32_t reserved;
};

class Link;

struct Request {
  Link* link;
  Frame frame;
  std::byte* data;
  size_t moved;  ///< of frame and data together
  bool done;
};

/// A listening socket with a name of the abstract kind, which leaves nothing in the file system.
class Listening {
 public:
  ~Listening();
  int open(std::string* name);
  /// The next connection; null: none yet.
  int accept(Link** link);

 private:
  int fd_ = -1;
};

class Link {
 public:
  Link(int fd, bool sends) : fd_(fd), sends_(sends) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link();
  static int connect(const std::string& name, Link** link);

  /// Null: too many are under way.
  Request* begin(void* data, size_t bytes, int tag);
  /// Moves what can be moved. A code.
  int progress();
  void forget(Request* request);

 private:
  static constexpr size_t kMostRequests = 32;
  int send(Request& request);
  int receive(Request& request);

  int fd_;
  bool sends_;
  std::deque<Request*> queue_;  ///< those that are not done
  std::set<Request*> live_;      ///< those that were not tested to their end: also when the comm is closed first
};

}  // namespace example
