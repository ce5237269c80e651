// The words of a failed execution: which step, and why. Runs at most once a case, so it records programs again for their text.
#include <algorithm>
#include <limits>

#include "core/format.h"
#include "exec/prove/execute.h"
#include "exec/record/describe.h"

namespace tutti::exec::prove {
namespace {

using algo::Kind;

constexpr uint32_t kCaller = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxWaitsShown = 6;

}  // namespace

Where Execution::whereAt(int32_t lane, uint32_t tick) const {
  uint32_t index = tick - 1;
  for (int32_t op = 0; op < case_.operations; ++op) {
    const uint32_t steps = network_->program(op).stepsOf(lane);
    const uint32_t all = steps * static_cast<uint32_t>(slices_);
    if (index < all) return {lane, op, static_cast<int32_t>(index / steps), index % steps};
    index -= all;
    if (lane % network_->lanesPerRank() != 0) continue;
    if (index == 0) return {lane, op, 0, kCaller};
    --index;
  }
  return {lane, case_.operations, 0, kCaller};
}

std::string Execution::describe(const Where& where) const {
  const int32_t rank = network_->rankOf(where.lane);
  const int32_t lane = where.lane % network_->lanesPerRank();
  if (where.step == kCaller) return format("the caller of rank {} after operation {}", rank, where.operation);
  const std::string operation = case_.operations > 1 ? format("operation {} ", where.operation) : std::string();
  std::string text = format("rank {} lane {} {}slice {} step {}", rank, lane, operation, where.slice, where.step);
  const Program& program = network_->program(where.operation);
  if (where.step < program.stepsOf(where.lane)) {
    const record::Program recorded = program.subject->record(program.views[static_cast<size_t>(rank)]);
    text += format(" ({})", record::describe(recorded.lanes[static_cast<size_t>(lane)][where.step]));
  }
  return text;
}

std::string Execution::spotName(size_t spot) const {
  const size_t buffers = static_cast<size_t>(network_->places()) * slices_;
  if (spot < buffers) return format("{} slice {}", network_->placeName(static_cast<int32_t>(spot / slices_)), spot % slices_);
  const size_t banks = static_cast<size_t>(case_.banks);
  const size_t cell = (spot - buffers) / banks;
  const size_t ranks = static_cast<size_t>(case_.ranks);
  return format("rank {}'s cell in the window of rank {}, bank {}", cell % ranks, cell / ranks, (spot - buffers) % banks);
}

std::string Execution::describe(const Value& value) const {
  switch (value.kind) {
    case ValueKind::None: return "nothing";
    case ValueKind::Raw: return format("in[{}] of rank {}", value.chunk, value.expr);
    case ValueKind::Partial: return format("the unfinished sum {} of chunk {}", network_->expressions().text(value.expr), value.chunk);
    case ValueKind::Final: return format("the finished sum {} of chunk {}", network_->expressions().text(value.expr), value.chunk);
  }
  return "?";
}

std::string Execution::difference(const Value& got, const Value& expected) const {
  if (got.kind != expected.kind || got.chunk != expected.chunk || got.kind == ValueKind::Raw)
    return format("{} instead of {}", describe(got), describe(expected));
  const std::vector<uint64_t> has = network_->expressions().contributions(got.expr);
  for (size_t rank = 0; rank < has.size(); ++rank)
    if (has[rank] > 1) return format("rank {}'s contribution appears {} times", rank, has[rank]);
  for (size_t rank = 0; rank < has.size(); ++rank)
    if (has[rank] == 0) return format("rank {}'s contribution is missing", rank);
  return format("reduced in the order {} instead of the stated {}", network_->expressions().text(got.expr),
                network_->expressions().text(expected.expr));
}

std::string Execution::missingOutput(int32_t rank, int32_t operation) const {
  const Program& program = network_->program(operation);
  const Collective collective = program.subject->traits.collective;
  const int32_t root = program.views[static_cast<size_t>(rank)].root.value;
  const int32_t outputs = outputChunks(collective, rank, root, program.chunks);
  for (int32_t chunk = 0; chunk < outputs; ++chunk) {
    const int32_t alias = case_.inPlace ? inPlaceChunk(collective, rank, root, chunk) : -1;
    const int32_t place = alias >= 0 ? program.place(rank, false, alias) : program.place(rank, true, chunk);
    for (int32_t slice = 0; slice < case_.slices; ++slice) {
      if (spots_[spotOf(place, slice)].value.kind != ValueKind::None) continue;
      const int32_t lanes = network_->lanesPerRank();
      const std::string which = lanes == 1 ? " 0" : format("s 0 to {}", lanes - 1);
      return format("rank {} lane{} slice {}: no step stores out[{}]", rank, which, slice, chunk);
    }
  }
  return {};
}

/// What the lane waits for, in words; `waitsFor` is the lane that would end the wait, -1 when there is none.
std::string Execution::explainWait(int32_t lane, int32_t& waitsFor) const {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  const int32_t lanesPerRank = network_->lanesPerRank();
  const auto laneName = [&](int32_t l) { return format("rank {} lane {}", l / lanesPerRank, l % lanesPerRank); };
  waitsFor = -1;
  if (state.isAtEnd) {
    const int32_t first = lane - lane % lanesPerRank;
    for (int32_t l = first; l < first + lanesPerRank; ++l)
      if (!lanes_[static_cast<size_t>(l)].isAtEnd) waitsFor = l;
    return format("{} has ended operation {}", laneName(lane), state.operation);
  }
  const FlatStep& step = network_->program(state.operation).step(lane, state.step);
  const std::string at = describe(here(lane));
  const auto missing = [&](const char* what, int32_t other) {
    waitsFor = other;
    return format("{} waits for {} {}", at, what, other < 0 ? std::string("that no lane ever gives") : "of " + laneName(other));
  };
  if (step.kind == Kind::Await) return missing("the arrival", network_->signals()[static_cast<size_t>(step.from[0])].giver);
  if (step.kind == Kind::Take) return missing("the hand-over", network_->signals()[static_cast<size_t>(step.from[0])].giver);
  for (int32_t i = 0; i < step.numFrom; ++i) {
    const PipeState& pipe = pipes_[static_cast<size_t>(step.from[i])];
    if (pipe.head == pipe.tail) return missing("a message", network_->pipes()[static_cast<size_t>(step.from[i])].writer);
  }
  for (int32_t i = 0; i < step.numTo; ++i) {
    const PipeState& counts = pipes_[static_cast<size_t>(step.to[i])];
    const Pipe& pipe = network_->pipes()[static_cast<size_t>(step.to[i])];
    if (counts.tail - counts.head < slots_) continue;
    waitsFor = pipe.reader;
    return format("{} waits for a free slot to {} (the pipe holds {} message{} that {} has not received)", at, pipe.to, slots_,
                  slots_ == 1 ? "" : "s", pipe.reader < 0 ? "no lane" : laneName(pipe.reader));
  }
  return format("{} waits for nothing", at);
}

/// The lanes have stopped before their end: follows who waits for whom to a cycle, or to a lane that will never answer.
void Execution::explainStop() {
  size_t waiting = 0;
  int32_t lane = -1;
  for (int32_t l = static_cast<int32_t>(lanes_.size()) - 1; l >= 0; --l) {
    if (lanes_[static_cast<size_t>(l)].isAtEnd) continue;
    ++waiting;
    lane = l;
  }
  if (lane < 0) {
    explainLeftovers();
    return;
  }
  std::vector<int32_t> chain;
  std::vector<std::string> words;
  while (lane >= 0 && std::find(chain.begin(), chain.end(), lane) == chain.end()) {
    int32_t next = -1;
    words.push_back(explainWait(lane, next));
    chain.push_back(lane);
    lane = next;
  }
  const bool isCycle = lane >= 0;
  const size_t begin = isCycle ? static_cast<size_t>(std::find(chain.begin(), chain.end(), lane) - chain.begin()) : 0;
  const std::string cycle = isCycle ? format(", {} of them in a cycle", chain.size() - begin) : std::string();
  failure_ = format("deadlock, {} of {} lanes wait{}: ", waiting, lanes_.size(), cycle);
  for (size_t i = begin; i < words.size(); ++i) {
    if (i - begin == kMaxWaitsShown && words.size() - i > 1) {
      failure_ += format("; … {} more; {}", words.size() - i - 1, words.back());
      break;
    }
    failure_ += (i > begin ? "; " : "") + words[i];
  }
}

/// Messages and signals that nobody took.
bool Execution::explainLeftovers() {
  for (size_t p = 0; p < pipes_.size(); ++p) {
    if (pipes_[p].head == pipes_[p].tail) continue;
    const Pipe& pipe = network_->pipes()[p];
    const Message& m = messageOf(static_cast<int32_t>(p), pipes_[p].head);
    failure_ = format("{}: its message to rank {} is never received", describe(whereAt(pipe.writer, m.tick)), pipe.to);
    return true;
  }
  for (size_t s = 0; s < signals_.size(); ++s) {
    if (signals_[s] == 0) continue;
    const int32_t giver = network_->signals()[s].giver;
    for (int32_t op = case_.operations - 1; op >= 0; --op) {
      const Program& program = network_->program(op);
      for (uint32_t i = program.stepsOf(giver); i > 0; --i) {
        const FlatStep& step = program.step(giver, i - 1);
        if ((step.kind != Kind::Arrive && step.kind != Kind::Give) || step.to[0] != static_cast<int32_t>(s)) continue;
        failure_ = format("{}: {} of its signals {} never taken", describe(Where{giver, op, case_.slices - 1, i - 1}), signals_[s],
                          signals_[s] == 1 ? "is" : "are");
        return true;
      }
    }
  }
  return false;
}

}  // namespace tutti::exec::prove
