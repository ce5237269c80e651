// GPUs of which some cannot reach each other's memory: every kind of call on every kind of machine, what is refused, and that GPU memory is
// not taken for what lies on the host. HostKernels ends the test when a launch names memory that its device cannot reach, or that a lossy
// path leads to. (processes_test.cc has ranks as processes.)
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/gpu/faults.h"

namespace tutti::conformance::paths_test {
namespace {

using driver::cuda::Device;
using driver::cuda::FakeOptions;
using Pairs = std::set<std::pair<Device, Device>>;

#ifdef TUTTI_SANITIZED
constexpr size_t kLarge = 12'001;  // pipes all the same
constexpr uint32_t kEvery = 5;
#else
constexpr size_t kLarge = 60'001;
constexpr uint32_t kEvery = 1;
#endif

/// Buffers of one rank: `count` ints for each rank, in and out.
struct Buffers {
  Buffers(int ranks, size_t count) : in(static_cast<size_t>(ranks) * count), out(static_cast<size_t>(ranks) * count) {}
  GpuInts in;
  GpuInts out;
};

/// One call of each kind by all ranks in one thread; values are small enough for their sums.
void callAll(FakeGpus& gpus, std::vector<ncclComm_t>& comms, size_t count) {
  const int n = static_cast<int>(comms.size());
  std::vector<std::unique_ptr<Buffers>> buffers;
  for (int r = 0; r < n; ++r) {
    const UseGpu use(gpus, r);
    buffers.push_back(std::make_unique<Buffers>(n, count));
    std::iota(buffers.back()->in.data(), buffers.back()->in.data() + buffers.back()->in.count(), 1000 * r);
  }
  const auto run = [&](const char* what, const std::function<ncclResult_t(int, const Buffers&, ncclComm_t)>& call,
                       const std::function<int(int rank, size_t i)>& expected, size_t length) {
    SCOPED_TRACE(what);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < n; ++r) ASSERT_EQ(call(r, *buffers[static_cast<size_t>(r)], comms[static_cast<size_t>(r)]), ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < n; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus);
      for (size_t i = 0; i < length; ++i) ASSERT_EQ(buffers[static_cast<size_t>(r)]->out.data()[i], expected(r, i)) << r << ", " << i;
    }
  };
  const auto value = [](int rank, size_t i) { return 1000 * rank + static_cast<int>(i); };
  const auto sumAt = [&](size_t i) {
    int sum = 0;
    for (int r = 0; r < n; ++r) sum += value(r, i);
    return sum;
  };
  run(
      "all_reduce",
      [&](int, const Buffers& b, ncclComm_t c) { return ncclAllReduce(b.in.data(), b.out.data(), count, ncclInt, ncclSum, c, nullptr); },
      [&](int, size_t i) { return sumAt(i); }, count);
  run(
      "all_gather",
      [&](int, const Buffers& b, ncclComm_t c) { return ncclAllGather(b.in.data(), b.out.data(), count, ncclInt, c, nullptr); },
      [&](int, size_t i) { return value(static_cast<int>(i / count), i % count); }, count * comms.size());
  run(
      "reduce_scatter",
      [&](int, const Buffers& b, ncclComm_t c) {
        return ncclReduceScatter(b.in.data(), b.out.data(), count, ncclInt, ncclSum, c, nullptr);
      },
      [&](int rank, size_t i) { return sumAt(static_cast<size_t>(rank) * count + i); }, count);
  run(
      "broadcast",
      [&](int, const Buffers& b, ncclComm_t c) { return ncclBroadcast(b.in.data(), b.out.data(), count, ncclInt, n - 1, c, nullptr); },
      [&](int, size_t i) { return value(n - 1, i); }, count);
  run(
      "all_to_all",
      [&](int, const Buffers& b, ncclComm_t c) { return ncclAlltoAll(b.in.data(), b.out.data(), count, ncclInt, c, nullptr); },
      [&](int rank, size_t i) { return value(static_cast<int>(i / count), static_cast<size_t>(rank) * count + i % count); },
      count * comms.size());
  run("send_recv",
      [&](int rank, const Buffers& b, ncclComm_t c) {
        const ncclResult_t sent = ncclSend(b.in.data(), count, ncclInt, (rank + 1) % n, c, nullptr);
        return sent != ncclSuccess ? sent : ncclRecv(b.out.data(), count, ncclInt, (rank + n - 1) % n, c, nullptr);
      },
      [&](int rank, size_t i) { return value((rank + n - 1) % n, i); }, count);
}

