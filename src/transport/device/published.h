// Memory of the user that other ranks of the host may map, of this process or another one: windows of communicators, and the buffers of
// calls that are captured.
//
// Owner: Segments, one a process. Any thread; one lock, held while the driver exports.
// 1. What is published holds a reference to the physical memory, so that a peer that maps it never has memory that was given to somebody
//    else meanwhile, whatever the user frees. Whoever maps it keeps it too.
// 2. Virtual memory that was made to be exported as descriptors can be published (ncclMemAlloc), within one mapping of it.
// 3. So can plain memory (cudaMalloc) where whoever publishes it says that all readers are other processes, to which alone the driver gives
//    it. It is not kept: once it is freed it can be mapped no more, and what was mapped before stays.
// 4. Memory that is published already has the same number again, so readers map it once, and goes when it was removed as often.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "memory/device_memory.h"

namespace tutti::transport::device {

class Published {
 public:
  struct At {
    uint64_t number = 0;        ///< never used for other memory
    uint64_t offset = 0;        ///< of the first byte in what is shared
    uint64_t buffer = 0;        ///< the driver's number of the memory that is mapped there now
    bool hasFinePages = false;  ///< smaller ones than the driver can: copy engines of peers are slower there
  };
  /// What is published, until it goes; Published outlives it.
  class Hold {
   public:
    Hold() = default;
    Hold(Published& from, uint64_t number) : from_(&from), number_(number) {}
    Hold(Hold&& other) noexcept : from_(std::exchange(other.from_, nullptr)), number_(other.number_) {}
    Hold& operator=(Hold&& other) noexcept {
      reset();
      from_ = std::exchange(other.from_, nullptr);
      number_ = other.number_;
      return *this;
    }
    ~Hold() { reset(); }
    uint64_t number() const { return number_; }
    void reset() {
      if (from_ != nullptr) std::exchange(from_, nullptr)->remove(number_);
    }

   private:
    Published* from_ = nullptr;
    uint64_t number_ = 0;
  };
  enum class Readers : uint8_t { Any, OtherProcesses };
  /// [address, address + bytes) of `gpu`. UnhandledCudaError: it is no memory that can be shared, with the reason.
  Result<At> add(const memory::Gpu& gpu, driver::cuda::DevicePtr address, Bytes bytes, Readers readers = Readers::Any);
  void remove(uint64_t number);
  /// What it takes to map it. InvalidArgument: nothing of that number is published on that device.
  Result<memory::Shared> share(int32_t device, uint64_t number) const;
  size_t size() const;

 private:
  /// Plain memory whose length is no multiple of it is given smaller pages (docs/decisions/0064).
  static constexpr uint64_t kCoarseBytes = 1 << 20;
  struct Entry {
    const memory::Gpu* gpu = nullptr;
    uint64_t buffer = 0;  ///< the driver's number of it
    memory::Allocation allocation;
    memory::ShareTicket plain;  ///< of plain memory, which has no allocation
    bool hasFinePages() const { return !allocation && plain.bytes % kCoarseBytes != 0; }
    uint64_t uses = 1;
  };
  mutable std::mutex mutex_;  ///< protects what follows
  std::map<uint64_t, Entry> entries_;
  uint64_t lastNumber_ = 0;
};

}  // namespace tutti::transport::device
