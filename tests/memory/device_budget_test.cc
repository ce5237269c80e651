#include "memory/device_budget.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tutti::memory::device_budget_test {
namespace {

TEST(Budget, TheLastByteFitsAndOneMoreDoesNot) {
  Budget budget(3, Bytes(1000));
  EXPECT_TRUE(budget.charge(Purpose::Pipes, Bytes(900)).ok());
  EXPECT_TRUE(budget.charge(Purpose::Windows, Bytes(60)).ok());
  const Status status = budget.charge(Purpose::Idle, Bytes(41), Purpose::Boards);
  EXPECT_EQ(status.code(), Code::UnhandledCudaError);
  EXPECT_EQ(status.text(),
            "device 3: 41 bytes for boards go past the budget of 1000 bytes (TUTTI_MEM_LIMIT); in use: pipes 900, windows 60 bytes");
  EXPECT_TRUE(budget.charge(Purpose::Boards, Bytes(40)).ok());
  EXPECT_FALSE(budget.charge(Purpose::Boards, Bytes(1)).ok());
  EXPECT_FALSE(budget.charge(Purpose::Boards, Bytes(UINT64_MAX)).ok());
  budget.credit(Purpose::Pipes, Bytes(900));
  EXPECT_EQ(budget.usage().limited(), Bytes(100));
  EXPECT_TRUE(budget.charge(Purpose::Boards, Bytes(900)).ok());
}

TEST(Budget, WhatUsersAllocateIsCountedButTheirs) {
  Budget budget(0, Bytes(10));
  EXPECT_TRUE(budget.charge(Purpose::User, Bytes(100)).ok());
  EXPECT_TRUE(budget.charge(Purpose::Pipes, Bytes(10)).ok());
  EXPECT_EQ(budget.usage().of(Purpose::User), Bytes(100));
  EXPECT_EQ(budget.usage().limited(), Bytes(10));
}

TEST(Budget, NoneIsNoLimit) {
  Budget budget(0, Bytes(0));
  EXPECT_EQ(budget.usage().text(), "nothing");
  EXPECT_TRUE(budget.charge(Purpose::Pipes, Bytes(uint64_t{1} << 50)).ok());
}

TEST(Budget, MovingChangesNoSum) {
  Budget budget(0, Bytes(100));
  ASSERT_TRUE(budget.charge(Purpose::Idle, Bytes(100), Purpose::Pipes).ok());
  budget.move(Purpose::Idle, Purpose::Pipes, Bytes(30));
  EXPECT_EQ(budget.usage().text(), "pipes 30, idle 70 bytes");
  EXPECT_EQ(budget.usage().limited(), Bytes(100));
}

TEST(Budget, ThreadsNeverGetMoreThanThereIs) {
  Budget budget(0, Bytes(64));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        if (!budget.charge(Purpose::Pipes, Bytes(24)).ok()) continue;
        ASSERT_LE(budget.usage().limited(), Bytes(64));
        budget.credit(Purpose::Pipes, Bytes(24));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.usage().limited(), Bytes(0));
}

}  // namespace
}  // namespace tutti::memory::device_budget_test
