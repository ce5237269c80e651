// Memory that only grows until it is all given back at once: scratch of a call, parts of a plan.
//
// Owner of the blocks: the arena; what it hands out lives until reset() or destruction. One thread at a time.
// 1. No destructor of an object in the arena is ever run; make() and makeArray() accept only types that need none.
// 2. reset() keeps the blocks: a call that fits into what an earlier one needed allocates nothing.
// 3. A returned address never moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {

class Arena {
 public:
  /// The first block is allocated at first use and holds `firstBlockBytes`; each further one doubles, up to kMaxBlockBytes.
  explicit Arena(size_t firstBlockBytes = 4096) noexcept : nextBlockBytes_(firstBlockBytes ? firstBlockBytes : 1) {}
  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() = default;

  /// `bytes` uninitialised bytes at a multiple of `alignment` (a power of two). Never null; std::bad_alloc when memory is out.
  void* allocate(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
    if (void* place = carve(bytes, alignment)) [[likely]] return place;
    return allocateSlow(bytes, alignment);
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>, "the arena runs no destructors");
    return ::new (allocate(sizeof(T), alignof(T))) T(std::forward<Args>(args)...);
  }

  /// `count` value-initialised elements.
  template <class T>
  std::span<T> makeArray(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>, "the arena runs no destructors");
    T* first = static_cast<T*>(allocate(arrayBytes(count, sizeof(T)), alignof(T)));
    std::uninitialized_value_construct_n(first, count);
    return {first, count};
  }

  /// Everything handed out becomes invalid; the blocks are used again.
  void reset() noexcept {
    current_ = 0;
    used_ = 0;
  }

  /// Bytes of all blocks, used or not.
  size_t capacity() const noexcept;

  static constexpr size_t kMaxBlockBytes = size_t{1} << 20;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    size_t bytes = 0;
  };

  static size_t arrayBytes(size_t count, size_t elementBytes);

  void* carve(size_t bytes, size_t alignment) noexcept {
    if (current_ >= blocks_.size()) return nullptr;
    const Block& block = blocks_[current_];
    const auto base = reinterpret_cast<uintptr_t>(block.memory.get());
    const size_t start = ((base + used_ + alignment - 1) & ~(uintptr_t{alignment} - 1)) - base;
    if (start > block.bytes || bytes > block.bytes - start) return nullptr;
    used_ = start + bytes;
    return block.memory.get() + start;
  }
  void* allocateSlow(size_t bytes, size_t alignment);

  std::vector<Block> blocks_;
  size_t current_ = 0;  ///< Index of the block in use; blocks behind it are free.
  size_t used_ = 0;     ///< Bytes used of that block.
  size_t nextBlockBytes_;
};

}  // namespace tutti
