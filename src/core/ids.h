// Ids and sizes as types: a local rank does not convert into a rank, nor elements into bytes.
// Plain values, trivially copyable, the same on host and device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/macros.h"

namespace tutti {

/// A number with a meaning. Explicit to make, ordered, comparable; no arithmetic between different meanings.
template <class Tag, class Rep>
struct Id {
  Rep value{};

  constexpr Id() = default;
  TUTTI_HD constexpr explicit Id(Rep v) : value(v) {}
  friend TUTTI_HD constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend TUTTI_HD constexpr bool operator!=(Id a, Id b) { return a.value != b.value; }
  friend TUTTI_HD constexpr bool operator<(Id a, Id b) { return a.value < b.value; }
  friend TUTTI_HD constexpr bool operator<=(Id a, Id b) { return a.value <= b.value; }
  friend TUTTI_HD constexpr bool operator>(Id a, Id b) { return a.value > b.value; }
  friend TUTTI_HD constexpr bool operator>=(Id a, Id b) { return a.value >= b.value; }
};

/// A size: an Id that adds to its own kind and scales by plain numbers.
template <class Tag>
struct Size : Id<Tag, uint64_t> {
  constexpr Size() = default;
  TUTTI_HD constexpr explicit Size(uint64_t v) : Id<Tag, uint64_t>(v) {}
  friend TUTTI_HD constexpr Size operator+(Size a, Size b) { return Size(a.value + b.value); }
  friend TUTTI_HD constexpr Size operator-(Size a, Size b) { return Size(a.value - b.value); }
  friend TUTTI_HD constexpr Size operator*(Size a, uint64_t factor) { return Size(a.value * factor); }
  TUTTI_HD constexpr Size& operator+=(Size other) {
    this->value += other.value;
    return *this;
  }
};

using Rank = Id<struct RankTag, int32_t>;            ///< A member of a communicator, 0 … size-1.
using LocalRank = Id<struct LocalRankTag, int32_t>;  ///< A member counted within its node.
using ChannelId = Id<struct ChannelTag, int32_t>;    ///< An independent lane group of a collective.
using Bytes = Size<struct BytesTag>;
using Elems = Size<struct ElemsTag>;

/// How many bytes `count` elements of `elementSize` bytes take.
TUTTI_HD constexpr Bytes bytesOf(Elems count, uint32_t elementSize) { return Bytes(count.value * elementSize); }

}  // namespace tutti
