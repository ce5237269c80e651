#include "memory/host_allocator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/exports.h"

namespace tutti::memory::host_allocator_test {
namespace {

TEST(HostAllocator, GivesZeroedPages) {
  HostAllocator allocator;
  auto pointer = allocator.allocate(Bytes(5000));
  ASSERT_TRUE(pointer);
  const auto* bytes = static_cast<const unsigned char*>(*pointer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 4096, 0U);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(bytes[i], 0) << i;
  EXPECT_EQ(allocator.liveAllocations(), 1U);
  EXPECT_TRUE(allocator.free(*pointer));
  EXPECT_EQ(allocator.liveAllocations(), 0U);
}

TEST(HostAllocator, RefusesWhatIsNotTheStartOfAnAllocation) {
  HostAllocator allocator;
  auto pointer = allocator.allocate(Bytes(8192));
  ASSERT_TRUE(pointer);
  int local = 0;
  EXPECT_FALSE(allocator.free(nullptr));
  EXPECT_FALSE(allocator.free(&local));
  EXPECT_FALSE(allocator.free(static_cast<char*>(*pointer) + 4096));
  EXPECT_EQ(allocator.liveAllocations(), 1U);
  std::memset(*pointer, 1, 8192);  // still there
  EXPECT_TRUE(allocator.free(*pointer));
  EXPECT_FALSE(allocator.free(*pointer)) << "freed twice";
}

TEST(HostAllocator, KeepsAllocationsApart) {
  HostAllocator allocator;
  std::vector<void*> pointers;
  for (int i = 0; i < 20; ++i) {
    auto pointer = allocator.allocate(Bytes(static_cast<uint64_t>(1 + i * 1000)));
    ASSERT_TRUE(pointer);
    std::memset(*pointer, i, static_cast<size_t>(1 + i * 1000));
    pointers.push_back(*pointer);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(static_cast<unsigned char*>(pointers[static_cast<size_t>(i)])[i * 1000], i);
  for (void* p : pointers) EXPECT_TRUE(allocator.free(p));
}

TEST(HostAllocator, AFailureIsAnErrorAndCountsNothing) {
  HostAllocator allocator;
  const auto pointer = allocator.allocate(Bytes(UINT64_MAX));
  ASSERT_FALSE(pointer);
  EXPECT_EQ(pointer.error().code(), Code::SystemError);
  EXPECT_EQ(allocator.liveAllocations(), 0U);
}

TEST(HostAllocator, PagesThatAreTakenBackAreNobodyElses) {
  const uint64_t page = pageBytes();
  HostAllocator allocator;
  const int table = allocator.shareTable();
  ASSERT_GE(table, 0);
  const auto pointer = allocator.allocate(Bytes(8 * page));
  ASSERT_TRUE(pointer);
  auto* const here = static_cast<std::byte*>(*pointer);
  std::memset(here, 7, 8 * page);
  auto imports = ImportTable::open(getpid(), table);
  ASSERT_TRUE(imports) << imports.error().text();
  std::byte* const there = imports->find(reinterpret_cast<uint64_t>(here), 8 * page);
  ASSERT_NE(there, nullptr);
  ASSERT_NE(there, here);
  there[3 * page] = std::byte{9};
  ASSERT_EQ(here[3 * page], std::byte{9}) << "one memory, seen twice";

  // From inside the second page to inside the sixth: three whole pages.
  EXPECT_TRUE(allocator.isShared(here + page + 1, 4 * page));
  ASSERT_TRUE(allocator.takeBack(here + page + 1, 4 * page));
  std::memset(there, 1, 8 * page);
  for (uint64_t at = 0; at < 8 * page; ++at) {
    const bool isTaken = at >= 2 * page && at < 5 * page;
    ASSERT_EQ(here[at], isTaken ? std::byte{0} : std::byte{1}) << at;
  }
  EXPECT_FALSE(allocator.isShared(here, 8 * page));
  EXPECT_FALSE(allocator.isShared(here + 4 * page, 2 * page));
  EXPECT_TRUE(allocator.isShared(here, 2 * page));
  EXPECT_TRUE(allocator.isShared(here + 5 * page, 3 * page));
  EXPECT_TRUE(allocator.free(here));
}

TEST(HostAllocator, TakesNothingBackWithoutAWholePage) {
  const uint64_t page = pageBytes();
  HostAllocator allocator;
  ASSERT_GE(allocator.shareTable(), 0);
  const auto pointer = allocator.allocate(Bytes(2 * page));
  ASSERT_TRUE(pointer);
  auto* const here = static_cast<std::byte*>(*pointer);
  std::memset(here, 7, 2 * page);
  EXPECT_TRUE(allocator.takeBack(here + 1, page));
  EXPECT_EQ(here[page], std::byte{7});
  EXPECT_TRUE(allocator.isShared(here, 2 * page));
  EXPECT_TRUE(allocator.takeBack(&allocator, page)) << "not its memory: nothing that others could write";
}

TEST(HostAllocator, ServesManyThreads) {
  HostAllocator allocator;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&allocator, t] {
      for (int i = 0; i < 200; ++i) {
        auto pointer = allocator.allocate(Bytes(static_cast<uint64_t>(64 + i)));
        ASSERT_TRUE(pointer);
        *static_cast<int*>(*pointer) = t * 1000 + i;
        ASSERT_EQ(*static_cast<int*>(*pointer), t * 1000 + i);
        ASSERT_TRUE(allocator.free(*pointer));
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(allocator.liveAllocations(), 0U);
}

}  // namespace
}  // namespace tutti::memory::host_allocator_test
