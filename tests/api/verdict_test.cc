// Deadlines, verdicts and the warning of a long wait, through the C interface.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/api_fixture.h"

namespace tutti::api_test::verdict_test {
namespace {

using conformance::RankThreads;
using conformance::ScopedEnv;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

json readVerdict(ncclComm_t comm) {
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetVerdict(comm, nullptr, 0, &needed), ok);
  std::string text(needed, '\0');
  EXPECT_EQ(tuttiCommGetVerdict(comm, text.data(), text.size(), nullptr), ok);
  const json verdict = json::parse(text.c_str(), nullptr, false);
  EXPECT_FALSE(verdict.is_discarded()) << text;
  return verdict;
}

double secondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The verdict as every rank reads it after `body`.
std::vector<json> verdictsOf(RankThreads& threads, const RankThreads::Body& body) {
  std::vector<json> verdicts(static_cast<size_t>(threads.ranks()));
  threads.run([&](int rank, ncclComm_t comm) {
    body(rank, comm);
    threads.meet();
    verdicts[static_cast<size_t>(rank)] = readVerdict(comm);
    threads.meet();
  });
  return verdicts;
}

TEST(Verdict, IsNullWhileNoWaitHasGivenUp) {
  RankThreads threads(2);
  for (const json& verdict : verdictsOf(threads, [](int, ncclComm_t) {})) EXPECT_TRUE(verdict.is_null());
}

TEST(Verdict, OfADeadlineSaysWhoCameAndWhoDidNot) {
  RankThreads threads(4);
  const auto verdicts = verdictsOf(threads, [&](int rank, ncclComm_t comm) {
    int value = 1;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
    EXPECT_EQ(tuttiCommSetTimeout(comm, rank == 1 ? 100 : 0), ok);
    if (rank == 3) {  // comes when it is over
      ncclResult_t state = ncclSuccess;
      while (state == ncclSuccess) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ok);
      }
    }
    const auto start = Clock::now();
    EXPECT_EQ(ncclBroadcast(&value, &value, 1, ncclInt, 3, comm, nullptr), ncclRemoteError) << rank;
    if (rank != 3) {
      EXPECT_GE(secondsSince(start), 0.09);
    }
  });
  for (const json& verdict : verdicts) {
    EXPECT_EQ(verdict, verdicts[0]) << "the same for all ranks";
    EXPECT_EQ(verdict["kind"], "deadline");
    EXPECT_EQ(verdict["code"], static_cast<int>(ncclRemoteError));
    EXPECT_EQ(verdict["rank"], 1);
    EXPECT_GE(verdict["waitedMs"], 100);
    EXPECT_EQ(verdict["operation"], "Broadcast");
    EXPECT_EQ(verdict["sequence"], 1);
    EXPECT_EQ(verdict["root"], 3);
    EXPECT_EQ(verdict["arrived"], json::array({0, 1, 2}));
    EXPECT_EQ(verdict["missing"], json::array({3}));
    ASSERT_EQ(verdict["suspects"].size(), 1U) << verdict;
    const std::string host = verdict["suspects"][0]["host"];
    EXPECT_EQ(verdict["suspects"][0], json({{"rank", 3}, {"host", host}, {"link", "shared memory of " + host}}));
    EXPECT_FALSE(host.empty());
    ASSERT_EQ(verdict["ranks"].size(), 4U);
    for (const int rank : {0, 1, 2}) {
      const json& report = verdict["ranks"][static_cast<size_t>(rank)];
      EXPECT_EQ(report["state"], "waiting");
      EXPECT_EQ(report["begun"], 2);
      EXPECT_EQ(report["finished"], 1);
      ASSERT_EQ(report["in"].size(), 1U);
      EXPECT_EQ(report["in"][0]["operation"], "Broadcast");
      EXPECT_EQ(report["in"][0]["finishedSteps"], 0);
      EXPECT_NE(std::string(report["in"][0]["waits"]).find("waits for rank"), std::string::npos);
    }
    EXPECT_EQ(verdict["ranks"][3]["state"], "elsewhere");
    EXPECT_EQ(verdict["ranks"][3]["finished"], 1);
  }
}

