#include "peers/compare.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/percentile.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchSeconds = 0.003;  // short, so that a busy moment spoils few
constexpr double kMostCalls = 2000;
constexpr uint64_t kLongWrite = uint64_t{64} << 10;  // from here on a rank that has less to write waits for the others outside the time
constexpr uint64_t kPhaseStep = 4099;  // prime, about half a period of the patterns

Buffer makeBuffer(BufferKind kind, uint64_t bytes) {
  Result<Buffer> buffer = Buffer::make(kind, bytes);
  if (!buffer) stop(buffer.error().text());
  return *std::move(buffer);
}

Timing timingOf(std::vector<double> seconds, uint64_t calls) {
  std::sort(seconds.begin(), seconds.end());
  return {percentile(seconds, 50) * 1e6, percentile(seconds, 99) * 1e6, seconds.size(), calls};
}

}  // namespace

Comparison::Comparison(Tutti& tutti, Library& peer, BufferKind buffers, uint64_t bytes)
    : tutti_(tutti), libraries_{&tutti, &peer}, memory_{makeBuffer(buffers, bytes), makeBuffer(buffers, bytes)} {}

Round Comparison::nextRound() {
  const uint64_t number = rounds_++;
  return {&patterns_[number % patterns_.size()], number * kPhaseStep};
}

void Comparison::make(Library& library, const Call& call) const {
  const auto* const in = reinterpret_cast<const float*>(placement_.send);
  auto* const out = reinterpret_cast<float*>(placement_.receive);
  switch (call.operation->op) {
    case Op::AllReduce: return library.allReduce(in, out, call.count);
    case Op::AllGather: return library.allGather(in, out, call.count);
    case Op::ReduceScatter: return library.reduceScatter(in, out, call.count);
    case Op::AllToAll: return library.allToAll(in, out, call.count);
    case Op::Broadcast: return library.broadcast(out, call.count, call.root);
    case Op::SendRecv: {
      const int rank = tutti_.rank();
      return library.sendReceive(in, (rank + 1) % call.ranks, out, (rank + call.ranks - 1) % call.ranks, call.count);
    }
    default: stop(describe(call) + " is not compared");
  }
}

double Comparison::runBatch(Library& library, const Call& call, uint64_t calls) {
  // The peer's barrier may put ranks to sleep; after the second one, all are awake.
  libraries_[1]->barrier();
  tutti_.barrier();
  double seconds = 0;
  for (uint64_t i = 0; i < calls; ++i) {
    writeInputs(call, tutti_.rank(), placement_, nextRound());
    if (call.bytes() >= kLongWrite) tutti_.barrier();
    const auto start = Clock::now();
    make(library, call);
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }
  return seconds;
}

uint64_t Comparison::countCalls(Library& library, const Call& call) {
  double calls = 1;
  // Twice: the first calls are slower than those that follow.
  for (int i = 0; i < 2; ++i) {
    std::vector<double> seconds = {runBatch(library, call, static_cast<uint64_t>(calls)) / calls};
    tutti_.agreeOnMax(seconds);
    calls = std::clamp(std::floor(kBatchSeconds / std::max(seconds[0], 1e-9)), 1.0, i == 0 ? kMostCalls / 10 : kMostCalls);
  }
  return static_cast<uint64_t>(calls);
}

void Comparison::checkOnce(Library& library, const Call& call, Measurement& measurement) {
  const Round round = nextRound();
  prepare(call, tutti_.rank(), placement_, memory_, round);
  tutti_.barrier();
  make(library, call);
  const Verdict verdict = judge(call, tutti_.rank(), placement_, memory_, round);
  if (measurement.firstWrong.empty()) measurement.firstWrong = verdict.first;
  std::vector<double> wrong = {static_cast<double>(verdict.wrong)};
  tutti_.agreeOnSum(wrong);
  measurement.wrong += static_cast<uint64_t>(wrong[0]);
}

std::array<Measurement, 2> Comparison::measure(const Call& call, int rounds) {
  placement_ = place(call, tutti_.rank(), memory_);
  patterns_.clear();
  for (uint64_t number = 0; number < kPeriods.size(); ++number) patterns_.emplace_back(call.type, call.redOp, call.ranks, number);

  std::array<Measurement, 2> measured;
  std::array<uint64_t, 2> calls{};
  std::array<std::vector<double>, 2> seconds;
  for (size_t i = 0; i < 2; ++i) {
    checkOnce(*libraries_[i], call, measured[i]);
    calls[i] = countCalls(*libraries_[i], call);
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < 2; ++turn) {
      const size_t i = (turn + static_cast<size_t>(round)) % 2;
      seconds[i].push_back(runBatch(*libraries_[i], call, calls[i]) / static_cast<double>(calls[i]));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    tutti_.agreeOnMax(seconds[i]);
    measured[i].timing = timingOf(seconds[i], calls[i]);
    checkOnce(*libraries_[i], call, measured[i]);
  }
  return measured;
}

}  // namespace tutti::bench
