// Every driver call of a communicator's life may fail, one after the other: the result, the text that names the call, and that neither
// memory nor descriptors are left. All calls of src/driver/cuda/calls.def have failed somewhere, or it is said why not.
#include "conformance/gpu/driver_fails.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "comm/process.h"
#include "core/format.h"

namespace tutti::conformance::driver_fails_test {
namespace {

using driver::cuda::Call;
using driver::cuda::CaptureMode;
using driver::cuda::Error;
using driver::cuda::FakeApi;
using driver::cuda::FakeOptions;
using driver::cuda::Graph;
using driver::cuda::Stream;

constexpr size_t kRanks = 2;
/// Little memory to clear, again and again; and a deadline, should anybody wait for ever.
constexpr std::pair<const char*, const char*> kSmall[] = {
    {"TUTTI_ALGO", "ring"}, {"NCCL_MAX_CTAS", "1"}, {"TUTTI_SLOTS", "2"}, {"TUTTI_SLICE_BYTES", "16384"}, {"TUTTI_TIMEOUT_MS", "2000"}};
constexpr size_t kLarge = 400'000;  ///< bytes of a large reduction
constexpr size_t kOwn = 1'050'000;  ///< of a piece that stays on its rank and is copied in rows
constexpr size_t kRoom = 2 * kOwn;  ///< of a rank's buffer

/// Two ranks of this thread and what they have made. Results are the first that is no success; then nothing more is done.
struct Play {
  explicit Play(const FakeOptions& options) : gpus(options) {}

  template <class Step>
  void all(Step&& step) {
    if (result != ncclSuccess) return;
    (void)ncclGroupStart();
    for (size_t r = 0; r < kRanks && result == ncclSuccess; ++r) result = step(r);
    const ncclResult_t ended = ncclGroupEnd();
    if (result == ncclSuccess) result = ended;
  }
  void open() {
    if (result == ncclSuccess) result = ncclCommInitAll(comms.data(), kRanks, nullptr);
    if (result != ncclSuccess) comms = {};
  }
  void split() {
    all([&](size_t r) { return ncclCommSplit(comms[r], 0, static_cast<int>(r), &children[r], nullptr); });
  }
  void reduce(const std::array<ncclComm_t, kRanks>& on, size_t count) {
    all([&](size_t r) { return ncclAllReduce(data[r], data[r], count, ncclInt, ncclSum, on[r], streams[r]); });
  }
  void exchange(size_t bytes) {
    all([&](size_t r) {
      const int peer = 1 - static_cast<int>(r);
      const ncclResult_t sent = ncclSend(data[r], bytes, ncclInt8, peer, comms[r], streams[r]);
      return sent != ncclSuccess ? sent : ncclRecv(static_cast<char*>(data[r]) + kLarge / 2, bytes, ncclInt8, peer, comms[r], streams[r]);
    });
  }
  void registerWindows() {
    all([&](size_t r) { return ncclCommWindowRegister(comms[r], data[r], kRoom, &windows[r], NCCL_WIN_COLL_SYMMETRIC); });
  }
  void gather(size_t bytes) {
    all([&](size_t r) { return ncclAllGather(static_cast<char*>(data[r]) + bytes * r, data[r], bytes, ncclInt8, comms[r], streams[r]); });
  }
  void broadcast(size_t bytes) {
    all([&](size_t r) { return ncclBroadcast(data[r], static_cast<char*>(data[r]) + bytes, bytes, ncclInt8, 0, comms[r], streams[r]); });
  }
  void reduceOutOfPlace(size_t bytes) {
    all([&](size_t r) {
      return ncclAllReduce(data[r], static_cast<char*>(data[r]) + bytes, bytes, ncclInt8, ncclSum, comms[r], streams[r]);
    });
  }
  void deregisterWindows() {
    all([&](size_t r) { return ncclCommWindowDeregister(comms[r], windows[r]); });
  }
  /// A call that fails may have broken the capture; the driver tells of that, too.
  void capture(const std::function<void()>& what) {
    if (result != ncclSuccess) return;
    for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(gpus.driver().beginCapture(streams[r], CaptureMode::Global), Error::Success);
    what();
    for (size_t r = 0; r < kRanks; ++r) {
      const Error ended = gpus.driver().endCapture(streams[r], &graphs[r]);
      EXPECT_TRUE(ended == Error::Success || result != ncclSuccess) << static_cast<int>(ended);
    }
  }
  void replay() {
    for (size_t r = 0; r < kRanks && result == ncclSuccess; ++r)
      EXPECT_EQ(gpus.driver().launchGraph(graphs[r], streams[r]), Error::Success);
  }
  void await() {
    for (size_t r = 0; r < kRanks; ++r) {
      const UseGpu use(gpus, static_cast<int>(r));
      synchronize(gpus, streams[r]);
    }
  }

