// The whole way of a call on GPUs, from nccl.h to the result, in one process.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/gpu/fake_gpus.h"
#include "tutti.h"

namespace tutti::conformance::first_test {
namespace {

TEST(GpuFirst, TwoRanksOfOneThreadSum) {
  FakeGpus gpus(2);
  std::vector<ncclComm_t> comms(2);
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{100'000}, size_t{3'000'000}}) {
    std::vector<float*> buffers(2);
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      ASSERT_EQ(ncclMemAlloc(reinterpret_cast<void**>(&buffers[static_cast<size_t>(r)]), count * sizeof(float)), ncclSuccess);
      for (size_t i = 0; i < count; ++i) buffers[static_cast<size_t>(r)][i] = static_cast<float>(i % 1000 + static_cast<size_t>(r));
    }
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t r = 0; r < 2; ++r)
      ASSERT_EQ(ncclAllReduce(buffers[r], buffers[r], count, ncclFloat, ncclSum, comms[r], nullptr), ncclSuccess)
          << ncclGetLastError(comms[r]);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < 2; ++r) {
      const UseGpu use(gpus, r);
      synchronize(gpus);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(buffers[static_cast<size_t>(r)][i], static_cast<float>(2 * (i % 1000) + 1)) << i;
      EXPECT_EQ(ncclMemFree(buffers[static_cast<size_t>(r)]), ncclSuccess);
    }
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace tutti::conformance::first_test
