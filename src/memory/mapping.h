// Page-aligned memory straight from the kernel: zeroed, lazily backed, returned when the owner goes.
// Owner: the Mapping (move-only). Thread-safe as any value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/ids.h"
#include "core/status.h"

namespace tutti::memory {

/// Of the system, in bytes.
uint64_t pageBytes();

class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Private memory of this process. Fails with SystemError when the kernel has none.
  static Result<Mapping> anonymous(Bytes size);
  /// Memory behind a nameless file (memfd): no file system entry, no /dev/shm quota, and it can be handed to another process.
  static Result<Mapping> shareable(Bytes size);

  /// Part of a shared file, which stays the caller's. `offset` is a multiple of the page size.
  static Result<Mapping> ofFile(int fd, uint64_t offset, Bytes size);

  /// Gives the pages [begin, end), counted in bytes from data(), fresh private memory, zeroed: what other processes have mapped there is
  /// not this memory any more. False when the kernel has none, or no room to note it.
  bool renew(uint64_t begin, uint64_t end) noexcept;

  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  /// The memfd, or -1 for private memory.
  int fd() const { return fd_; }

 private:
  Mapping(std::byte* data, Bytes size, int fd) : data_(data), size_(size), fd_(fd) {}
  std::byte* data_ = nullptr;
  Bytes size_;
  int fd_ = -1;
};

}  // namespace tutti::memory
