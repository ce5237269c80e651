#include "conformance/gpu/fake_gpus.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/process.h"
#include "core/format.h"
#include "exec/cuda/host_kernels.h"

namespace tutti::driver::cuda {
namespace {

/// The library owns its driver; the test keeps the one behind it.
class Borrowed final : public Api {
 public:
  explicit Borrowed(FakeApi& fake) : fake_(fake) {}

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) \
  Error name parameters override { return fake_.name arguments; }
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

 private:
  FakeApi& fake_;
};

}  // namespace

static std::unique_ptr<Api> borrow(FakeApi& fake) { return std::make_unique<Borrowed>(fake); }

}  // namespace tutti::driver::cuda

namespace tutti::conformance {

using driver::cuda::Error;
using driver::cuda::FakeApi;

FakeGpus::FakeGpus(const driver::cuda::FakeOptions& options, Dress dress) : fake_(std::make_unique<FakeApi>(options)) {
  comm::process().devices.replaceForTest([this]() -> Result<std::unique_ptr<driver::cuda::Api>> { return borrow(); },
                                         [this, dress = std::move(dress)]() -> std::unique_ptr<exec::cuda::Executor> {
                                           auto kernels = std::make_unique<exec::cuda::HostKernels>(*fake_);
                                           if (dress == nullptr) return kernels;
                                           return dress(std::move(kernels));
                                         });
  EXPECT_EQ(fake_->init(0), Error::Success);
}

std::unique_ptr<driver::cuda::Api> FakeGpus::borrow() { return driver::cuda::borrow(*fake_); }

FakeGpus::~FakeGpus() {
  comm::process().devices.replaceForTest(
      []() -> Result<std::unique_ptr<driver::cuda::Api>> { return fail(Code::SystemError, "no GPUs any more"); }, [] { return nullptr; });
  // A kernel that has said its last word may not have left its thread yet.
  for (int i = 0; i < 1000 && fake_->alive().working > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(fake_->idle()) << alive();
}

std::string FakeGpus::alive() const {
  const driver::cuda::FakeCounts c = fake_->alive();
  return format(
      "{} contexts, {} pushed, {} handles, {} reservations, {} mappings, {} plain, {} opened, {} registered, {} streams, {} events, {} "
      "backings, {} working",
      c.contexts, c.pushed, c.handles, c.reservations, c.mappings, c.plain, c.opened, c.registered, c.streams, c.events, c.backings,
      c.working);
}

driver::cuda::Stream FakeGpus::makeStream() {
  driver::cuda::Stream stream = nullptr;
  EXPECT_EQ(fake_->streamCreate(&stream, driver::cuda::kStreamNonBlocking), Error::Success);
  return stream;
}

UseGpu::UseGpu(FakeGpus& gpus, int device) : fake_(gpus.driver()), device_(device) {
  driver::cuda::Context context = nullptr;
  EXPECT_EQ(fake_.devicePrimaryCtxRetain(&context, device), Error::Success);
  EXPECT_EQ(fake_.ctxPushCurrent(context), Error::Success);
}

UseGpu::~UseGpu() {
  driver::cuda::Context context = nullptr;
  EXPECT_EQ(fake_.ctxPopCurrent(&context), Error::Success);
  EXPECT_EQ(fake_.devicePrimaryCtxRelease(device_), Error::Success);
}

void synchronize(FakeGpus& gpus, driver::cuda::Stream stream) { EXPECT_EQ(gpus.driver().streamSynchronize(stream), Error::Success); }

}  // namespace tutti::conformance
