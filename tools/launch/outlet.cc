#include "launch/outlet.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::launch {
namespace {

/// What a pipe that is ready for writing takes without blocking.
constexpr size_t kPiece = 4096;

}  // namespace

void Outlet::flush() {
  size_t written = 0;
  while (written < text_.size()) {
    pollfd ready = {descriptor_, POLLOUT, 0};
    const int count = poll(&ready, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) break;
    const ssize_t taken = ::write(descriptor_, text_.data() + written, std::min(kPiece, text_.size() - written));
    if (taken < 0 && errno == EINTR) continue;
    if (taken < 0 && errno == EAGAIN) break;
    if (taken < 0) {
      isBroken_ = true;
      text_.clear();
      return;
    }
    written += static_cast<size_t>(taken);
  }
  text_.erase(0, written);
}

}  // namespace tutti::launch
