// What the engine sends for a message of a pipe: a header of 128 bytes, then the payload unless it lies in the header.
//
// Plain values. A network carries them as messages of their own: header and pieces of the payload have different tags and are received
// strictly in the order in which they are sent.
// 1. A payload of at most kInlineBytes travels in the header.
// 2. A longer one follows in pieces of `pieceBytes`, the last of which may be smaller.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "transport/local/pipe.h"

namespace tutti::progress {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

inline constexpr uint32_t kHeaderMagic = 0x7475'7403;
inline constexpr int32_t kHeaderTag = 1;
inline constexpr int32_t kPayloadTag = 2;
/// Longest piece of a payload: what plugins whose sizes are ints can carry, with room.
inline constexpr uint64_t kMostPieceBytes = uint64_t{1} << 29;

struct Header {
  uint32_t magic = kHeaderMagic;
  uint32_t pieceBytes = 0;  ///< 0: the payload is in the header
  uint64_t number = 0;      ///< of the message within its pipe, from 1
  uint64_t signature = 0;
  uint64_t bytes = 0;
  std::byte payload[transport::local::kInlineBytes] = {};
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

/// Whether a header is that of message `number`, of at most so many bytes, and says how its payload comes.
inline bool isHeaderOf(const Header& header, uint64_t number, uint64_t mostBytes, uint64_t mostPieceBytes) {
  const bool inHeader = header.pieceBytes == 0;
  return header.magic == kHeaderMagic && header.number == number && header.bytes <= mostBytes &&
         inHeader == (header.bytes <= transport::local::kInlineBytes) && header.pieceBytes <= mostPieceBytes;
}

}  // namespace tutti::progress