TEST(Verdict, OfAMessagePastItsDeadlineNamesTheTwoRanks) {
  RankThreads threads(3);
  const auto verdicts = verdictsOf(threads, [&](int rank, ncclComm_t comm) {
    char byte = 0;
    if (rank != 2) return;
    EXPECT_EQ(tuttiCommSetTimeout(comm, 50), ok);
    EXPECT_EQ(ncclRecv(&byte, 1, ncclInt8, 0, comm, nullptr), ncclRemoteError);
    EXPECT_NE(std::string(ncclGetLastError(comm)).find("past the deadline of 50 ms"), std::string::npos) << ncclGetLastError(comm);
  });
  EXPECT_EQ(verdicts[0]["operation"], "Recv");
  EXPECT_EQ(verdicts[0]["peer"], 0);
  EXPECT_EQ(verdicts[0]["arrived"], json::array({2}));
  EXPECT_EQ(verdicts[0]["missing"], json::array({0}));
}

TEST(Verdict, OfAMismatchHoldsBothCalls) {
  RankThreads threads(2);
  const auto verdicts = verdictsOf(threads, [&](int rank, ncclComm_t comm) {
    std::vector<float> data(70000);
    if (rank == 0) {
      EXPECT_EQ(ncclSend(data.data(), data.size(), ncclFloat, 1, comm, nullptr), ncclInvalidUsage);
    } else {
      EXPECT_EQ(ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclMax, comm, nullptr), ncclInvalidUsage);
    }
  });
  ASSERT_EQ(verdicts[1]["mismatch"].size(), 2U);
  EXPECT_EQ(verdicts[1]["kind"], "mismatch");
  for (const json& call : verdicts[1]["mismatch"]) {
    if (call["rank"] == 0) {
      EXPECT_EQ(call["operation"], "Send");
      EXPECT_EQ(call["count"], 280000);
      EXPECT_EQ(call["type"], "int8");
      EXPECT_EQ(call["peer"], 1);
    } else {
      EXPECT_EQ(call["operation"], "AllReduce");
      EXPECT_EQ(call["count"], 70000);
      EXPECT_EQ(call["op"], "max");
    }
  }
}

TEST(Verdict, OfARankThatDestroyedItsCommunicator) {
  ncclComm_t comms[2] = {};
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
  ASSERT_EQ(ncclCommDestroy(comms[1]), ok);
  int value = 0;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], nullptr), ncclRemoteError);
  const json verdict = readVerdict(comms[0]);
  EXPECT_EQ(verdict["kind"], "departed");
  EXPECT_EQ(verdict["ranks"][1]["state"], "departed");
  EXPECT_EQ(verdict["missing"], json::array({1}));
  EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
}

TEST(Verdict, OfAnAbort) {
  ncclComm_t comms[2] = {};
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
  std::thread waiting([&] {
    int value = 0;
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], nullptr), ncclRemoteError);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(ncclCommAbort(comms[1]), ok);
  waiting.join();
  const json verdict = readVerdict(comms[0]);
  EXPECT_EQ(verdict["kind"], "aborted");
  EXPECT_EQ(verdict["rank"], 0);
  EXPECT_NE(std::string(verdict["text"]).find("rank 1 aborted"), std::string::npos) << verdict;
  EXPECT_EQ(ncclCommDestroy(comms[0]), ok);
}

