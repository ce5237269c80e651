// What the tests on the fake driver share.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver/cuda/driver.h"
#include "driver/cuda/fake.h"
#include "driver/cuda/owners.h"

namespace tutti::driver::cuda::play {

/// Descriptors that this process has open.
inline size_t openDescriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count;
}

/// A fake with a Driver on it, and what nobody else could be told.
struct World {
  explicit World(FakeOptions options = {}) {
    auto api = std::make_unique<FakeApi>(std::move(options));
    fake = api.get();
    driver = std::make_unique<Driver>(std::move(api), [this](const Status& status) {
      const std::lock_guard lock(mutex);
      lost.push_back(status.text());
    });
    EXPECT_TRUE(driver->init().ok());
  }
  PrimaryContext context(Device device) {
    auto context = PrimaryContext::retain(*driver, *driver->describe(device));
    EXPECT_TRUE(context) << context.error().text();
    return std::move(*context);
  }
  FakeApi* fake = nullptr;
  std::unique_ptr<Driver> driver;
  std::mutex mutex;
  std::vector<std::string> lost;
};

/// Runs `scenario` (World& → Status), which must leave nothing behind, once in peace, and then with the first, second, … call failing until
/// it no longer gets that far. Each time the failure must be named, by the Status or by what was lost, and nothing may be alive or open.
template <class Scenario>
void failEveryCall(const FakeOptions& options, const Scenario& scenario, size_t atLeast) {
  {
    World world(options);
    world.fake->failAt(0);
    const Status status = scenario(world);
    ASSERT_TRUE(status.ok()) << status.text();
    ASSERT_TRUE(world.fake->idle()) << "the scenario itself leaves something behind";
    ASSERT_GE(world.fake->calls(), atLeast);
  }
  for (size_t nth = 1; nth < 100000; ++nth) {
    const size_t before = openDescriptors();
    World world(options);
    world.fake->failAt(nth, Error::LaunchFailed);
    const Status status = scenario(world);
    const auto failed = world.fake->failed();
    EXPECT_TRUE(world.fake->idle()) << "call " << nth << ", " << (failed ? symbolOf(*failed) : "none") << ", leaves something behind";
    EXPECT_EQ(openDescriptors(), before) << "call " << nth;
    if (!failed) {
      EXPECT_TRUE(status.ok()) << status.text();
      EXPECT_TRUE(world.lost.empty());
      EXPECT_GT(nth, atLeast);
      return;
    }
    std::string told = status.text();
    for (const std::string& text : world.lost) told += text;
    EXPECT_NE(told.find(std::string(symbolOf(*failed)) + "("), std::string::npos)
        << "call " << nth << ", " << symbolOf(*failed) << ", is not named in: " << told;
    EXPECT_NE(told.find("CUDA_ERROR_LAUNCH_FAILED (719)"), std::string::npos) << told;
  }
  FAIL() << "the scenario has no end";
}

}  // namespace tutti::driver::cuda::play