  FakeGpus gpus;
  std::array<void*, kRanks> data{};
  std::array<Stream, kRanks> streams{};
  std::array<ncclComm_t, kRanks> comms{};
  std::array<ncclComm_t, kRanks> children{};
  std::array<ncclWindow_t, kRanks> windows{};
  std::array<Graph, kRanks> graphs{};
  ncclResult_t result = ncclSuccess;
};

enum class Machine { Plain, NoPeerAccess, NoVirtualMemory };

FakeOptions optionsOf(Machine machine) {
  FakeOptions options{.granularity = Bytes(uint64_t{1} << 16)};
  if (machine == Machine::NoPeerAccess) options.cut = {{0, 1}};
  options.virtualMemory = machine != Machine::NoVirtualMemory;
  return options;
}

/// `before` must succeed; each driver call from then on, also those at the end of the communicators, fails once.
struct Scenario {
  const char* name;
  Machine machine;
  std::vector<std::pair<const char*, const char*>> settings;
  bool hasBuffers;  ///< GPUs are open before anything fails
  std::function<void(Play&)> before;
  std::function<void(Play&)> act;
  size_t leastHeard;  ///< failures that the program hears of
};
// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
void PrintTo(const Scenario& scenario, std::ostream* to) { *to << scenario.name; }

void nothing(Play&) {}
void openAll(Play& play) { play.open(); }
void reduceTwice(Play& play) {
  play.open();
  for (const size_t count : {size_t{10}, kLarge / sizeof(int)}) play.reduce(play.comms, count);
}

void endAll(Play& play) {
  for (const ncclComm_t comm : std::exchange(play.comms, {})) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}
void openAndEnd(Play& play) {
  play.open();
  endAll(play);
}
/// As at the end of a process: nobody hears of what fails.
void closeGpus(Play&) {
  comm::process().devices.replaceForTest([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "closed"); },
                                         [] { return nullptr; });
}

void callOnWindows(Play& play) {
  play.registerWindows();
  play.gather(10'000);
  play.broadcast(kOwn);
  play.capture([&] { play.gather(10'000); });
  play.replay();
  play.deregisterWindows();
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): out of memory ends the program, as it should
const Scenario kScenarios[] = {
    {"Driver", Machine::Plain, {}, false, nothing, openAll, 20},
    {"Memory",
     Machine::Plain,
     {},
     false,
     nothing,
     [](Play& play) {
       void* memory = nullptr;
       play.result = ncclMemAlloc(&memory, kRoom);
       if (play.result == ncclSuccess) play.result = ncclMemFree(memory);
     },
     20},
    {"Calls", Machine::Plain, {}, true, nothing, reduceTwice, 50},
    {"CallsThroughTheHost", Machine::NoPeerAccess, {}, true, nothing, reduceTwice, 30},
    {"CallsWithoutVirtualMemory", Machine::NoVirtualMemory, {}, true, nothing, reduceTwice, 30},
    {"Messages", Machine::Plain, {}, true, openAll, [](Play& play) { play.exchange(100'000); }, 3},
    {"CapturesInOrder",
     Machine::Plain,
     {{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}},
     true,
     openAll,
     [](Play& play) {
       play.capture([&] {
         play.reduce(play.comms, 1000);
         play.reduce(play.comms, 2000);
       });
       play.replay();
     },
     20},
    {"CapturesOfASplit",
     Machine::Plain,
     {},
     true,
     openAll,
     [](Play& play) {
       play.split();
       play.capture([&] {
         play.reduce(play.children, 1000);
         play.reduce(play.comms, 1000);
       });
       play.replay();
     },
     40},
    {"Windows",
     Machine::Plain,
     {{"TUTTI_COPY_ENGINES", "1"}},
     true,
     openAll,
     callOnWindows,
     10},
    {"WindowsByStreams",
     Machine::Plain,
     {{"TUTTI_COPY_ENGINES", "1"}, {"TUTTI_STREAM_STAGES", "1"}},
     true,
     openAll,
     callOnWindows,
     10},
    {"Carried",
     Machine::Plain,
     {{"TUTTI_COPY_ENGINES", "1"}},
     true,
     openAll,
     [](Play& play) {
       play.registerWindows();
       play.reduceOutOfPlace(10'001);
       play.capture([&] { play.reduceOutOfPlace(10'001); });
       play.replay();
       play.deregisterWindows();
     },
     10},
    {"End",
     Machine::Plain,
     {},
     true,
     [](Play& play) {
       reduceTwice(play);
       play.await();
     },
     endAll,
     0},
    {"Closing", Machine::NoVirtualMemory, {}, false, openAndEnd, closeGpus, 0},
    {"ClosingVirtualMemory", Machine::Plain, {}, false, openAndEnd, closeGpus, 0},
};

class GpuDriverFails : public testing::TestWithParam<Scenario> {
 protected:
  static inline FailedCalls failed;
  static inline size_t scenarios = 0;  ///< that have been played in this process

  void SetUp() override {
    for (const auto& [name, value] : kSmall) settings_.push_back(std::make_unique<ScopedSetting>(name, value));
    for (const auto& [name, value] : GetParam().settings) settings_.push_back(std::make_unique<ScopedSetting>(name, value));
  }
  void TearDown() override {
    while (!settings_.empty()) settings_.pop_back();
  }

  struct Played {
    bool hasFailed;  ///< a call of the driver
    bool isHeard;    ///< the program was told
    std::string when;
  };
  static Played play(const Scenario& scenario, size_t nth) {
    Play play(optionsOf(scenario.machine));
    FakeApi& driver = play.gpus.driver();
    for (size_t r = 0; scenario.hasBuffers && r < kRanks; ++r) {
      const UseGpu use(play.gpus, static_cast<int>(r));
      EXPECT_EQ(ncclMemAlloc(&play.data[r], kRoom), ncclSuccess) << ncclGetLastError(nullptr);
      play.streams[r] = play.gpus.makeStream();
    }
    scenario.before(play);
    EXPECT_EQ(play.result, ncclSuccess) << ncclGetLastError(nullptr);
    driver.failAt(nth);
    scenario.act(play);
    const auto early = driver.failed();
    const std::string text = ncclGetLastError(nullptr);
    for (const auto* comms : {&play.children, &play.comms})
      for (const ncclComm_t comm : *comms) EXPECT_EQ(play.result == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    const auto late = driver.failed();
    driver.failAt(0);
    if (late) failed.add(*late);
    const std::string when = format("{}, call {}: {}", scenario.name, nth, late ? driver::cuda::symbolOf(*late) : "none");
    EXPECT_TRUE(play.result == ncclSuccess || early) << when << ": " << text;
    if (early && play.result != ncclSuccess) expectNamed(*early, play.result, text, when);
    for (size_t r = 0; scenario.hasBuffers && r < kRanks; ++r) {
      const UseGpu use(play.gpus, static_cast<int>(r));
      synchronize(play.gpus, play.streams[r]);
      if (play.graphs[r] != nullptr) {
        EXPECT_EQ(driver.destroyGraph(play.graphs[r]), Error::Success);
      }
      EXPECT_EQ(driver.streamDestroy(play.streams[r]), Error::Success);
      EXPECT_EQ(ncclMemFree(play.data[r]), ncclSuccess);
    }
    return {late.has_value(), play.result != ncclSuccess, when};
  }

 private:
  std::vector<std::unique_ptr<ScopedSetting>> settings_;
};

TEST_P(GpuDriverFails, IsNamedAndLeavesNothing) {
  ncclUniqueId unused;  // keeps what listens for other processes open, as the id does that a creation which fails at once leaves behind
  ASSERT_EQ(ncclGetUniqueId(&unused), ncclSuccess);
  (void)play(GetParam(), 0);  // what stays in the process from now on is there
  size_t heard = 0;
  for (size_t nth = 1;; ++nth) {
    const int64_t descriptors = openDescriptors();
    const Played played = play(GetParam(), nth);
    expectDescriptors(descriptors, played.when);
    ASSERT_FALSE(HasFailure()) << played.when;
    if (!played.hasFailed) break;
    heard += played.isHeard ? 1 : 0;
  }
  EXPECT_GE(heard, GetParam().leastHeard);
  ++scenarios;
}

INSTANTIATE_TEST_SUITE_P(Of, GpuDriverFails, testing::ValuesIn(kScenarios), [](const auto& param) { return param.param.name; });

/// Calls that fail in none of the scenarios, and why.
constexpr std::pair<Call, const char*> kElsewhere[] = {
    {Call::driverGetVersion, "no communicator asks; tutti doctor does (tests/tools/doctor)"},
    {Call::getErrorName, "it is what names the others; the fake does not count it"},
    {Call::memGetInfo, "no communicator asks; tests/driver/cuda/driver_test"},
    {Call::pointerGetAttribute, "the program asks for all attributes at once; tests/driver/cuda/driver_test"},
    {Call::eventSynchronize, "communicators ask events and do not wait for them; tests/driver/cuda/driver_test"},
    {Call::userObjectRelease, "only after another call, that for a graph to hold the object, has failed"},
    {Call::ipcGetMemHandle, "between processes: driver_fails_processes_test.cc"},
    {Call::ipcOpenMemHandle, "between processes: driver_fails_processes_test.cc"},
    {Call::ipcCloseMemHandle, "between processes: driver_fails_processes_test.cc"},
};

class GpuDriverCalls : public GpuDriverFails {};

// After all scenarios.
TEST_P(GpuDriverCalls, HaveFailedOrItIsSaidWhyNot) {
  if (scenarios < std::size(kScenarios)) GTEST_SKIP() << "not all scenarios have been played";
  const std::map<Call, const char*> elsewhere(std::begin(kElsewhere), std::end(kElsewhere));
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) \
  EXPECT_NE(failed.has(Call::name), elsewhere.contains(Call::name))   \
      << #symbol << (failed.has(Call::name) ? " has failed: it need not be listed" : " never fails");
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
}

INSTANTIATE_TEST_SUITE_P(All, GpuDriverCalls, testing::Values(kScenarios[0]), [](const auto&) { return "Calls"; });

}  // namespace
}  // namespace tutti::conformance::driver_fails_test
