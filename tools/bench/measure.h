// Measures one call: checks it, times it, checks it again.
//
// Owner: the thread that runs the team. Times are monotonic-clock microseconds.
// 1. A timed sample starts at a barrier and holds one call, or as many back to back as take 20 us; the slowest rank counts.
// 2. Nothing but the calls lies inside a sample: inputs are written, and results checked, outside.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/call.h"
#include "bench/check.h"
#include "bench/pattern.h"
#include "bench/team.h"

namespace tutti::bench {

struct Timing {
  double medianUs = 0;
  double p99Us = 0;
  uint64_t samples = 0;
  uint64_t callsPerSample = 0;
};

struct Measurement {
  Timing timing;
  uint64_t wrong = 0;
  std::string firstWrong;
};

class Bench {
 public:
  /// Maps memory for the largest call of the run on every rank.
  static Result<std::unique_ptr<Bench>> create(Team& team, const Options& options, uint64_t sendBytes, uint64_t receiveBytes);

  /// The two patterns used in turn, for the calls that follow.
  void setPatterns(DataType type, std::optional<RedOp> op);

  Result<Measurement> measure(const Call& call);

  /// Traffic of all ranks together for one call; algorithm and simd of rank 0.
  Result<Traffic> explainAll(const Call& call);

 private:
  Bench(Team& team, const Options& options) : team_(team), options_(options), seats_(static_cast<size_t>(team.crew().threads)) {}

  /// What one rank's thread owns. Padded: neighbours are written at the same time.
  struct alignas(128) Seat {
    Memory memory;
    Placement placement;
    ncclRedOp_t op = ncclSum;
    std::vector<double> samplesUs;
    Verdict verdict;
    Traffic traffic;
  };

  Seat& seatOf(const Member& member) { return seats_[static_cast<size_t>(member.index())]; }
  Round roundOf(uint64_t number) const;
  Round nextRound();
  Status setUp(const Call& call);
  Status takeDown(const Call& call);
  Status checkOnce(const Call& call, Measurement& measurement);
  /// For results that all ranks share: bit for bit the same, within this process and between processes.
  Status compareWithOthers(const Call& call);
  Status compareProcesses(const Call& call, Measurement& measurement);
  Status writeAllInputs(const Call& call);
  Status runSamples(const Call& call, uint64_t samples, uint64_t callsPerSample);
  /// The slowest rank of every sample, in microseconds a call; the same in every process.
  Result<std::vector<double>> slowest(uint64_t callsPerSample);
  /// Warms up, and finds out how many calls make a sample.
  Result<uint64_t> warmUp(const Call& call, double& callUs);
  uint64_t countSamples(double sampleUs) const;

  Team& team_;
  const Options& options_;
  std::deque<Seat> seats_;
  std::vector<Pattern> patterns_;
  uint64_t rounds_ = 0;
};

}  // namespace tutti::bench
