// Sizes of messages: which chunks are equally long, for many counts that do not divide.
//
// Pure functions of algo/geometry.h.
// 1. Two chunks are of one size class if and only if every slice of one, on every channel and for every count tried, has as many
//    elements as the same slice of the other. A sender and a receiver that name chunks of one class agree on every size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algo/geometry.h"

namespace tutti::exec::prove {

/// A geometry with exactly that many slices, whose count does not divide by anything in sight.
algo::Geometry oddGeometry(algo::Division division, int32_t chunks, int32_t channels, int32_t slices);

/// Empty when the slices of all channels cover every chunk, and the chunks the buffer, exactly once and in order; else what is
/// wrong.
std::string checkCover(const algo::Geometry& geometry, int32_t chunks);

struct SizeClasses {
  std::vector<uint32_t> ofChunk;
  std::string failure;  ///< of checkCover, for any of the counts tried
};
SizeClasses classifySizes(algo::Division division, int32_t chunks, int32_t channels, int32_t slices);

}  // namespace tutti::exec::prove
