#include "bench/measure.h"

#include <algorithm>
#include <cmath>

#include "bench/agree.h"
#include "bench/check.h"
#include "bench/percentile.h"
#include "bench/units.h"

namespace tutti::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kSampleUs = 20;         // shorter samples would measure the clock and the barrier
constexpr double kRowBudgetUs = 100000;  // time for the samples of one row when -n is not given
constexpr uint64_t kWarmUpSamples = 5;
constexpr uint64_t kMostCalls = 1 << 20;
constexpr uint64_t kFewestSamples = 10;
constexpr uint64_t kFewestSlowSamples = 5;
constexpr double kSlowSampleUs = 100000;
constexpr uint64_t kMostSamples = 1000;
constexpr uint64_t kPhaseStep = 4099;  // prime, about half a period

double microsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double, std::micro>(SteadyClock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<Bench>> Bench::create(Team& team, const Options& options, uint64_t sendBytes, uint64_t receiveBytes) {
  const int ranks = team.crew().threads * options.process.onHost;
  const uint64_t needed = (sendBytes + receiveBytes) * static_cast<uint64_t>(ranks);
  const uint64_t available = availableMemory();
  if (available != 0 && needed > available) {
    return fail(Code::SystemError,
                "{} ranks with buffers of {} and {} need {}, but only {} of memory are available; use a smaller --maxbytes", ranks,
                formatBytes(sendBytes), formatBytes(receiveBytes), formatBytes(needed), formatBytes(available));
  }
  std::unique_ptr<Bench> bench(new Bench(team, options));
  Status status = team.run("mapping memory", [&](Member& member) -> Status {
    Result<Buffer> send = Buffer::make(options.buffers, sendBytes);
    if (!send) return send.error();
    Result<Buffer> receive = Buffer::make(options.buffers, receiveBytes);
    if (!receive) return receive.error();
    bench->seatOf(member).memory = Memory{std::move(*send), std::move(*receive)};
    return {};
  });
  if (!status.ok()) return tl::unexpected(std::move(status));
  return bench;
}

void Bench::setPatterns(DataType type, std::optional<RedOp> op) {
  patterns_.clear();
  for (uint64_t number = 0; number < kPeriods.size(); ++number) patterns_.emplace_back(type, op, team_.ranks(), number);
}

Round Bench::roundOf(uint64_t number) const { return {&patterns_[number % patterns_.size()], number * kPhaseStep}; }

Round Bench::nextRound() { return roundOf(rounds_++); }

Status Bench::setUp(const Call& call) {
  return team_.run("setting up", [&](Member& member) -> Status {
    Seat& seat = seatOf(member);
    seat.placement = place(call, member.rank(), seat.memory);
    Result<ncclRedOp_t> op = createOperator(member, call);
    if (!op) return op.error();
    seat.op = *op;
    return {};
  });
}

Status Bench::takeDown(const Call& call) {
  return team_.run("taking down", [&](Member& member) { return destroyOperator(member, call, seatOf(member).op); });
}

Status Bench::checkOnce(const Call& call, Measurement& measurement) {
  const Round round = nextRound();
  const Team::Job work = [&](Member& member) -> Status {
    Seat& seat = seatOf(member);
    prepare(call, member.rank(), seat.placement, seat.memory, round);
    TUTTI_TRY(member.meet());
    TUTTI_TRY(issue(member, call, seat.placement, seat.op));
    seat.verdict = judge(call, member.rank(), seat.placement, seat.memory, round);
    return {};
  };
  TUTTI_TRY(team_.run(describe(call), work));
  if (call.operation->op == Op::AllReduce) TUTTI_TRY(compareWithOthers(call));
  std::vector<uint64_t> wrong = {0};
  for (const Seat& seat : seats_) {
    if (measurement.firstWrong.empty()) measurement.firstWrong = seat.verdict.first;
    wrong[0] += seat.verdict.wrong;
  }
  TUTTI_TRY(agreeOnSum(team_, wrong));
  measurement.wrong += wrong[0];
  if (call.operation->op == Op::AllReduce && wrong[0] == 0) return compareProcesses(call, measurement);
  return {};
}

Status Bench::compareWithOthers(const Call& call) {
  return team_.run("comparing ranks", [&](Member& member) -> Status {
    Seat& seat = seatOf(member);
    // Wrong elements are counted once: only results that passed may still differ within their tolerance.
    if (seat.verdict.wrong == 0) seat.verdict = compareRanks(call, seat.placement, seats_[0].placement, team_.crew().firstRank);
    return {};
  });
}

Status Bench::compareProcesses(const Call& call, Measurement& measurement) {
  if (team_.crew().isAlone()) return {};
  const uint64_t hash = hashResult(call, seats_[0].placement);
  std::vector<uint64_t> extremes = {hash, ~hash};
  TUTTI_TRY(agreeOnMax(team_, extremes));
  if (extremes[0] == ~extremes[1]) return {};
  measurement.wrong += 1;
  measurement.firstWrong = format("{}: the results of the processes are not bit for bit the same", describe(call));
  return {};
}

Status Bench::writeAllInputs(const Call& call) {
  const Round round = nextRound();
  return team_.run("writing inputs", [&](Member& member) -> Status {
    writeInputs(call, member.rank(), seatOf(member).placement, round);
    return {};
  });
}

Status Bench::runSamples(const Call& call, uint64_t samples, uint64_t callsPerSample) {
  const uint64_t firstRound = rounds_;
  if (options_.rewritesInputs) rounds_ += samples;
  return team_.run(describe(call), [&](Member& member) -> Status {
    Seat& seat = seatOf(member);
    seat.samplesUs.assign(samples, 0);
    for (uint64_t sample = 0; sample < samples; ++sample) {
      if (options_.rewritesInputs) writeInputs(call, member.rank(), seat.placement, roundOf(firstRound + sample));
      // The first meeting may wake sleepers; the second finds everybody awake.
      TUTTI_TRY(member.meet());
      TUTTI_TRY(member.meet());
      const auto start = SteadyClock::now();
      for (uint64_t i = 0; i < callsPerSample; ++i) TUTTI_TRY(issue(member, call, seat.placement, seat.op));
      seat.samplesUs[sample] = microsSince(start);
    }
    return {};
  });
}

Result<std::vector<double>> Bench::slowest(uint64_t callsPerSample) {
  std::vector<double> times(seats_[0].samplesUs.size(), 0);
  for (const Seat& seat : seats_) {
    for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], seat.samplesUs[i]);
  }
  if (Status status = agreeOnMax(team_, times); !status.ok()) return tl::unexpected(std::move(status));
  for (double& time : times) time /= static_cast<double>(callsPerSample);
  return times;
}

