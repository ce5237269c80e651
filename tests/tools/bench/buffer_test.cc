#include "bench/buffer.h"

#include <gtest/gtest.h>

namespace tutti::bench::buffer_test {
namespace {

TEST(Buffer, GuardsStandDirectlyBesideTheBytesInUse) {
  Buffer buffer = *Buffer::map(5000);
  buffer.writeGuards(5000);
  EXPECT_EQ(buffer.countBrokenGuards(5000), 0u);
  buffer.data()[0] = buffer.data()[4999] = std::byte{1};
  EXPECT_EQ(buffer.countBrokenGuards(5000), 0u);
  buffer.data()[-1] = buffer.data()[5000] = std::byte{1};
  EXPECT_EQ(buffer.countBrokenGuards(5000), 2u);
}

TEST(Buffer, MovesLeaveOneOwner) {
  Buffer first = *Buffer::map(0);
  std::byte* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  second = *Buffer::map(100);
  EXPECT_NE(second.data(), nullptr);
}

TEST(Buffer, EveryKindIsAlignedToPages) {
  for (const BufferKind kind : {BufferKind::Malloc, BufferKind::PlainMalloc, BufferKind::NcclMem}) {
    Buffer buffer = *Buffer::make(kind, 5000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    buffer.writeGuards(5000);
    EXPECT_EQ(buffer.countBrokenGuards(5000), 0u);
  }
}

TEST(Buffer, TooMuchMemoryIsAnError) {
  for (const BufferKind kind : {BufferKind::Malloc, BufferKind::PlainMalloc}) {
    const Result<Buffer> buffer = Buffer::make(kind, uint64_t{1} << 60);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().code(), Code::SystemError);
  }
}

TEST(Buffer, MemoryOfTheMachineIsKnown) { EXPECT_GT(availableMemory(), uint64_t{1} << 20); }

}  // namespace
}  // namespace tutti::bench::buffer_test
