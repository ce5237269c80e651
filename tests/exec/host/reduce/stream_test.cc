#include "exec/host/reduce/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "exec/host/reduce/reduce.h"

namespace tutti::exec::host::stream_test {
namespace {

constexpr size_t kMargin = 64;

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>(i * 31 + i / 251 + 1);
  return data;
}

/// Runs `copy(dst, src, bytes)` at the given offsets: all bytes arrive, and none beside them changes.
template <class Copy>
void expectCopied(Copy copy, size_t bytes, size_t dstOffset, size_t srcOffset) {
  const std::vector<unsigned char> from = pattern(bytes + srcOffset + 1);  // never empty: memcpy takes no null
  std::vector<unsigned char> to(bytes + dstOffset + kMargin, 0xee);
  copy(to.data() + dstOffset, from.data() + srcOffset, bytes);
  fenceStreams();
  for (size_t i = 0; i < to.size(); ++i) {
    const bool isCopied = i >= dstOffset && i < dstOffset + bytes;
    ASSERT_EQ(to[i], isCopied ? from[i - dstOffset + srcOffset] : 0xee) << i << ' ' << bytes << ' ' << dstOffset << ' ' << srcOffset;
  }
}

TEST(Stream, CopiesEveryLengthAtEveryAlignment) {
  for (size_t bytes = 0; bytes <= 100; ++bytes)
    for (size_t dst = 0; dst < 17; ++dst)
      for (const size_t src : {size_t{0}, size_t{1}, size_t{15}}) expectCopied(streamBytes, bytes, dst, src);
  for (const size_t bytes : {size_t{4095}, size_t{4096}, size_t{100001}}) expectCopied(streamBytes, bytes, 3, 7);
}

TEST(Copy, BothWaysMoveTheSameBytes) {
  for (const bool nonTemporal : {false, true})
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{70001}})
      expectCopied([&](void* dst, const void* src, size_t n) { copyBytes(dst, src, n, nonTemporal); }, bytes, 5, 9);
}

TEST(Copy, OfClaimedLinesMovesTheSameBytes) {
  for (const bool nonTemporal : {false, true})
    for (const size_t bytes : {size_t{1}, size_t{511}, size_t{513}, size_t{8191}, size_t{8192}, size_t{8193}, size_t{8255}, size_t{70001}})
      for (const size_t dst : {size_t{0}, size_t{5}})
        for (const auto copy : {claimBytes, copyClaimed})
          expectCopied([&](void* to, const void* from, size_t n) { copy(to, from, n, nonTemporal); }, bytes, dst, 9);
}

TEST(Copy, OntoItselfAndOfNothingIsFine) {
  std::vector<unsigned char> data = pattern(10000);
  copyBytes(data.data(), data.data(), data.size(), true);
  EXPECT_EQ(data, pattern(10000));
  copyBytes(nullptr, nullptr, 0, true);
  copyBytes(nullptr, nullptr, 0, false);
  copyClaimed(nullptr, nullptr, 0, false);
}

TEST(Stream, IsVisibleToWhoSeesALaterStore) {
  constexpr size_t kBytes = 1 << 16;
  const std::vector<unsigned char> from = pattern(kBytes);
  std::vector<unsigned char> to(kBytes);
  for (int round = 0; round < 100; ++round) {
    std::fill(to.begin(), to.end(), static_cast<unsigned char>(0));
    std::atomic<bool> done{false};
    std::thread reader([&] {
      while (!done.load(std::memory_order_acquire)) std::this_thread::yield();
      EXPECT_EQ(to, from);
    });
    copyBytes(to.data(), from.data(), kBytes, true);
    done.store(true, std::memory_order_release);
    reader.join();
  }
}

}  // namespace
}  // namespace tutti::exec::host::stream_test