/// `onHost`: how many ranks at least have something in host memory.
void runOn(const FakeOptions& options, int onHost = 0) {
  FakeGpus gpus(options);
  std::vector<ncclComm_t> comms(static_cast<size_t>(options.devices));
  ASSERT_EQ(ncclCommInitAll(comms.data(), options.devices, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  for (const size_t count : {size_t{3}, kLarge}) callAll(gpus, comms, count);
  EXPECT_GE(std::ranges::count_if(comms, [](ncclComm_t comm) { return usage(comm).first > 0; }), onHost);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

std::vector<std::pair<Device, Device>> pairsOf(int ranks) {
  std::vector<std::pair<Device, Device>> pairs;
  for (int a = 0; a < ranks; ++a)
    for (int b = a + 1; b < ranks; ++b) pairs.emplace_back(a, b);
  return pairs;
}

class GpuPaths : public testing::TestWithParam<int> {};

TEST_P(GpuPaths, EveryMachineComputes) {
  const auto pairs = pairsOf(GetParam());
  for (uint32_t bits = 0; bits < 1U << pairs.size() && !HasFailure(); bits += GetParam() < 4 ? kEvery : 7 * kEvery) {
    Pairs cut;
    for (size_t p = 0; p < pairs.size(); ++p)
      if ((bits >> p & 1) != 0) cut.insert(pairs[p]);
    SCOPED_TRACE(bits);
    runOn({.devices = GetParam(), .cut = cut});
  }
}

TEST_P(GpuPaths, AndEveryOneWithAPathThatLosesData) {
  for (const auto& [a, b] : pairsOf(GetParam())) {
    SCOPED_TRACE(b);
    runOn({.devices = GetParam(), .lossy = {{a, b}}}, 2);
  }
}

TEST_P(GpuPaths, DisabledPeerAccess) {
  const ScopedSetting disabled("NCCL_P2P_DISABLE", "1");
  runOn({.devices = GetParam()}, GetParam());
}

TEST_P(GpuPaths, APairWhoseProbeIsSpoilt) {
  const ScopedSetting spoilt("TUTTI_P2P_PROBE", "spoil=1-0");
  runOn({.devices = GetParam()}, 2);
}

TEST_P(GpuPaths, ALevelThatNoPairHas) {
  const ScopedSetting level("NCCL_P2P_LEVEL", "LOC");
  runOn({.devices = GetParam()}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuPaths, testing::Values(2, 3, 4));

TEST(GpuPathsLimits, TheBudgetCountsMemoryOfTheGpuAlone) {
  for (const char* disabled : {"0", "1"}) {
    const ScopedSetting setting("NCCL_P2P_DISABLE", disabled);
    FakeGpus gpus(2);
    std::vector<ncclComm_t> comms(2);
    ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    callAll(gpus, comms, 60'001);
    const auto [host, device] = usage(comms[0]);
    EXPECT_EQ(host != 0, *disabled == '1') << host;
    EXPECT_EQ(device == 0, *disabled == '1') << device;
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
}

TEST(GpuPathsLimits, NoWayAtAllIsRefused) {
  const ScopedSetting disabled("NCCL_SHM_DISABLE", "1");
  FakeGpus gpus(FakeOptions{.devices = 2, .cut = {{0, 1}}});
  std::vector<ncclComm_t> comms(2);
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclInvalidUsage);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("have no way to exchange data"), std::string::npos) << ncclGetLastError(nullptr);
}

TEST(GpuPathsLimits, SettingsThatMakeNoSenseAreRefused) {
  FakeGpus gpus(2);
  for (const auto& [name, value] : {std::pair("TUTTI_P2P_PROBE", "often"), std::pair("TUTTI_P2P_PROBE", "spoil=1-"),
                                    std::pair("TUTTI_P2P_PROBE", "spoil=0-1x"), std::pair("NCCL_P2P_LEVEL", "NEAR")}) {
    const ScopedSetting setting(name, value);
    std::vector<ncclComm_t> comms(2);
    EXPECT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclInvalidUsage) << name << value;
    const std::string text = ncclGetLastError(nullptr);
    EXPECT_NE(text.find(std::string(name) + "="), std::string::npos) << text;
    EXPECT_NE(text.find(value), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti::conformance::paths_test
