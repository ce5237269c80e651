#include "driver/cuda/real.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "driver/cuda/driver.h"

namespace tutti::driver::cuda::real_test {
namespace {

class Real : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"TUTTI_STUB_VERSION", "TUTTI_STUB_MISSING", "TUTTI_STUB_BROKEN"}) unsetenv(name);
  }
  static std::string problemOf(const char* library) {
    const auto api = openDriver(library);
    if (api) return "";
    EXPECT_EQ(api.error().code(), Code::SystemError);
    return api.error().text();
  }
  const char* stub_ = std::getenv("TUTTI_TEST_STUB");
};

TEST_F(Real, NoLibraryIsAnErrorThatNamesIt) {
  const std::string text = problemOf("libcuda-of-no-machine.so.1");
  EXPECT_NE(text.find("no CUDA driver: libcuda-of-no-machine.so.1"), std::string::npos) << text;
}

TEST_F(Real, AnotherLibraryIsNoDriver) {
  const std::string text = problemOf("libm.so.6");
  EXPECT_NE(text.find("libm.so.6 has no cuDriverGetVersion"), std::string::npos) << text;
}

TEST_F(Real, OldDriversAreRefusedByVersion) {
  ASSERT_NE(stub_, nullptr);
  setenv("TUTTI_STUB_VERSION", "10020", 1);
  const std::string text = problemOf(stub_);
  EXPECT_NE(text.find("is a driver of CUDA 10.2: 11.7 is the oldest"), std::string::npos) << text;
}

TEST_F(Real, WhatTheDriverLacksIsNamed) {
  ASSERT_NE(stub_, nullptr);
  setenv("TUTTI_STUB_MISSING", "cuMemImportFromShareableHandle", 1);
  const std::string text = problemOf(stub_);
  EXPECT_NE(text.find("lacks functions that are needed: cuMemImportFromShareableHandle (500)"), std::string::npos) << text;
}

TEST_F(Real, ADriverThatDoesNotAnswerIsAnError) {
  ASSERT_NE(stub_, nullptr);
  setenv("TUTTI_STUB_BROKEN", "1", 1);
  const std::string text = problemOf(stub_);
  EXPECT_NE(text.find("CUDA_ERROR_STUB_LIBRARY (34)"), std::string::npos) << text;
}

TEST_F(Real, CallsReachTheFunctionsThatWereFound) {
  ASSERT_NE(stub_, nullptr);
  auto api = openDriver(stub_);
  ASSERT_TRUE(api) << api.error().text();
  Driver driver(std::move(*api));
  EXPECT_EQ(driver.countDevices().value_or(-1), 3);
  const Status status = driver.init();
  EXPECT_EQ(status.code(), Code::UnhandledCudaError);
  EXPECT_EQ(status.text(), "cuInit(0) failed: CUDA_ERROR_NOT_SUPPORTED (801)");
}

// On a machine with GPUs this is the driver; anywhere else it must be an error in words.
TEST_F(Real, TheMachinesOwnDriverAnswersOrIsAnError) {
  auto api = openDriver();
  if (!api) {
    EXPECT_NE(api.error().text().find("libcuda.so.1"), std::string::npos) << api.error().text();
    return;
  }
  Driver driver(std::move(*api));
  EXPECT_GE(driver.version().value_or(0), kOldestDriver);
}

}  // namespace
}  // namespace tutti::driver::cuda::real_test
