// What the processes of a communicator tell each other about single pipes; for distant.cc and distant_leave.cc.
// Plain values; pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "transport/local/pipe.h"
#include "transport/net/network.h"

namespace tutti::comm {

/// The receiver of a pipe listens.
struct PipeEnd {
  std::array<int32_t, 4> key;
  transport::net::Handle handle;
  std::array<char, 32> network;  ///< its name, as far as it goes
};
/// Its sender has departed: so many messages there are in all.
struct PipeCount {
  std::array<int32_t, 4> key;
  uint64_t messages;
};

/// Messages that a pipe has been given so far.
inline uint64_t countMessages(const transport::local::PipeView& pipe) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < pipe.numHeads; ++s)
    most = std::max(most, pipe.heads[s].filled.load(std::memory_order_acquire));  // pairs with SendEnd::push, or the job's release
  return most;
}

template <class T>
std::span<const std::byte> bytesOfValue(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
bool readValue(std::span<const std::byte> body, T& value) {
  if (body.size() != sizeof value) return false;
  std::memcpy(&value, body.data(), sizeof value);
  return true;
}

}  // namespace tutti::comm
