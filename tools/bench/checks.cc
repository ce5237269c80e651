#include "bench/checks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "bench/percentile.h"
#include "bench/team.h"
#include "core/format.h"
#include "exit_codes.h"
#include "tutti.h"

namespace tutti::bench {
namespace {

constexpr int kExitAbove = 1;
/// Where a communicator's memory comes to lie can cost more than the checks: so many pairs of communicators take turns.
constexpr int kBlocksOfOnePair = 5;
constexpr int kWarmups = 50;
constexpr int kRounds = 20;               // of each kind in a block
constexpr long long kTimeoutMs = 60'000;  // a deadline that is looked at, and never reached

using Clock = std::chrono::steady_clock;

/// A communicator of the team's threads with checks, or without.
class Rivals {
 public:
  explicit Rivals(int ranks)
      : comms_{std::vector<ncclComm_t>(static_cast<size_t>(ranks)), std::vector<ncclComm_t>(static_cast<size_t>(ranks))} {}

  Status create(Team& team) {
    for (const bool checks : {true, false}) {
      ncclUniqueId id;
      if (ncclGetUniqueId(&id) != ncclSuccess) return error(Code::SystemError, "ncclGetUniqueId: {}", ncclGetLastError(nullptr));
      // The rank threads wait for their job meanwhile: nobody reads the environment.
      if (setenv("TUTTI_CHECKS", checks ? "on" : "off", 1) != 0) return error(Code::SystemError, "setenv failed");
      const Status status = team.run("ncclCommInitRank", [&](Member& member) -> Status {
        ncclComm_t& made = comm(member.rank(), checks);
        TUTTI_TRY(member.check(ncclCommInitRank(&made, team.ranks(), id, member.rank()), "ncclCommInitRank"));
        return checks ? member.check(tuttiCommSetTimeout(made, kTimeoutMs), "tuttiCommSetTimeout") : Status();
      });
      if (!status.ok()) return status;
    }
    return {};
  }
  Status destroy(Team& team) {
    return team.run("ncclCommDestroy", [&](Member& member) -> Status {
      for (const bool checks : {true, false}) TUTTI_TRY(member.check(ncclCommDestroy(comm(member.rank(), checks)), "ncclCommDestroy"));
      return {};
    });
  }
  ncclComm_t& comm(int rank, bool checks) { return comms_[checks ? 1 : 0][static_cast<size_t>(rank)]; }

 private:
  std::vector<ncclComm_t> comms_[2];
};

double middle(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  return percentile(values, percent);
}

/// One block: the two kinds take turns in short rounds, and the middle round of each counts, so that what else the machine does falls out.
Status runBlock(Team& team, Rivals& rivals, const CheckCostOptions& options, bool checksFirst, CheckCost& cost) {
  std::vector<double> rounds[2];
  const int calls = std::max(options.calls / kRounds, 1);
  TUTTI_TRY(team.run("all-reduce", [&](Member& member) -> Status {
    std::vector<float> data(static_cast<size_t>(std::max(options.bytes, 4)) / sizeof(float));
    for (int round = 0; round < 2 * kRounds; ++round) {
      const bool checks = (round % 2 == 0) == checksFirst;
      const ncclComm_t comm = rivals.comm(member.rank(), checks);
      const auto call = [&] { return ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclSum, comm, nullptr); };
      ncclResult_t result = member.meet().ok() ? ncclSuccess : ncclInvalidUsage;
      for (int i = 0; i < kWarmups && result == ncclSuccess; ++i) result = call();
      const auto start = Clock::now();
      for (int i = 0; i < calls && result == ncclSuccess; ++i) result = call();
      const auto elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start);
      if (result != ncclSuccess) return member.check(result, "ncclAllReduce");
      if (member.rank() == 0) rounds[checks ? 1 : 0].push_back(elapsed.count() / calls);
    }
    return {};
  }));
  cost.with.push_back(middle(std::move(rounds[1]), 50));
  cost.without.push_back(middle(std::move(rounds[0]), 50));
  return {};
}

}  // namespace

CheckCostSummary summarize(const CheckCost& cost) {
  std::vector<double> differences;
  for (size_t i = 0; i < cost.with.size(); ++i) differences.push_back(cost.with[i] - cost.without[i]);
  CheckCostSummary summary;
  summary.with = middle(cost.with, 50);
  summary.without = middle(cost.without, 50);
  summary.difference = middle(differences, 50);
  summary.lowQuarter = middle(differences, 25);
  summary.highQuarter = middle(differences, 75);
  summary.allowed = std::max(0.02 * summary.without, 20.0);
  return summary;
}

Result<CheckCost> measureChecks(const CheckCostOptions& options) {
  auto team = Team::start(options.ranks, std::chrono::milliseconds(0));
  if (!team) return tl::unexpected(std::move(team).error());
  CheckCost cost;
  Rivals rivals(options.ranks);
  for (int block = 0; block < options.blocks; ++block) {
    if (block % kBlocksOfOnePair == 0)
      if (Status status = rivals.create(**team); !status.ok()) return tl::unexpected(std::move(status));
    if (Status status = runBlock(**team, rivals, options, block % 2 == 0, cost); !status.ok()) return tl::unexpected(std::move(status));
    if (block % kBlocksOfOnePair == kBlocksOfOnePair - 1 || block == options.blocks - 1)
      if (Status status = rivals.destroy(**team); !status.ok()) return tl::unexpected(std::move(status));
  }
  return cost;
}

int runChecks(const CheckCostOptions& options) {
  const auto cost = measureChecks(options);
  if (!cost) {
    std::fprintf(stderr, "tutti: %s\n", cost.error().text().c_str());
    return tool::kExitError;
  }
  const CheckCostSummary s = summarize(*cost);
  std::printf("all-reduce of %d bytes on %d ranks, %d blocks of %d calls with checks and as many without, by turns, medians in ns a call\n",
              options.bytes, options.ranks, options.blocks, options.calls);
  std::printf("with checks     %8.1f\nwithout         %8.1f\n", s.with, s.without);
  std::printf("difference      %8.1f (quartiles %.1f to %.1f), %.2f%%\n", s.difference, s.lowQuarter, s.highQuarter,
              100 * s.difference / s.without);
  std::printf("allowed         %8.1f (the larger of 2%% and 20 ns): %s\n", s.allowed, s.isWithin() ? "within" : "ABOVE");
  return s.isWithin() ? 0 : kExitAbove;
}

}  // namespace tutti::bench
