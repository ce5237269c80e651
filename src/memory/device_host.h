// Host memory that the devices of this process address: what ranks share where devices cannot reach each other.
//
// Owner: the holder (move-only), one for a process and a piece of memory, however many of its ranks use it: the driver takes no range
// twice. The memory stays mapped as long as this lives. Any thread, as any value.
// 1. Every device of the process may use it, also those whose contexts come later (portable registration).
#pragma once

#include "memory/device.h"

namespace tutti::memory {

class RegisteredHost {
 public:
  RegisteredHost() = default;
  RegisteredHost(RegisteredHost&& other) noexcept { *this = std::move(other); }
  RegisteredHost& operator=(RegisteredHost&& other) noexcept;
  ~RegisteredHost() { release(); }

  /// `data` begins at a page and is mapped readable and writable, e.g. memory::Mapping of a memfd.
  static Result<RegisteredHost> make(const Gpu& gpu, void* data, Bytes bytes);
  /// Where `gpu`, any of the process, finds the first byte.
  Result<driver::cuda::DevicePtr> addressFor(const Gpu& gpu) const;
  void* data() const { return data_; }
  Bytes size() const { return size_; }

 private:
  void release();
  const Gpu* gpu_ = nullptr;  ///< through which it was registered
  void* data_ = nullptr;
  Bytes size_;
};

}  // namespace tutti::memory
