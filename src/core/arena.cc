#include "core/arena.h"

#include <algorithm>
#include <limits>
#include <new>

namespace tutti {

size_t Arena::capacity() const noexcept {
  size_t sum = 0;
  for (const Block& block : blocks_) sum += block.bytes;
  return sum;
}

size_t Arena::arrayBytes(size_t count, size_t elementBytes) {
  if (count > std::numeric_limits<size_t>::max() / elementBytes) return std::numeric_limits<size_t>::max();
  return count * elementBytes;
}

void* Arena::allocateSlow(size_t bytes, size_t alignment) {
  // Blocks kept by reset() first. The free rest of a block that is passed over stays unused until the next reset.
  while (current_ + 1 < blocks_.size()) {
    ++current_;
    used_ = 0;
    if (void* place = carve(bytes, alignment)) return place;
  }
  if (bytes > std::numeric_limits<size_t>::max() - alignment) throw std::bad_alloc();
  const size_t size = std::max(nextBlockBytes_, bytes + alignment - 1);
  blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
  nextBlockBytes_ = std::max(nextBlockBytes_, std::min(nextBlockBytes_ * 2, kMaxBlockBytes));
  current_ = blocks_.size() - 1;
  used_ = 0;
  return carve(bytes, alignment);
}

}  // namespace tutti
