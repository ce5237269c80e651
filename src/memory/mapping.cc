#include "memory/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::memory {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

Bytes roundToPages(Bytes size) {
  const uint64_t page = pageBytes();
  return Bytes((size.value + page - 1) / page * page);
}

/// Large regions are touched in long streams: fewer page faults and TLB misses with large pages, where the kernel has them.
void adviseLargePages(void* data, Bytes size) {
  if (size.value >= kHugePage) (void)madvise(data, size.value, MADV_HUGEPAGE);
}

}  // namespace

uint64_t pageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, Bytes(0))), fd_(std::exchange(other.fd_, -1)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_.value);
  if (fd_ >= 0) close(fd_);
}

Result<Mapping> Mapping::anonymous(Bytes size) {
  if (size.value > SIZE_MAX / 2) return fail(Code::SystemError, "cannot map {} bytes: larger than the address space", size.value);
  size = roundToPages(size);
  void* data = mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return fail(Code::SystemError, "cannot map {} bytes of memory: {}", size.value, std::strerror(errno));
  return Mapping(static_cast<std::byte*>(data), size, -1);
}

Result<Mapping> Mapping::shareable(Bytes size) {
  if (size.value > SIZE_MAX / 2) return fail(Code::SystemError, "cannot share {} bytes: larger than the address space", size.value);
  size = roundToPages(size);
  const int fd = memfd_create("tutti", MFD_CLOEXEC);
  if (fd < 0) return fail(Code::SystemError, "cannot create memory to share (memfd_create): {}", std::strerror(errno));
  Mapping half(nullptr, Bytes(0), fd);  // closes the descriptor if the rest fails
  if (ftruncate(fd, static_cast<off_t>(size.value)) != 0)
    return fail(Code::SystemError, "cannot give a memfd {} bytes: {}", size.value, std::strerror(errno));
  void* data = mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return fail(Code::SystemError, "cannot map {} bytes of a memfd: {}", size.value, std::strerror(errno));
  adviseLargePages(data, size);
  half.data_ = static_cast<std::byte*>(data);
  half.size_ = size;
  return half;
}

Result<Mapping> Mapping::ofFile(int fd, uint64_t offset, Bytes size) {
  if (size.value > SIZE_MAX / 2) return fail(Code::SystemError, "cannot map {} bytes: larger than the address space", size.value);
  size = roundToPages(size);
  void* data = mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return fail(Code::SystemError, "cannot map {} bytes of a shared file: {}", size.value, std::strerror(errno));
  adviseLargePages(data, size);
  return Mapping(static_cast<std::byte*>(data), size, -1);
}

bool Mapping::renew(uint64_t begin, uint64_t end) noexcept {
  // Had first and moved there then: what the kernel refuses, it refuses before anything is lost.
  const uint64_t bytes = end - begin;
  void* const fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fresh == MAP_FAILED) return false;
  if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) != MAP_FAILED) return true;
  munmap(fresh, bytes);
  return false;
}

}  // namespace tutti::memory
