#include "memory/mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tutti::memory::mapping_test {
namespace {

uint64_t pageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

bool isZeroed(const Mapping& mapping) {
  return std::all_of(mapping.data(), mapping.data() + mapping.size().value, [](std::byte b) { return b == std::byte{0}; });
}

bool isOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Mapping, DefaultOwnsNothing) {
  const Mapping mapping;
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_EQ(mapping.size().value, 0U);
  EXPECT_EQ(mapping.fd(), -1);
}

TEST(Mapping, AnonymousMemoryIsZeroedPageAlignedAndPrivate) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{4095}, uint64_t{4097}, uint64_t{3} << 20}) {
    auto mapping = Mapping::anonymous(Bytes(size));
    ASSERT_TRUE(mapping);
    EXPECT_GE(mapping->size().value, size);
    EXPECT_LT(mapping->size().value, size + pageSize());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapping->data()) % pageSize(), 0U);
    EXPECT_EQ(mapping->fd(), -1);
    EXPECT_TRUE(isZeroed(*mapping));
    std::memset(mapping->data(), 0x5a, mapping->size().value);  // all of it can be written
  }
}

TEST(Mapping, ShareableMemoryCanBeMappedTwice) {
  auto mapping = Mapping::shareable(Bytes(10000));
  ASSERT_TRUE(mapping);
  ASSERT_TRUE(isOpen(mapping->fd()));
  EXPECT_TRUE(isZeroed(*mapping));
  EXPECT_NE(fcntl(mapping->fd(), F_GETFD) & FD_CLOEXEC, 0);

  void* other = mmap(nullptr, mapping->size().value, PROT_READ, MAP_SHARED, mapping->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  mapping->data()[9999] = std::byte{42};
  EXPECT_EQ(static_cast<std::byte*>(other)[9999], std::byte{42});
  munmap(other, mapping->size().value);
}

TEST(Mapping, LargeShareableMemoryIsWhole) {
  auto mapping = Mapping::shareable(Bytes(uint64_t{5} << 20));
  ASSERT_TRUE(mapping);
  mapping->data()[0] = std::byte{1};
  mapping->data()[mapping->size().value - 1] = std::byte{2};
  EXPECT_EQ(mapping->data()[0], std::byte{1});
}

TEST(Mapping, MovingLeavesTheSourceEmpty) {
  auto made = Mapping::shareable(Bytes(100));
  ASSERT_TRUE(made);
  std::byte* const data = made->data();
  const int fd = made->fd();
  {
    Mapping a = std::move(*made);
    EXPECT_EQ(made->data(), nullptr);
    EXPECT_EQ(made->fd(), -1);
    EXPECT_EQ(a.data(), data);
    Mapping b;
    b = std::move(a);
    EXPECT_EQ(b.data(), data);
    EXPECT_EQ(b.fd(), fd);
    EXPECT_TRUE(isOpen(fd));
  }
  EXPECT_FALSE(isOpen(fd)) << "the descriptor outlived its owner";
}

TEST(Mapping, TheOwnerReturnsTheMemory) {
  std::byte* data = nullptr;
  {
    auto mapping = Mapping::anonymous(Bytes(4096));
    ASSERT_TRUE(mapping);
    data = mapping->data();
    data[0] = std::byte{1};
  }
  unsigned char resident = 0;
  EXPECT_NE(mincore(data, 4096, &resident), 0) << "the page is still mapped";
}

TEST(Mapping, WhatCannotBeIsASystemErrorThatNamesTheSize) {
  for (const uint64_t size : {UINT64_MAX, uint64_t{1} << 62}) {
    const auto anonymous = Mapping::anonymous(Bytes(size));
    ASSERT_FALSE(anonymous);
    EXPECT_EQ(anonymous.error().code(), Code::SystemError);
    EXPECT_NE(anonymous.error().text().find(std::to_string(size)), std::string::npos) << anonymous.error().text();
    const auto shareable = Mapping::shareable(Bytes(size));
    ASSERT_FALSE(shareable);
    EXPECT_EQ(shareable.error().code(), Code::SystemError);
  }
}

TEST(Mapping, AFailureLeavesNoDescriptorBehind) {
  const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(before);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(Mapping::shareable(Bytes(uint64_t{1} << 62)));
  const int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(after);
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace tutti::memory::mapping_test
