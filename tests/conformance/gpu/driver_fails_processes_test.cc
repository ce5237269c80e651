// Every driver call of one of two processes may fail, one after the other: that process names it, the other one is told at once, and
// neither memory nor descriptors are left in either.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/gpu/driver_fails.h"
#include "core/format.h"

namespace tutti::conformance::driver_fails_processes_test {
namespace {

using driver::cuda::Call;
using driver::cuda::FakeOptions;
using faults::kSlow;
using faults::ProcessRanks;
using faults::Stopwatch;

constexpr int kFails = 1;  ///< the process
constexpr size_t kCount = 1000;
constexpr int kResult = 0, kIsOver = 1, kIsBad = 2, kWords = 3;  ///< what it notes

/// Little memory to clear, again and again; a deadline, should anybody wait for ever.
class SmallPipes {
 public:
  SmallPipes() = default;

 private:
  ScopedSetting algorithm_{"TUTTI_ALGO", "ring"};
  ScopedSetting channels_{"NCCL_MAX_CTAS", "1"};
  ScopedSetting slots_{"TUTTI_SLOTS", "2"};
  ScopedSetting slices_{"TUTTI_SLICE_BYTES", "16384"};
  ScopedSetting deadline_{"TUTTI_TIMEOUT_MS", "4000"};
};

/// What a process has come to in a life of which the nth call fails.
struct Life {
  ncclResult_t result = ncclSuccess;
  std::string text;
  std::optional<Call> failed;  ///< by then
  double seconds = 0;
};

Life initAndSum(ncclComm_t* comm, FakeGpus& gpus, ProcessRanks::Self& self, const ncclUniqueId& id, void* data) {
  const Stopwatch watch;
  Life life;
  life.result = ncclCommInitRank(comm, self.count(), id, self.index());
  if (life.result == ncclSuccess && data != nullptr) life.result = ncclAllReduce(data, data, kCount, ncclInt, ncclSum, *comm, nullptr);
  life.text = ncclGetLastError(nullptr);
  life.failed = gpus.driver().failed();
  life.seconds = watch.seconds();
  return life;
}

enum class Part { Begin, End };

/// Which call fails: the nth, or the first of a kind.
struct Failing {
  size_t nth = 0;
  std::optional<Call> call{};
  std::string text() const { return call ? driver::cuda::symbolOf(*call) : format("call {}", nth); }
  void begin(driver::cuda::FakeApi& driver) const { call ? driver.failNext(*call) : driver.failAt(nth); }
};

/// It fails from the creation of the communicator on, or from its end on. False: the process has not made such a call, or it was not well.
bool liveOnce(ProcessRanks::Self& self, const FakeOptions& options, Part part, const Failing& failing, int& stage, FailedCalls& failed) {
  const bool isIt = self.index() == kFails;
  FakeGpus gpus(options);
  const UseGpu use(gpus, self.index());
  void* data = nullptr;
  EXPECT_EQ(ncclMemAlloc(&data, kCount * sizeof(int)), ncclSuccess) << ncclGetLastError(nullptr);
  const ncclUniqueId id = self.freshId();
  if (isIt && part == Part::Begin) failing.begin(gpus.driver());
  ncclComm_t comm = nullptr;
  Life life = initAndSum(&comm, gpus, self, id, data);
  const auto end = [&] {
    const ncclComm_t ended = std::exchange(comm, nullptr);
    if (ended == nullptr) return;
    EXPECT_EQ(life.result == ncclSuccess ? ncclCommDestroy(ended) : ncclCommAbort(ended), ncclSuccess);
  };
  if (isIt && life.result != ncclSuccess) end();  // at once, as a program should
  if (isIt) self.note(kResult, life.result);
  if (part == Part::End) synchronize(gpus);
  self.meet(++stage);
  if (isIt && part == Part::End) failing.begin(gpus.driver());
  const auto theirs = static_cast<ncclResult_t>(self.number(kFails, kResult));
  const std::string when = format("{}, process {}", failing.text(), self.index());
  if (isIt && life.result != ncclSuccess && life.failed) expectNamed(*life.failed, life.result, life.text, when);
  if (!isIt && theirs != ncclSuccess) {
    const bool isTold = life.result != ncclSuccess;
    if (!isTold) life.result = awaitError(comm, 2 * kSlow);
    EXPECT_TRUE(life.result == ncclUnhandledCudaError || life.result == ncclRemoteError) << when << ": " << life.result;
    const std::string told = isTold ? life.text : ncclGetLastError(nullptr);
    EXPECT_TRUE(isTextOfFailure(told) || told.find("rank 1 aborted") != std::string::npos) << when << ": " << told;
  }
  EXPECT_LT(life.seconds, 2 * kSlow) << when << ": " << life.text;
  EXPECT_EQ(theirs == ncclSuccess, life.result == ncclSuccess) << when << ": " << life.text;
  end();
  const auto late = gpus.driver().failed();
  gpus.driver().failAt(0);
  if (late) failed.add(*late);
  if (isIt) self.note(kIsOver, late ? 0 : 1);
  synchronize(gpus);
  EXPECT_EQ(ncclMemFree(data), ncclSuccess);
  if (testing::Test::HasFailure()) self.note(kIsBad, 1);
  self.meet(++stage);
  return self.number(kFails, kIsOver) == 0 && self.number(0, kIsBad) + self.number(1, kIsBad) == 0;
}

/// One call after the other. How many a process makes while it waits for the other one differs from life to life, so some are passed
/// over: those that are wanted fail once more by their kind.
void live(ProcessRanks::Self& self, const FakeOptions& options, const std::vector<Call>& wanted) {
  const SmallPipes small;
  int stage = 0;
  FailedCalls failed;
  (void)liveOnce(self, options, Part::Begin, {}, stage, failed);
  (void)faults::Footprint::settled();
  const int64_t descriptors = openDescriptors();
  for (const Part part : {Part::Begin, Part::End}) {
    for (size_t nth = 1; liveOnce(self, options, part, {.nth = nth}, stage, failed); ++nth) continue;
    for (const Call call : wanted) (void)liveOnce(self, options, part, {.call = call}, stage, failed);
  }
  if (self.index() == kFails) failed.note(self, kWords);
  expectDescriptors(descriptors, "at last");
  self.meet(++stage);
}

void failAll(const FakeOptions& options, const std::vector<Call>& wanted) {
  ProcessRanks children(2, [&](ProcessRanks::Self& self) { live(self, options, wanted); });
  children.expectAllWell({}, 100);
  FailedCalls failed;
  failed.take(children, kFails, kWords);
  for (const Call call : wanted) EXPECT_TRUE(failed.has(call)) << driver::cuda::symbolOf(call);
}

TEST(GpuDriverFailsProcesses, IsToldToTheOther) {
  failAll({}, {Call::memExportToShareableHandle, Call::memImportFromShareableHandle, Call::memHostRegister});
}

TEST(GpuDriverFailsProcesses, IsToldToTheOtherWithoutVirtualMemory) {
  failAll({.virtualMemory = false}, {Call::ipcGetMemHandle, Call::ipcOpenMemHandle, Call::ipcCloseMemHandle});
}

// It comes to the others all the same, to say why: also if the driver cannot be started, or does not say which GPU is current.
TEST(GpuDriverFailsProcesses, OneThatCannotOpenItsGpuTellsTheOther) {
  for (size_t nth = 1; nth <= 12; ++nth) {
    ProcessRanks children(2, [nth](ProcessRanks::Self& self) {
      const ScopedSetting deadline("TUTTI_TIMEOUT_MS", "4000");
      FakeGpus gpus(2);
      const UseGpu use(gpus, self.index());
      const ncclUniqueId id = self.freshId();
      if (self.index() == kFails) gpus.driver().failAt(nth);
      ncclComm_t comm = nullptr;
      const Life life = initAndSum(&comm, gpus, self, id, nullptr);
      gpus.driver().failAt(0);
      self.note(kResult, life.result);
      const std::string when = format("call {}, process {}: {}", nth, self.index(), life.text);
      EXPECT_LT(life.seconds, 2 * kSlow) << when;
      self.meet(1);
      EXPECT_EQ(self.number(0, kResult), self.number(1, kResult)) << when;
      if (life.result == ncclSuccess) {  // what is nice to have could not be found out
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      } else {
        EXPECT_EQ(life.result, ncclUnhandledCudaError) << when;
        EXPECT_NE(life.text.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << when;
      }
      self.meet(2);
    });
    children.expectAllWell({}, 60);
  }
}

}  // namespace
}  // namespace tutti::conformance::driver_fails_processes_test