Result<uint64_t> Bench::warmUp(const Call& call, double& callUs) {
  if (options_.warmups && *options_.warmups > 0) {
    Status status = runSamples(call, static_cast<uint64_t>(*options_.warmups), 1);
    if (!status.ok()) return tl::unexpected(std::move(status));
  }
  for (uint64_t calls = 1;; calls *= 2) {
    Status status = runSamples(call, kWarmUpSamples, calls);
    if (!status.ok()) return tl::unexpected(std::move(status));
    Result<std::vector<double>> measured = slowest(calls);
    if (!measured) return tl::unexpected(measured.error());
    std::vector<double>& times = *measured;
    std::sort(times.begin(), times.end());
    callUs = percentile(times, 50);
    if (options_.rewritesInputs) return 1;
    // The fastest sample tells what a call takes; the others may have waited for a busy core, and would make samples too short.
    if (times.front() * static_cast<double>(calls) < kSampleUs && calls < kMostCalls) continue;
    return std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(kSampleUs / std::max(times.front(), 1e-3))));
  }
}

uint64_t Bench::countSamples(double sampleUs) const {
  if (options_.iterations) return static_cast<uint64_t>(*options_.iterations);
  const uint64_t fewest = sampleUs > kSlowSampleUs ? kFewestSlowSamples : kFewestSamples;
  return std::clamp(static_cast<uint64_t>(kRowBudgetUs / std::max(sampleUs, 1.0)), fewest, kMostSamples);
}

Result<Measurement> Bench::measure(const Call& call) {
  Measurement measurement;
  double callUs = 0;
  const auto steps = [&]() -> Status {
    TUTTI_TRY(setUp(call));
    TUTTI_TRY(options_.isChecked ? checkOnce(call, measurement) : writeAllInputs(call));
    Result<uint64_t> calls = warmUp(call, callUs);
    if (!calls) return calls.error();
    // In place, every call reduces what the call before left: start again from finite values.
    if (call.isInPlace) TUTTI_TRY(writeAllInputs(call));
    TUTTI_TRY(runSamples(call, countSamples(callUs * static_cast<double>(*calls)), *calls));
    Result<std::vector<double>> measured = slowest(*calls);
    if (!measured) return measured.error();
    std::vector<double>& times = *measured;
    std::sort(times.begin(), times.end());
    measurement.timing = Timing{percentile(times, 50), percentile(times, 99), times.size(), *calls};
    if (options_.isChecked) TUTTI_TRY(checkOnce(call, measurement));
    return takeDown(call);
  };
  Status status = steps();
  if (!status.ok()) return tl::unexpected(std::move(status));
  return measurement;
}

Result<Traffic> Bench::explainAll(const Call& call) {
  const auto steps = [&]() -> Status {
    TUTTI_TRY(setUp(call));
    TUTTI_TRY(team_.run("tuttiExplain", [&](Member& member) -> Status {
      Seat& seat = seatOf(member);
      Result<Traffic> traffic = explain(member, call, seat.op);
      if (!traffic) return traffic.error();
      seat.traffic = std::move(*traffic);
      return {};
    }));
    return takeDown(call);
  };
  Status status = steps();
  if (!status.ok()) return tl::unexpected(std::move(status));
  Traffic total = seats_[0].traffic;
  for (size_t i = 1; i < seats_.size(); ++i) total.bytes += seats_[i].traffic.bytes;
  std::vector<uint64_t> bytes = {total.bytes};
  if (status = agreeOnSum(team_, bytes); !status.ok()) return tl::unexpected(std::move(status));
  total.bytes = bytes[0];
  return total;
}

}  // namespace tutti::bench
