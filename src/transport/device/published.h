// Memory of the user that other ranks of the host may map, of this process or another one: windows of communicators.
//
// Owner: Segments, one a process. Any thread; one lock, held while the driver exports.
// 1. What is published holds a reference to the physical memory, so that a peer that maps it never has memory that was given to somebody
//    else meanwhile, whatever the user frees. Whoever maps it keeps it too.
// 2. Only virtual memory that was made to be exported as descriptors can be published (ncclMemAlloc), and only within one mapping of it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "memory/device_allocation.h"

namespace tutti::transport::device {

class Published {
 public:
  struct At {
    uint64_t number = 0;  ///< never used twice
    uint64_t offset = 0;  ///< of the first byte in what is shared
    uint64_t buffer = 0;  ///< the driver's number of the memory that is mapped there now
  };
  /// [address, address + bytes) of `gpu`. UnhandledCudaError: it is no memory that can be shared, with the reason.
  Result<At> add(const memory::Gpu& gpu, driver::cuda::DevicePtr address, Bytes bytes);
  void remove(uint64_t number);
  /// What it takes to map it. InvalidArgument: nothing of that number is published on that device.
  Result<memory::Shared> share(int32_t device, uint64_t number) const;
  size_t size() const;

 private:
  struct Entry {
    driver::cuda::Device device = 0;
    memory::Allocation allocation;
  };
  mutable std::mutex mutex_;  ///< protects what follows
  std::map<uint64_t, Entry> entries_;
  uint64_t lastNumber_ = 0;
};

}  // namespace tutti::transport::device
