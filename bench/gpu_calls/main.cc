// The library's own way of eager calls on GPUs, without a GPU: a fake driver, and kernels that do nothing. What it takes of the processor
// is counted by bench/gpu_calls/instructions.
//
// usage: gpu_calls all_reduce|sendrecv|copies|mapped CALLS        the last two on symmetric windows: an all-gather and an all-reduce
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm/process.h"
#include "driver/cuda/fake.h"
#include "exec/cuda/launch.h"
#include "nccl.h"

namespace {

using namespace tutti;

/// Kernels that are over at once.
class Nothing final : public exec::cuda::Executor {
 public:
  Status load(exec::cuda::KernelUses& uses) override {
    for (auto& use : uses.of) use.blocksPerMultiprocessor = 1;
    uses.lone.blocksPerMultiprocessor = uses.mapped.blocksPerMultiprocessor = 1;
    return {};
  }
  Status launch(exec::cuda::KernelId, const exec::cuda::Launch&, const exec::cuda::LaunchOptions&, void*) override { return {}; }
  Status probe(const exec::cuda::ProbeLaunch& launch, void*) override {
    for (int32_t p = 0; p < launch.pairs; ++p)
      std::atomic_ref(launch.pair[p].desk->report.end).store(exec::cuda::ProbeEnd::Passed, std::memory_order_release);
    return {};
  }
  Status nearPages(const exec::cuda::NearLaunch&, void*) override { return {}; }
  Status copies(const exec::cuda::CopyLaunch&, exec::cuda::CopyStage, void*) override { return {}; }
  Status moved(const exec::cuda::MovedLaunch&, const exec::cuda::Grid&, void*) override { return {}; }
  Status mapped(const exec::cuda::MappedLaunch&, const exec::cuda::Grid&, void*) override { return {}; }
};

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "gpu_calls: %s: %s\n", what, ncclGetLastError(nullptr));
  std::exit(2);
}

void sendReceive(const std::vector<ncclComm_t>& comms, size_t rank, float* buffer, cudaStream_t stream) {
  const int peer = static_cast<int>(1 - rank);
  check(ncclGroupStart(), "ncclGroupStart");
  check(ncclSend(buffer, 2, ncclFloat, peer, comms[rank], stream), "ncclSend");
  check(ncclRecv(buffer + 2, 2, ncclFloat, peer, comms[rank], stream), "ncclRecv");
  check(ncclGroupEnd(), "ncclGroupEnd");
}

/// Memory that both ranks have registered, one after the other in a group.
std::vector<float*> makeWindows(driver::cuda::FakeApi& fake, const std::vector<ncclComm_t>& comms) {
  constexpr size_t kBytes = size_t{1} << 21;
  std::vector<float*> memory(comms.size());
  ncclWindow_t window = nullptr;
  check(ncclGroupStart(), "ncclGroupStart");
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    driver::cuda::Context context = nullptr;
    (void)fake.devicePrimaryCtxRetain(&context, static_cast<int>(rank));
    (void)fake.ctxPushCurrent(context);
    check(ncclMemAlloc(reinterpret_cast<void**>(&memory[rank]), kBytes), "ncclMemAlloc");
    (void)fake.ctxPopCurrent(&context);
    check(ncclCommWindowRegister(comms[rank], memory[rank], kBytes, &window, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister");
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
  return memory;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  const int calls = argc == 3 ? std::atoi(argv[2]) : 0;
  const bool onWindows = what == "copies" || what == "mapped";
  if (calls < 1 || (what != "all_reduce" && what != "sendrecv" && !onWindows)) {
    std::fprintf(stderr, "usage: gpu_calls all_reduce|sendrecv|copies|mapped CALLS\n");
    return 2;
  }
  setenv("TUTTI_COPY_ENGINES", "1", 1);
  setenv("TUTTI_MAPPED", "1", 1);
  setenv("TUTTI_DEVICE", "cuda", 1);
  driver::cuda::FakeApi* fake = nullptr;
  comm::process().devices.replaceForTest(
      [&fake]() -> Result<std::unique_ptr<driver::cuda::Api>> {
        auto made = std::make_unique<driver::cuda::FakeApi>(driver::cuda::FakeOptions{.devices = 2});
        fake = made.get();
        return std::unique_ptr<driver::cuda::Api>(std::move(made));
      },
      [] { return std::make_unique<Nothing>(); });
  std::vector<ncclComm_t> comms(2);
  check(ncclCommInitAll(comms.data(), 2, nullptr), "ncclCommInitAll");
  std::vector<float> buffer(64);
  std::vector<float*> windows;
  if (onWindows) windows = makeWindows(*fake, comms);
  for (int i = 0; i < calls; ++i) {
    if (i == 0) check(ncclGroupStart(), "ncclGroupStart");  // the first connects all
    for (size_t rank = 0; rank < 2; ++rank) {
      if (what == "sendrecv") {
        sendReceive(comms, rank, buffer.data(), nullptr);
      } else if (what == "copies") {
        check(ncclAllGather(windows[rank] + 64, windows[rank], 2, ncclFloat, comms[rank], nullptr), "ncclAllGather");
      } else if (what == "mapped") {
        check(ncclAllReduce(windows[rank], windows[rank], 2, ncclFloat, ncclSum, comms[rank], nullptr), "ncclAllReduce");
      } else {
        check(ncclAllReduce(buffer.data(), buffer.data(), 2, ncclFloat, ncclSum, comms[rank], nullptr), "ncclAllReduce");
      }
    }
    if (i == 0) check(ncclGroupEnd(), "ncclGroupEnd");
  }
  for (const ncclComm_t comm : comms) check(ncclCommDestroy(comm), "ncclCommDestroy");
}
