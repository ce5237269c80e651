// Groups on GPUs: messages of random patterns and sizes, also to itself and several of a pair, alone and beside collectives, on several
// streams; ranks as threads, or all of them driven by one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/gpu/fake_gpus.h"
#include "conformance/harness.h"

namespace tutti::conformance::messages_test {
namespace {

int rounds(int otherwise) {
  const char* text = std::getenv("TUTTI_TEST_SAMPLE");
  return text == nullptr ? otherwise : std::atoi(text);
}

/// Memory of the GPU that is current when it is made.
class GpuBytes {
 public:
  explicit GpuBytes(size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(ncclMemAlloc(&memory_, bytes + 1), ncclSuccess) << ncclGetLastError(nullptr);
    std::memset(memory_, 0x5a, bytes + 1);
  }
  GpuBytes(GpuBytes&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  GpuBytes& operator=(GpuBytes&&) = delete;
  ~GpuBytes() { EXPECT_EQ(ncclMemFree(memory_), ncclSuccess); }
  unsigned char* data() const { return static_cast<unsigned char*>(memory_); }
  size_t size() const { return bytes_; }
  bool isWhole() const { return data()[bytes_] == 0x5a; }

 private:
  void* memory_ = nullptr;
  size_t bytes_;
};

unsigned char byteOf(uint64_t seed, size_t i) { return static_cast<unsigned char>((seed * 31 + i * 7 + (i >> 8)) & 0xff); }

struct Message {
  int from;
  int to;
  size_t bytes;
  uint64_t seed;
};

/// What one group of all ranks does: the same list on every rank, each takes part in its own.
struct Plan {
  std::vector<Message> messages;
  std::vector<size_t> sums;  ///< all-reduces of so many ints
};

size_t randomBytes(Random& random) {
  constexpr size_t kMost[] = {1, 64, 3000, 60'000, 1'000'000};
  return random.below(12) == 0 ? 0 : 1 + random.below(kMost[random.below(std::size(kMost))]);
}

Plan randomPlan(int ranks, uint64_t seed) {
  Random random(seed);
  Plan plan;
  const uint64_t count = random.below(static_cast<uint64_t>(4 * ranks)) + 1;
  for (uint64_t i = 0; i < count; ++i) {
    const int from = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    const int to = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    const uint64_t repeats = random.below(5) == 0 ? 4 : 1;
    for (uint64_t k = 0; k < repeats; ++k) plan.messages.push_back({from, to, randomBytes(random), random.next()});
  }
  for (uint64_t i = random.below(3); i > 0; --i) plan.sums.push_back(1 + random.below(i % 2 == 0 ? 100 : 300'000));
  return plan;
}

/// A rank's part: its buffers, the calls, and whether all is right afterwards.
class Part {
 public:
  Part(const Plan& plan, int rank, int ranks) : plan_(plan), rank_(rank), ranks_(ranks) {
    for (const Message& m : plan.messages) {
      sent_.emplace_back(m.from == rank ? m.bytes : 0);
      received_.emplace_back(m.to == rank ? m.bytes : 0);
      for (size_t i = 0; i < sent_.back().size(); ++i) sent_.back().data()[i] = byteOf(m.seed, i);
    }
    for (const size_t count : plan.sums) {
      sums_.emplace_back(count * sizeof(int));
      for (size_t i = 0; i < count; ++i) ints(sums_.size() - 1)[i] = static_cast<int>(i) * (rank + 1);
    }
  }

  /// In the order of the list, receives and sends mixed; in turn on the streams.
  void call(ncclComm_t comm, const std::vector<cudaStream_t>& streams, uint64_t seed) {
    Random random(seed + static_cast<uint64_t>(rank_));
    size_t turn = 0;
    const auto stream = [&] { return streams[turn++ % streams.size()]; };
    size_t sum = 0;
    for (size_t i = 0; i < plan_.messages.size(); ++i) {
      const Message& m = plan_.messages[i];
      const bool sendsFirst = random.below(2) == 0;
      for (const bool sends : {sendsFirst, !sendsFirst}) {
        ncclResult_t result = ncclSuccess;
        if (sends && m.from == rank_) result = ncclSend(sent_[i].data(), m.bytes, ncclInt8, m.to, comm, stream());
        if (!sends && m.to == rank_) result = ncclRecv(received_[i].data(), m.bytes, ncclInt8, m.from, comm, stream());
        EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(comm);
      }
      if (sum < sums_.size() && i % 2 == 1) addSum(sum++, comm, stream());
    }
    while (sum < sums_.size()) addSum(sum++, comm, stream());
  }

  void check() const {
    for (size_t i = 0; i < plan_.messages.size(); ++i) {
      const Message& m = plan_.messages[i];
      EXPECT_TRUE(received_[i].isWhole());
      for (size_t at = 0; at < received_[i].size(); ++at)
        ASSERT_EQ(received_[i].data()[at], byteOf(m.seed, at))
            << "byte " << at << " of message " << i << ": " << m.bytes << " from " << m.from << " to " << m.to;
    }
    const int factor = ranks_ * (ranks_ + 1) / 2;
    for (size_t s = 0; s < sums_.size(); ++s)
      for (size_t i = 0; i < plan_.sums[s]; ++i) ASSERT_EQ(ints(s)[i], static_cast<int>(i) * factor) << "sum " << s << ", element " << i;
  }

 private:
  int* ints(size_t s) const { return reinterpret_cast<int*>(sums_[s].data()); }
  void addSum(size_t s, ncclComm_t comm, cudaStream_t stream) {
    EXPECT_EQ(ncclAllReduce(ints(s), ints(s), plan_.sums[s], ncclInt, ncclSum, comm, stream), ncclSuccess) << ncclGetLastError(comm);
  }

  const Plan& plan_;
  const int rank_;
  const int ranks_;
  std::vector<GpuBytes> sent_;
  std::vector<GpuBytes> received_;
  std::vector<GpuBytes> sums_;
};

class GpuMessages : public testing::TestWithParam<int> {};

TEST_P(GpuMessages, RandomGroupsOfThreads) {
  const int ranks = GetParam();
  FakeGpus gpus(ranks);
  {
    RankThreads threads(ranks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
    for (int round = 0; round < rounds(6); ++round) {
      const Plan plan = randomPlan(ranks, mix(static_cast<uint64_t>(ranks), static_cast<uint64_t>(round)));
      threads.run([&](int rank, ncclComm_t comm) {
        threads.announce("round " + std::to_string(round));
        Part part(plan, rank, ranks);
        std::vector<cudaStream_t> streams = {nullptr};
        for (int s = 0; s < round % 3; ++s) streams.push_back(gpus.makeStream());
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        part.call(comm, streams, static_cast<uint64_t>(round));
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(comm);
        for (const cudaStream_t stream : streams) synchronize(gpus, stream);
        part.check();
        for (size_t s = 1; s < streams.size(); ++s) gpus.driver().streamDestroy(streams[s]);
      });
    }
  }
}

TEST_P(GpuMessages, RandomGroupsOfOneThread) {
  const int ranks = GetParam();
  FakeGpus gpus(ranks);
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  ASSERT_EQ(ncclCommInitAll(comms.data(), ranks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  for (int round = 0; round < rounds(4); ++round) {
    const Plan plan = randomPlan(ranks, mix(static_cast<uint64_t>(ranks + 100), static_cast<uint64_t>(round)));
    std::vector<std::unique_ptr<Part>> parts;
    for (int r = 0; r < ranks; ++r) {
      const UseGpu use(gpus, r);
      parts.push_back(std::make_unique<Part>(plan, r, ranks));
    }
    runWithin(kStuckSeconds, "a group of one thread", [&] {
      ASSERT_EQ(ncclGroupStart(), ncclSuccess);
      for (size_t r = 0; r < comms.size(); ++r) parts[r]->call(comms[r], {nullptr}, static_cast<uint64_t>(round));
      ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
      for (int r = 0; r < ranks; ++r) {
        const UseGpu use(gpus, r);
        synchronize(gpus);
      }
    });
    for (const auto& part : parts) part->check();
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Ranks come to their groups one after the other, each alone, with as much under way as fits: what one waits for, another has launched.
TEST_P(GpuMessages, CallsWithoutGroupsRunInOrder) {
  const int ranks = GetParam();
  FakeGpus gpus(ranks);
  RankThreads threads(ranks, "", [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
  threads.run([&](int rank, ncclComm_t comm) {
    const cudaStream_t other = gpus.makeStream();
    const size_t count = 5000;
    const GpuBytes buffer(count * sizeof(int));
    auto* const data = reinterpret_cast<int*>(buffer.data());
    for (size_t i = 0; i < count; ++i) data[i] = rank == 0 ? static_cast<int>(i) : 0;
    for (int k = 0; k < 20; ++k)  // a sum of all, then the root's again: each needs the one before it
      ASSERT_EQ(k % 2 == 0 ? ncclAllReduce(data, data, count, ncclInt, ncclSum, comm, k % 3 == 0 ? other : nullptr)
                           : ncclAllReduce(data, data, count, ncclInt, ncclMax, comm, k % 3 == 0 ? other : nullptr),
                ncclSuccess)
          << ncclGetLastError(comm);
    synchronize(gpus);
    synchronize(gpus, other);
    int64_t factor = 1;
    for (int k = 2; k < 20; k += 2) factor *= ranks;
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<int>(static_cast<uint32_t>(i * static_cast<uint64_t>(factor)))) << i;
    gpus.driver().streamDestroy(other);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMessages, testing::Values(1, 2, 3, 5, 8));

}  // namespace
}  // namespace tutti::conformance::messages_test
