// Random programs that end in any case: legal ones, which nothing may stop however late their ranks are, and the same with a call
// changed, dropped or moved, which may end well or with an error but never hang.
#include <algorithm>

#include "api/agreement_list.h"
#include "api/api_fixture.h"

namespace tutti::api_test::agreement_random_test {
namespace {

using conformance::Random;
using conformance::RankThreads;

int programs() { return std::getenv("TUTTI_TEST_FULL") != nullptr ? 5000 : 120; }

size_t drawBytes(Random& random) {
  constexpr size_t kSizes[] = {0, 1, 32, 33, 4096, 4097, 60000, 300000};
  return kSizes[random.below(std::size(kSizes))];
}

/// Events of the whole communicator in one order; each rank makes its part of them in that order. Rendezvous at every event would
/// be enough for it to end, so it is legal whatever is buffered.
Program drawLegal(Random& random, size_t ranks) {
  Program program(ranks);
  for (uint64_t event = 2 + random.below(12); event > 0; --event) {
    if (random.below(3) == 0) {
      const auto root = static_cast<int>(random.below(ranks));
      const Step step = collective(static_cast<int>(random.below(kCollectives)), random.below(2) == 0 ? 3 : 5000, ncclInt, ncclSum, root);
      for (auto& steps : program) steps.push_back(step);
    } else {
      const auto from = random.below(ranks);
      const auto to = (from + 1 + random.below(ranks - 1)) % ranks;
      const size_t bytes = drawBytes(random);
      program[from].push_back(send(static_cast<int>(to), bytes));
      program[to].push_back(recv(static_cast<int>(from), bytes));
    }
    // Longer than it takes to publish a wait and to search three times.
    if (random.below(3) == 0) program[random.below(ranks)].push_back(sleepFor(static_cast<int>(random.below(9))));
  }
  return program;
}

/// One rank makes other calls than was agreed.
void spoil(Random& random, Program& program) {
  std::vector<Step>& steps = program[random.below(program.size())];
  if (steps.empty()) return;
  const auto at = static_cast<std::ptrdiff_t>(random.below(steps.size()));
  const auto peer = static_cast<int>(random.below(program.size()));
  switch (random.below(4)) {
    case 0: steps.erase(steps.begin() + at); break;
    case 1: std::swap(steps[static_cast<size_t>(at)], steps[random.below(steps.size())]); break;
    case 2: steps.insert(steps.begin() + at, collective(static_cast<int>(random.below(kCollectives)), 5000)); break;
    default:  // no message to itself outside a group
      if (&steps != &program[static_cast<size_t>(peer)])
        steps.insert(steps.begin() + at, random.below(2) == 0 ? send(peer, 60000) : recv(peer, 60000));
  }
}

struct Outcome {
  std::vector<ncclResult_t> results;
  std::vector<ncclResult_t> states;
  std::string text;
};

Outcome run(const Program& program, const std::string& name, uint64_t groupSeed) {
  const size_t ranks = program.size();
  Outcome outcome{std::vector<ncclResult_t>(ranks), std::vector<ncclResult_t>(ranks), {}};
  RankThreads threads(static_cast<int>(ranks));
  threads.announce(name);
  threads.run([&](int rank, ncclComm_t comm) {
    const auto r = static_cast<size_t>(rank);
    Random random(groupSeed + r);
    bool open = false;
    ncclResult_t first = ok;
    const auto note = [&first](ncclResult_t result) {
      if (first == ok) first = result;
    };
    for (const Step& step : program[r]) {
      if (groupSeed != 0 && !open && random.below(4) == 0) open = ncclGroupStart() == ok;
      note(step.run(comm, nullptr));
      if (open && random.below(3) == 0) note(ncclGroupEnd()), open = false;
    }
    if (open) note(ncclGroupEnd());
    note(allReduce(1).run(comm, nullptr));  // whoever is still waiting then waits for somebody who waits, too
    threads.meet();
    outcome.results[r] = first;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &outcome.states[r]), ok);
  });
  outcome.text = ncclGetLastError(nullptr);
  return outcome;
}

class RandomPrograms : public testing::TestWithParam<bool> {
 protected:
  uint64_t groupSeed(int i) const { return GetParam() ? static_cast<uint64_t>(i) * 1000 + 1 : 0; }
};

TEST_P(RandomPrograms, LegalOnesAreLeftAlone) {
  for (int i = 0; i < programs(); ++i) {
    Random random(static_cast<uint64_t>(i));
    const Program program = drawLegal(random, 2 + random.below(4));
    const std::string name = "legal program " + std::to_string(i);
    const Outcome outcome = run(program, name, groupSeed(i));
    for (size_t r = 0; r < program.size(); ++r) {
      EXPECT_EQ(outcome.results[r], ok) << name << ", rank " << r << ": " << outcome.text;
      EXPECT_EQ(outcome.states[r], ok) << name;
    }
  }
}

TEST_P(RandomPrograms, SpoiltOnesEnd) {
  int failed = 0;
  for (int i = 0; i < programs(); ++i) {
    Random random(static_cast<uint64_t>(i) + 1'000'000);
    Program program = drawLegal(random, 2 + random.below(4));
    for (uint64_t faults = 1 + random.below(2); faults > 0; --faults) spoil(random, program);
    const std::string name = "spoilt program " + std::to_string(i);
    const Outcome outcome = run(program, name, groupSeed(i));
    const bool someFailed = std::find(outcome.states.begin(), outcome.states.end(), ncclInvalidUsage) != outcome.states.end();
    failed += someFailed ? 1 : 0;
    for (size_t r = 0; r < program.size(); ++r) {
      EXPECT_EQ(outcome.states[r], someFailed ? ncclInvalidUsage : ok) << name << ": all ranks or none: " << outcome.text;
      EXPECT_TRUE(outcome.results[r] == ok || outcome.results[r] == ncclInvalidUsage) << name << ": " << outcome.results[r];
    }
  }
  EXPECT_GT(failed, programs() / 3) << "most faults are of consequence";
}

INSTANTIATE_TEST_SUITE_P(Ranks, RandomPrograms, testing::Bool(),
                         [](const auto& p) { return std::string(p.param ? "InGroups" : "OneByOne"); });

}  // namespace
}  // namespace tutti::api_test::agreement_random_test
