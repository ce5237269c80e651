// TUTTI_DETERMINISTIC: a result depends on inputs, type and rank count alone. Compared bit for bit over sizes, offsets, roots, collectives
// and the algorithms that the setting allows. (Every communicator of this process is created with it: a number is read once in a process.)
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "conformance/harness.h"

namespace tutti::conformance::deterministic_test {
namespace {

constexpr size_t kCount = 70001;  // from one-shot to two-shot, and through several slices of the smaller settings

template <class T>
std::vector<T> inputOf(int rank) {
  Random random(static_cast<uint64_t>(rank) + 77);
  std::vector<T> in(kCount);
  for (T& x : in) {
    const auto value = static_cast<float>(random.between(-1e3, 1e3));
    if constexpr (sizeof(T) == 2) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      x = static_cast<T>(bits >> 16);  // a bfloat16
    } else {
      x = static_cast<T>(value);
    }
  }
  return in;
}

/// All-reduces of parts, at any offset and of any length, give the bits of the all-reduce of the whole.
template <class T>
void concatenationHolds(int ranks, ncclDataType_t type, ncclRedOp_t op) {
  const ScopedEnv deterministic("TUTTI_DETERMINISTIC", "1");
  RankThreads threads(ranks);
  threads.run([&](int rank, ncclComm_t comm) {
    const std::vector<T> in = inputOf<T>(rank);
    std::vector<T> whole(kCount), parts(kCount), other(kCount);
    ASSERT_EQ(ncclAllReduce(in.data(), whole.data(), kCount, type, op, comm, nullptr), ncclSuccess) << ncclGetLastError(comm);
    Random cut(5);  // the same cuts on every rank
    for (size_t at = 0; at < kCount;) {
      const size_t longest = cut.below(4) == 0 ? 40000 : 700;
      const size_t count = std::min<size_t>(1 + cut.below(longest), kCount - at);
      ASSERT_EQ(ncclAllReduce(in.data() + at, parts.data() + at, count, type, op, comm, nullptr), ncclSuccess);
      at += count;
    }
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), kCount * sizeof(T)), 0) << "parts, " << ranks << " ranks";
    // In place, and through the collectives that hold parts of the result.
    other = in;
    ASSERT_EQ(ncclAllReduce(other.data(), other.data(), kCount, type, op, comm, nullptr), ncclSuccess);
    EXPECT_EQ(std::memcmp(whole.data(), other.data(), kCount * sizeof(T)), 0) << "in place, " << ranks << " ranks";
    const size_t block = kCount / static_cast<size_t>(ranks);
    ASSERT_EQ(ncclReduceScatter(in.data(), other.data(), block, type, op, comm, nullptr), ncclSuccess);
    EXPECT_EQ(std::memcmp(whole.data() + static_cast<size_t>(rank) * block, other.data(), block * sizeof(T)), 0) << "reduce-scatter";
    // A reduction to a root is the same whatever the root is.
    std::vector<T> first(kCount);
    for (int root = 0; root < ranks; ++root) {
      ASSERT_EQ(ncclReduce(in.data(), other.data(), kCount, type, op, root, comm, nullptr), ncclSuccess);
      ASSERT_EQ(ncclBroadcast(other.data(), other.data(), kCount, type, root, comm, nullptr), ncclSuccess);
      if (root == 0) first = other;
      EXPECT_EQ(std::memcmp(first.data(), other.data(), kCount * sizeof(T)), 0) << "root " << root;
    }
  });
}

TEST(Deterministic, FloatsOfAnyCutAndRoot) {
  for (const int ranks : {2, 3, 5, 8}) concatenationHolds<float>(ranks, ncclFloat, ncclSum);
}
TEST(Deterministic, SixteenBitFloatsToo) {
  for (const int ranks : {3, 4, 7}) concatenationHolds<uint16_t>(ranks, ncclBfloat16, ncclSum);
}
TEST(Deterministic, AveragesToo) {
  for (const int ranks : {3, 5}) concatenationHolds<float>(ranks, ncclFloat, ncclAvg);
  concatenationHolds<uint16_t>(6, ncclBfloat16, ncclAvg);
}

// A communicator that leaves no algorithm in rank order says so, and computes nothing.
TEST(Deterministic, RefusesARingThatWasAskedFor) {
  const ScopedEnv deterministic("TUTTI_DETERMINISTIC", "1");
  RankThreads threads(2, "allreduce:ring");
  threads.run([&](int, ncclComm_t comm) {
    float x = 1;
    EXPECT_EQ(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("TUTTI_DETERMINISTIC"), std::string::npos) << ncclGetLastError(comm);
  });
}

}  // namespace
}  // namespace tutti::conformance::deterministic_test
