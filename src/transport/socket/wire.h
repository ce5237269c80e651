// The bytes of an established connection: on stream 0, frames, each followed by its message unless helpers carry that.
// Plain values.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tutti::transport::socket {

struct Frame {
  uint64_t bytes = 0;
  int32_t tag = 0;
  /// 0: the message follows on stream 0. Else it is cut into pieces of that size (the last may be smaller), one for each of the
  /// data streams in turn, beginning behind the one that carried the last piece before.
  uint32_t pieceBytes = 0;
};
static_assert(sizeof(Frame) == 16 && std::is_trivially_copyable_v<Frame>);

/// A frame without message, the first on the way back: somebody has accepted the connection.
inline constexpr uint64_t kWelcome = ~uint64_t{1};
/// A frame without message: the sender leaves. The receiver's, on the way back, is the same.
inline constexpr uint64_t kLeave = ~uint64_t{0};

}  // namespace tutti::transport::socket