TEST(Verdict, IsCutOffWhereItDoesNotFit) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  char text[3] = "xx";
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetVerdict(comm, text, sizeof text, &needed), ok);
  EXPECT_STREQ(text, "nu");
  EXPECT_EQ(needed, 5U);
  EXPECT_TRUE(refused(tuttiCommGetVerdict(comm, nullptr, 1, nullptr), ncclInvalidArgument, {"text", "1 bytes"}));
  EXPECT_TRUE(refused(tuttiCommGetVerdict(nullptr, nullptr, 0, nullptr), ncclInvalidArgument, {"comm is NULL"}));
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST(Timeout, RefusesWhatIsOutOfRange) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  EXPECT_EQ(tuttiCommSetTimeout(comm, 0), ok);
  EXPECT_EQ(tuttiCommSetTimeout(comm, 1LL << 43), ok);
  EXPECT_TRUE(refused(tuttiCommSetTimeout(comm, -1), ncclInvalidArgument, {"milliseconds -1"}));
  EXPECT_TRUE(refused(tuttiCommSetTimeout(comm, (1LL << 43) + 1), ncclInvalidArgument, {"out of range"}));
  EXPECT_TRUE(refused(tuttiCommSetTimeout(nullptr, 1), ncclInvalidArgument, {"comm is NULL"}));
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

TEST(Timeout, EndsAWaitOnAStream) {
  RankThreads threads(2);
  threads.run([&](int rank, ncclComm_t comm) {
    if (rank == 1) return;
    EXPECT_EQ(tuttiCommSetTimeout(comm, 50), ok);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(tuttiStreamCreate(&stream), ok);
    int values[2] = {};
    for (int& value : values) EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, stream), ok);
    EXPECT_EQ(tuttiStreamSynchronize(stream), ncclRemoteError);
    EXPECT_EQ(tuttiStreamDestroy(stream), ok);
  });
}

TEST(Timeout, LeavesAWaitAloneThatMovesOnInTime) {
  RankThreads threads(2);
  const auto verdicts = verdictsOf(threads, [&](int rank, ncclComm_t comm) {
    EXPECT_EQ(tuttiCommSetTimeout(comm, 1000), ok);
    int value = 1;
    for (int i = 0; i < 4; ++i) {  // together longer than the deadline
      if (i % 2 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
    }
  });
  EXPECT_TRUE(verdicts[0].is_null());
}

/// Reads NCCL_DEBUG again; deprecated for programs, which set it before their first call.
void resetLog() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
#pragma GCC diagnostic pop
}

/// Everything logged while `body` runs.
std::string logOf(const std::function<void()>& body) {
  // A name of its own: a file that stays the same is not opened again.
  const std::string path = testing::TempDir() + "tutti_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".log";
  {
    const ScopedEnv debug("NCCL_DEBUG", "WARN");
    const ScopedEnv file("NCCL_DEBUG_FILE", path);
    resetLog();
    body();
  }
  resetLog();
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::remove(path.c_str());
  return text;
}

size_t occurrences(const std::string& text, const std::string& of) {
  size_t n = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++n;
  return n;
}

TEST(Verdict, IsLoggedOnceInWords) {
  const std::string log = logOf([] {
    RankThreads threads(3);
    threads.run([&](int rank, ncclComm_t comm) {
      EXPECT_EQ(tuttiCommSetTimeout(comm, 60), ok);
      int value = 1;
      if (rank != 2) {
        EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ncclRemoteError);
      }
    });
  });
  EXPECT_EQ(occurrences(log, "verdict (deadline)"), 1U) << log;
  EXPECT_NE(log.find("ranks that had come to this call: 0,1; not: 2"), std::string::npos) << log;
  EXPECT_NE(log.find("rank 2 is in no wait, after 0 collective calls"), std::string::npos) << log;
}

TEST(Verdict, ALongWaitIsExplainedOnce) {
  const std::string log = logOf([] {
    RankThreads threads(2);
    threads.run([&](int rank, ncclComm_t comm) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(250));
      int value = 1;
      EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ok);
    });
  });
  EXPECT_EQ(occurrences(log, "rank 0 has waited for"), 1U) << log;
  EXPECT_NE(log.find("in AllReduce #0 of 1 int32, sum: it waits for"), std::string::npos) << log;
}

}  // namespace
}  // namespace tutti::api_test::verdict_test
