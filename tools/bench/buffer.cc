#include "bench/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "nccl.h"

namespace tutti::bench {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kGuard = 256;
constexpr std::byte kGuardByte{0xa5};

uint64_t countChanged(const std::byte* begin) {
  return static_cast<uint64_t>(std::count_if(begin, begin + kGuard, [](std::byte b) { return b != kGuardByte; }));
}

}  // namespace

Result<Buffer> Buffer::map(uint64_t capacity) {
  Buffer buffer;
  buffer.mapped_ = (capacity + 3 * kPage) / kPage * kPage;
  void* base = mmap(nullptr, buffer.mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return fail(Code::SystemError, "no memory for a buffer of {} bytes: {}", capacity, std::strerror(errno));
  // Advice only: as an allocator with large pages would do for memory of this size.
  (void)madvise(base, buffer.mapped_, MADV_HUGEPAGE);
  buffer.base_ = static_cast<std::byte*>(base);
  buffer.data_ = buffer.base_ + kPage;
  return buffer;
}

Result<Buffer> Buffer::make(BufferKind kind, uint64_t capacity) {
  if (kind == BufferKind::Malloc) return map(capacity);
  Buffer buffer;
  buffer.kind_ = kind;
  buffer.mapped_ = (capacity + 3 * kPage) / kPage * kPage;
  void* base = nullptr;
  if (kind == BufferKind::PlainMalloc) {
    base = std::aligned_alloc(kPage, buffer.mapped_);
    if (!base) return fail(Code::SystemError, "no memory for a buffer of {} bytes", capacity);
  } else if (const ncclResult_t result = ncclMemAlloc(&base, buffer.mapped_); result != ncclSuccess) {
    return fail(static_cast<Code>(result), "ncclMemAlloc of {} bytes: {}: {}", buffer.mapped_, ncclGetErrorString(result),
                ncclGetLastError(nullptr));
  }
  buffer.base_ = static_cast<std::byte*>(base);
  buffer.data_ = buffer.base_ + kPage;
  return buffer;
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  std::swap(kind_, other.kind_);
  return *this;
}

Buffer::~Buffer() {
  if (!base_) return;
  switch (kind_) {
    case BufferKind::Malloc: munmap(base_, mapped_); break;
    case BufferKind::PlainMalloc: std::free(base_); break;
    case BufferKind::NcclMem: (void)ncclMemFree(base_); break;
  }
}

void Buffer::writeGuards(uint64_t bytes) {
  std::fill_n(data_ - kGuard, kGuard, kGuardByte);
  std::fill_n(data_ + bytes, kGuard, kGuardByte);
}

uint64_t Buffer::countBrokenGuards(uint64_t bytes) const { return countChanged(data_ - kGuard) + countChanged(data_ + bytes); }

uint64_t availableMemory() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/meminfo", "re"), std::fclose);
  char line[128];
  while (file && std::fgets(line, sizeof line, file.get())) {
    constexpr std::string_view kName = "MemAvailable:";
    if (std::string_view(line).starts_with(kName)) return std::strtoull(line + kName.size(), nullptr, 10) * 1024;  // it is in KiB
  }
  return 0;
}

}  // namespace tutti::bench
