// Memory of one rank, with guard bytes before and after the part in use.
//
// Owned and used by one rank's thread; others may read between two barriers.
// 1. data() is page-aligned; 256 bytes before it, and after the part in use, hold a pattern that nobody may change.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/options.h"
#include "core/status.h"

namespace tutti::bench {

class Buffer {
 public:
  /// Maps `capacity` bytes, zero until touched. SystemError when there is no memory.
  static Result<Buffer> map(uint64_t capacity);
  /// The same, or memory of malloc (not zero) or ncclMemAlloc, with the library's error code.
  static Result<Buffer> make(BufferKind kind, uint64_t capacity);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }

  /// Writes the guards around `bytes` bytes in use.
  void writeGuards(uint64_t bytes);
  /// How many guard bytes have changed since.
  uint64_t countBrokenGuards(uint64_t bytes) const;

 private:
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t mapped_ = 0;
  BufferKind kind_ = BufferKind::Malloc;
};

/// Memory that this machine could still give, in bytes; 0 when unknown.
uint64_t availableMemory();

}  // namespace tutti::bench
