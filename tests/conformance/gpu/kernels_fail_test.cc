// Every launch of a kernel may fail, on one rank alone: all ranks hear of it without any deadline and with its words, no kernel
// is left waiting, and nothing is left afterwards.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/gpu/failing_kernels.h"
#include "conformance/gpu/faults.h"

namespace tutti::conformance::kernels_fail_test {
namespace {

using faults::kSlow;
using faults::Stopwatch;

constexpr size_t kRoom = size_t{1} << 20;

/// What ranks do with the buffers of a rank.
struct Ways {
  const char* name;
  std::vector<std::pair<const char*, const char*>> settings;
  std::set<std::string> launched;  ///< what has been made to fail at least once
  bool hasWindows;
  std::function<ncclResult_t(char* in, char* out, ncclComm_t)> call;
};

ncclResult_t gather(char* in, char* out, ncclComm_t comm) { return ncclAllGather(in, out, 100'000, ncclInt8, comm, nullptr); }
ncclResult_t sumOf(size_t count, char* in, char* out, ncclComm_t comm) {
  return ncclAllReduce(in, out, count, ncclInt, ncclSum, comm, nullptr);
}

const Ways kWays[] = {
    {"Little", {}, {"probe", "nearPages", "launch"}, false, [](char* in, char* out, ncclComm_t comm) { return sumOf(10, in, out, comm); }},
    {"Much", {}, {"probe", "launch"}, false, [](char* in, char* out, ncclComm_t comm) { return sumOf(200'000, in, out, comm); }},
    {"Messages",
     {},
     {"probe", "launch"},
     false,
     [](char* in, char* out, ncclComm_t comm) {
       int rank = 0;
       (void)ncclCommUserRank(comm, &rank);
       (void)ncclGroupStart();
       (void)ncclSend(in, 50'000, ncclInt8, 1 - rank, comm, nullptr);
       (void)ncclRecv(out, 50'000, ncclInt8, 1 - rank, comm, nullptr);
       return ncclGroupEnd();
     }},
    {"Engines", {{"TUTTI_COPY_ENGINES", "1"}}, {"probe", "copies"}, true, gather},
    {"Blocks", {{"TUTTI_MAPPED", "1"}}, {"probe", "moved"}, true, gather},
    {"Mapped",
     {{"TUTTI_MAPPED", "1"}},
     {"probe", "mapped"},
     true,
     [](char* in, char* out, ncclComm_t comm) { return sumOf(100'000, in, out, comm); }},
    {"Carried",
     {{"TUTTI_COPY_ENGINES", "1"}, {"TUTTI_MAPPED", "1"}},
     {"probe", "copies", "mapped"},
     true,
     [](char* in, char* out, ncclComm_t comm) { return sumOf(100'000, in, out, comm); }},
};

class GpuKernelsFail : public testing::TestWithParam<Ways> {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    for (const auto& [name, value] : GetParam().settings) settings_.push_back(std::make_unique<ScopedSetting>(name, value));
  }
  void TearDown() override {
    while (!settings_.empty()) settings_.pop_back();
  }

  static std::unique_ptr<FakeGpus> open(FailingLaunch& failing) {
    return std::make_unique<FakeGpus>(driver::cuda::FakeOptions{.devices = kRanks}, [&](std::unique_ptr<exec::cuda::Executor> kernels) {
      return std::make_unique<FailingKernels>(std::move(kernels), failing);
    });
  }

  struct Buffers {
    char* in = nullptr;
    char* out = nullptr;
  };
  /// Of the current GPU, which is opened by that.
  static Buffers makeBuffers() {
    void* both[2] = {};
    for (void*& one : both) EXPECT_EQ(ncclMemAlloc(&one, kRoom), ncclSuccess) << ncclGetLastError(nullptr);
    std::memset(both[0], 1, kRoom);
    return {static_cast<char*>(both[0]), static_cast<char*>(both[1])};
  }

  struct End {
    ncclResult_t result = ncclSuccess;
    std::string text;
  };

  /// A rank's whole life, and what it has learned in it, by a call or by asking.
  static End live(FakeGpus& gpus, const ncclUniqueId& id, int rank, const Buffers& of) {
    const UseGpu use(gpus, rank);
    ncclComm_t comm = nullptr;
    End end;
    end.result = ncclCommInitRank(&comm, kRanks, id, rank);
    if (end.result == ncclSuccess && GetParam().hasWindows) end.result = registerBoth(comm, of);
    for (int turn = 0; turn < 3 && end.result == ncclSuccess; ++turn) {
      end.result = GetParam().call(of.in, of.out, comm);
      if (end.result != ncclSuccess) break;
      synchronize(gpus);
      // A kernel that has ended in an error has said so before.
      EXPECT_EQ(ncclCommGetAsyncError(comm, &end.result), ncclSuccess);
      if (end.result == ncclSuccess) {
        EXPECT_NE(of.out[0], 0) << "turn " << turn;
      }
    }
    end.text = ncclGetLastError(comm);
    if (comm != nullptr) {
      EXPECT_EQ(end.result == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    }
    synchronize(gpus);
    return end;
  }

 private:
  static ncclResult_t registerBoth(ncclComm_t comm, const Buffers& of) {
    ncclWindow_t window = nullptr;
    const ncclResult_t result = ncclCommWindowRegister(comm, of.in, kRoom, &window, NCCL_WIN_COLL_SYMMETRIC);
    return result != ncclSuccess ? result : ncclCommWindowRegister(comm, of.out, kRoom, &window, NCCL_WIN_COLL_SYMMETRIC);
  }

  std::vector<std::unique_ptr<ScopedSetting>> settings_;
};

TEST_P(GpuKernelsFail, AllRanksHearOfIt) {
  std::set<std::string> seen;
  for (int64_t nth = 1;; ++nth) {
    FailingLaunch failing;
    std::vector<End> ends(kRanks);
    const Stopwatch watch;
    {
      const auto gpus = open(failing);
      std::vector<Buffers> buffers;
      for (int r = 0; r < kRanks; ++r) {
        const UseGpu use(*gpus, r);
        buffers.push_back(makeBuffers());
      }
      ncclUniqueId id;
      ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      failing.set(nth);
      std::vector<std::thread> ranks;
      for (size_t r = 0; r < kRanks; ++r) ranks.emplace_back([&, r] { ends[r] = live(*gpus, id, static_cast<int>(r), buffers[r]); });
      for (std::thread& rank : ranks) rank.join();
      for (const Buffers& both : buffers)
        for (char* const one : {both.in, both.out}) EXPECT_EQ(ncclMemFree(one), ncclSuccess);
    }
    if (failing.what() == nullptr) {
      for (const End& end : ends) EXPECT_EQ(end.result, ncclSuccess) << end.text;
      break;
    }
    const std::string what = format("{}, the {}th launch: \"{}\", \"{}\"", failing.what(), nth, ends[0].text, ends[1].text);
    seen.insert(failing.what());
    EXPECT_LT(watch.seconds(), 3 * kSlow) << what;
    for (const End& end : ends) {
      EXPECT_TRUE(end.result == ncclUnhandledCudaError || end.result == ncclRemoteError) << end.result << ": " << what;
      EXPECT_NE(end.text.find(FailingLaunch::kText), std::string::npos) << what;
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(seen, GetParam().launched);
}

void initWhereOneFails(faults::ProcessRanks::Self& self) {
  FailingLaunch failing;
  FakeGpus gpus(driver::cuda::FakeOptions{.devices = self.count()}, [&](std::unique_ptr<exec::cuda::Executor> kernels) {
    return std::make_unique<FailingKernels>(std::move(kernels), failing);
  });
  const UseGpu use(gpus, self.index());
  const auto memory = std::make_unique<GpuInts>(100);  // the kernels are loaded by that
  const bool isIt = self.index() == 1;
  if (isIt) failing.set(1);
  const ncclUniqueId id = self.freshId();
  ncclComm_t comm = nullptr;
  const Stopwatch watch;
  ASSERT_EQ(ncclCommInitRank(&comm, self.count(), id, self.index()), ncclUnhandledCudaError);
  EXPECT_LT(watch.seconds(), 3 * kSlow);
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_NE(text.find(FailingLaunch::kText), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 1") == std::string::npos, isIt) << text;
  if (isIt) {
    EXPECT_STREQ(failing.what(), "probe");
  }
  self.meet(1);  // memory of a rank stays until all of its communicator have left
}

TEST(GpuKernelsFailProcesses, AnInitThatFailsOnOneRankIsExplainedToAll) {
  faults::ProcessRanks children(3, initWhereOneFails);
  children.expectAllWell({}, 60);
}

TEST(GpuKernelsFailToLoad, IsSaidByWhoeverOpensTheGpuAndMayBeTriedAgain) {
  FailingLaunch failing;
  FakeGpus gpus(driver::cuda::FakeOptions{.devices = 1}, [&](std::unique_ptr<exec::cuda::Executor> kernels) {
    return std::make_unique<FailingKernels>(std::move(kernels), failing);
  });
  const UseGpu use(gpus, 0);
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  failing.set(1);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError);
  EXPECT_STREQ(failing.what(), "load");
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find(FailingLaunch::kText), std::string::npos) << ncclGetLastError(nullptr);
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
  const GpuInts data(100);
  EXPECT_EQ(sum(data, 100, comm), ncclSuccess) << ncclGetLastError(comm);
  synchronize(gpus);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

INSTANTIATE_TEST_SUITE_P(Calls, GpuKernelsFail, testing::ValuesIn(kWays), [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace tutti::conformance::kernels_fail_test
