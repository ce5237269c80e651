// Every program of a generated list of mismatches is reported on all ranks, with a text that quotes both calls, and none hangs;
// odd programs that match are never reported.
#include "api/agreement_list.h"
#include "api/api_fixture.h"

namespace tutti::api_test::agreement_test {
namespace {

using conformance::RankThreads;

/// What became of one rank.
struct Told {
  ncclResult_t first = ncclSuccess;  ///< the first result that was no success
  ncclResult_t state = ncclSuccess;
};

struct Outcome {
  std::vector<Told> ranks;
  std::string verdict;
};

ncclResult_t runCalls(const std::vector<Step>& steps, bool grouped, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t first = grouped ? ncclGroupStart() : ncclSuccess;
  for (const Step& step : steps) {
    const ncclResult_t result = first == ncclSuccess ? step.run(comm, stream) : first;
    if (first == ncclSuccess) first = result;
  }
  const ncclResult_t ended = grouped ? ncclGroupEnd() : ncclSuccess;
  return first == ncclSuccess ? ended : first;
}

std::string readVerdict(ncclComm_t comm) {
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetVerdict(comm, nullptr, 0, &needed), ok);
  std::string text(needed, '\0');
  EXPECT_EQ(tuttiCommGetVerdict(comm, text.data(), text.size(), nullptr), ok);
  text.resize(std::strlen(text.c_str()));
  return text;
}

Outcome run(const Case& c, bool onStreams) {
  const auto ranks = c.program.size();
  Outcome outcome;
  outcome.ranks.resize(ranks);
  RankThreads threads(static_cast<int>(ranks));
  threads.announce(c.name);
  threads.run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    cudaStream_t stream = nullptr;
    if (onStreams) {
      EXPECT_EQ(tuttiStreamCreate(&stream), ok);
    }
    outcome.ranks[r].first = runCalls(c.program[r], c.grouped, comm, stream);
    if (onStreams) {
      const ncclResult_t later = tuttiStreamSynchronize(stream);
      if (outcome.ranks[r].first == ok) outcome.ranks[r].first = later;
      EXPECT_EQ(tuttiStreamDestroy(stream), ok);
    }
    threads.meet();
    EXPECT_EQ(ncclCommGetAsyncError(comm, &outcome.ranks[r].state), ok);
    if (rank == 0) outcome.verdict = readVerdict(comm);
    threads.meet();
  });
  return outcome;
}

class Agreement : public testing::TestWithParam<bool> {};

TEST_P(Agreement, EveryMismatchIsToldToAllRanks) {
  const std::vector<Case> list = mismatches();
  size_t reported = 0;
  for (const Case& c : list) {
    const Outcome outcome = run(c, GetParam());
    bool all = true;
    bool someFailed = false;
    for (const Told& told : outcome.ranks) {
      // A rank that only had to send small things may have returned already: its state tells it then.
      all = all && told.state == ncclInvalidUsage && (told.first == ncclInvalidUsage || told.first == ncclSuccess);
      someFailed = someFailed || told.first == ncclInvalidUsage;
    }
    for (const std::string& words : c.quoted) {
      EXPECT_NE(outcome.verdict.find(words), std::string::npos) << c.name << ": no '" << words << "' in " << outcome.verdict;
    }
    EXPECT_TRUE(all && someFailed) << c.name << ": " << outcome.verdict;
    EXPECT_NE(outcome.verdict.find(R"("kind":"mismatch")"), std::string::npos) << c.name << ": " << outcome.verdict;
    if (all && someFailed) ++reported;
  }
  EXPECT_EQ(reported, list.size());
  std::printf("%zu of %zu mismatches reported on all ranks\n", reported, list.size());
}

TEST_P(Agreement, LegalOrdersAreLeftAlone) {
  for (const Case& c : legalOrders()) {
    const Outcome outcome = run(c, GetParam());
    for (const Told& told : outcome.ranks) {
      EXPECT_EQ(told.first, ok) << c.name << ": " << outcome.verdict;
      EXPECT_EQ(told.state, ok) << c.name;
    }
    EXPECT_EQ(outcome.verdict, "null") << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(On, Agreement, testing::Bool(), [](const auto& p) { return std::string(p.param ? "Streams" : "TheCaller"); });

}  // namespace
}  // namespace tutti::api_test::agreement_test
