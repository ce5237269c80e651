#include "exec/prove/sizes.h"

#include <map>

#include "core/format.h"

namespace tutti::exec::prove {

using algo::Division;
using algo::Geometry;
using algo::Range;

Geometry oddGeometry(Division division, int32_t chunks, int32_t channels, int32_t slices) {
  // One-byte elements: a share is then a multiple of 64 elements, and 64 elements are a slice. 37 short of that, the last share
  // ends inside a slice.
  constexpr uint64_t kSlice = algo::kShareAlignBytes;
  const uint64_t chunkElems = kSlice * static_cast<uint64_t>(slices) * static_cast<uint64_t>(channels);
  const uint64_t whole = division == Division::Shares ? chunkElems * static_cast<uint64_t>(chunks) : chunkElems;
  return algo::makeGeometry(division, whole - 37, chunks, DataType::U8, channels, kSlice);
}

std::string checkCover(const Geometry& geometry, int32_t chunks) {
  uint64_t end = 0;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    for (int32_t channel = 0; channel < geometry.channels; ++channel) {
      for (int32_t slice = 0; slice < geometry.slices; ++slice) {
        const Range range = geometry.range(chunk, channel, slice);
        if (range.elems > 0 && range.begin != end)
          return format("chunk {} channel {} slice {} begins at element {}, but what comes before it ends at {}", chunk, channel, slice,
                        range.begin, end);
        if (range.elems > geometry.sliceElems)
          return format("chunk {} channel {} slice {} has {} elements, a slot carries {}", chunk, channel, slice, range.elems,
                        geometry.sliceElems);
        end += range.elems;
      }
    }
  }
  if (end != geometry.totalElems) return format("the chunks cover {} of {} elements", end, geometry.totalElems);
  return {};
}

SizeClasses classifySizes(Division division, int32_t chunks, int32_t channels, int32_t slices) {
  std::vector<Geometry> geometries{oddGeometry(division, chunks, channels, slices)};
  const auto n = static_cast<uint64_t>(chunks);
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, n - 1, n + 1, 17 * n + 5})
    geometries.push_back(algo::makeGeometry(division, count, chunks, DataType::BF16, channels, 96));

  SizeClasses classes;
  if (geometries.front().slices != slices) classes.failure = format("asked for {} slices, got {}", slices, geometries.front().slices);
  for (const Geometry& g : geometries)
    if (classes.failure.empty()) classes.failure = checkCover(g, chunks);

  std::map<std::vector<uint64_t>, uint32_t> known;
  std::vector<uint64_t> sizes;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    sizes.clear();
    for (const Geometry& g : geometries)
      for (int32_t channel = 0; channel < g.channels; ++channel)
        for (int32_t slice = 0; slice < g.slices; ++slice) sizes.push_back(g.range(chunk, channel, slice).elems);
    classes.ofChunk.push_back(known.emplace(sizes, static_cast<uint32_t>(known.size())).first->second);
  }
  return classes;
}

}  // namespace tutti::exec::prove
