#include "exec/prove/execute.h"

#include <algorithm>

namespace tutti::exec::prove {

using algo::Kind;

bool Execution::run(Network& network, const Case& c, const std::vector<std::vector<uint32_t>>& classes) {
  network_ = &network;
  case_ = c;
  classes_ = &classes;
  prepare();
  for (int32_t lane = network.lanes() - 1; lane >= 0; --lane) wake(lane);
  while (!queue_.empty()) {
    const int32_t lane = queue_.back();
    queue_.pop_back();
    lanes_[static_cast<size_t>(lane)].isQueued = false;
    while (advance(lane)) {
    }
    if (!failure_.empty()) return false;
  }
  if (!isFinished()) {
    explainStop();
    return false;
  }
  if (explainLeftovers()) return false;
  for (int32_t rank = 0; rank < network.ranks() && failure_.empty(); ++rank) failure_ = missingOutput(rank, c.operations - 1);
  return failure_.empty();
}

void Execution::prepare() {
  const Network& net = *network_;
  slices_ = static_cast<size_t>(case_.slices);
  slots_ = static_cast<size_t>(case_.slots);
  const auto ranks = static_cast<size_t>(net.ranks());
  pipes_.assign(net.pipes().size(), {});
  messagesInFlight_.assign(net.pipes().size() * slots_, {});
  signals_.assign(net.signals().size(), 0);
  lanes_.assign(static_cast<size_t>(net.lanes()), {});
  lanesAtEnd_.assign(ranks, 0);
  referencesOut_.assign(ranks, 0);
  queue_.clear();
  log_.clear();
  failure_.clear();
  messages_ = 0;
  slotsUsed_ = 0;
  epochBase_.clear();
  int32_t epoch = 0;
  for (int32_t op = 0; op < case_.operations; ++op) {
    epochBase_.push_back(epoch);
    const algo::Traits& traits = net.program(op).subject->traits;
    if (traits.needs == algo::Needs::PeerMemory) epoch += case_.slices * traits.rounds;
  }
  const size_t cells = epoch > 0 ? ranks * ranks * static_cast<size_t>(case_.banks) : 0;
  firstCell_ = static_cast<size_t>(net.places()) * slices_;
  spots_.assign(firstCell_ + cells, {});
}

size_t Execution::cellOf(int32_t window, int32_t writer, int32_t operation, int32_t slice, int32_t round) const {
  const int32_t rounds = network_->program(operation).subject->traits.rounds;
  const int32_t bank = (epochBase_[static_cast<size_t>(operation)] + slice * rounds + round) % case_.banks;
  const auto cell = (static_cast<size_t>(window) * static_cast<size_t>(case_.ranks) + static_cast<size_t>(writer));
  return firstCell_ + cell * static_cast<size_t>(case_.banks) + static_cast<size_t>(bank);
}

void Execution::wake(int32_t lane) {
  if (lane < 0 || lanes_[static_cast<size_t>(lane)].isQueued) return;
  lanes_[static_cast<size_t>(lane)].isQueued = true;
  queue_.push_back(lane);
}

bool Execution::isFinished() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const LaneState& l) { return l.isAtEnd && l.operation + 1 == case_.operations; });
}

Where Execution::here(int32_t lane) const {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  return {lane, state.operation, state.slice, state.step};
}

/// One step, or the move to the next slice. False: the lane waits, has ended, or failed.
bool Execution::advance(int32_t lane) {
  LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (state.isAtEnd || !failure_.empty()) return false;
  const Program& program = network_->program(state.operation);
  const uint32_t steps = program.stepsOf(lane);
  if (state.step == steps) {
    state.step = 0;
    if (steps == 0 || ++state.slice == case_.slices) {
      endLane(lane);
      return false;
    }
  }
  const FlatStep& step = program.step(lane, state.step);
  if (!isReady(step)) return false;
  ++state.tick;
  log_.push_back(static_cast<uint32_t>(lane));
  if (!perform(lane, step)) return false;
  ++state.step;
  return true;
}

bool Execution::isReady(const FlatStep& step) const {
  switch (step.kind) {
    case Kind::Await:
    case Kind::Take: return signals_[static_cast<size_t>(step.from[0])] > 0;
    case Kind::Pipe: break;
    default: return true;
  }
  for (int32_t i = 0; i < step.numFrom; ++i) {
    const PipeState& pipe = pipes_[static_cast<size_t>(step.from[i])];
    if (pipe.head == pipe.tail) return false;
  }
  for (int32_t i = 0; i < step.numTo; ++i) {
    const PipeState& pipe = pipes_[static_cast<size_t>(step.to[i])];
    if (pipe.tail - pipe.head >= slots_) return false;
  }
  return true;
}

void Execution::endLane(int32_t lane) {
  const auto rank = static_cast<size_t>(network_->rankOf(lane));
  lanes_[static_cast<size_t>(lane)].isAtEnd = true;
  ++lanesAtEnd_[rank];
  endOperation(static_cast<int32_t>(rank));
}

/// Lets the rank go on to its next operation, once all its lanes and all readers of its buffers are done with this one.
void Execution::endOperation(int32_t rank) {
  const int32_t lanesPerRank = network_->lanesPerRank();
  if (lanesAtEnd_[static_cast<size_t>(rank)] < lanesPerRank || referencesOut_[static_cast<size_t>(rank)] > 0) return;
  const int32_t first = rank * lanesPerRank;
  const int32_t operation = lanes_[static_cast<size_t>(first)].operation;
  if (operation + 1 == case_.operations || !failure_.empty()) return;
  failure_ = missingOutput(rank, operation);
  lanesAtEnd_[static_cast<size_t>(rank)] = 0;
  log_.push_back(static_cast<uint32_t>(rank) | kEndOfOperation);
  for (int32_t lane = first; lane < first + lanesPerRank; ++lane) {
    LaneState& state = lanes_[static_cast<size_t>(lane)];
    state = {operation + 1, 0, 0, state.tick, state.isQueued, false};
    wake(lane);
  }
  // The caller takes the result and puts in new data: a write to everything, under the clock of the rank's first lane.
  LaneState& owner = lanes_[static_cast<size_t>(first)];
  ++owner.tick;
  const Program& program = network_->program(operation);
  const size_t begin = spotOf(program.place(rank, false, 0), 0);
  const size_t end = spotOf(program.place(rank, false, 0) + 2 * program.chunks, 0);
  for (size_t s = begin; s < end; ++s) {
    noteWrite(first, spots_[s]);
    spots_[s].value = {};
  }
}

bool Execution::perform(int32_t lane, const FlatStep& step) {
  switch (step.kind) {
    case Kind::Pipe: return performPipe(lane, step);
    case Kind::Store: return storeCell(lane, step);
    case Kind::LoadReduce: return reduceCells(lane, step);
    case Kind::Load: return loadCell(lane, step);
    case Kind::Arrive:
    case Kind::Give: {
      const auto signal = static_cast<size_t>(step.to[0]);
      ++signals_[signal];
      wake(network_->signals()[signal].taker);
      return true;
    }
    case Kind::Await:
    case Kind::Take: --signals_[static_cast<size_t>(step.from[0])]; return true;
  }
  return true;
}

bool Execution::performPipe(int32_t lane, const FlatStep& step) {
  received_.resize(static_cast<size_t>(step.numFrom));
  for (int32_t i = 0; i < step.numFrom; ++i)
    if (!readMessage(lane, step, step.from[i], received_[static_cast<size_t>(i)])) return false;
  Value value;
  if (!combine(lane, step, received_.data(), value)) return false;

  for (int32_t i = 0; i < step.numFrom; ++i) {
    const Pipe& pipe = network_->pipes()[static_cast<size_t>(step.from[i])];
    PipeState& state = pipes_[static_cast<size_t>(step.from[i])];
    const bool byReference = messageOf(step.from[i], state.head).spot[0] >= 0;
    ++state.head;
    wake(pipe.writer);
    if (byReference) endReference(pipe.from);
  }
  if (step.dst >= 0 && !storeOutput(lane, step, value)) return false;
  push(lane, step, value);
  return true;
}

/// One reader less of what the rank lets others read.
void Execution::endReference(int32_t rank) {
  if (--referencesOut_[static_cast<size_t>(rank)] == 0) endOperation(rank);
}

void Execution::push(int32_t lane, const FlatStep& step, const Value& value) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  for (int32_t i = 0; i < step.numTo; ++i) {
    PipeState& pipe = pipes_[static_cast<size_t>(step.to[i])];
    Message& m = messageOf(step.to[i], pipe.tail);
    m = {};
    m.value = value;
    m.operation = state.operation;
    m.slice = state.slice;
    m.tick = state.tick;
    m.sizeClass = sizeClassOf(state.operation, step.sizeChunk());
    if (step.sendsReference) {
      // From the destination where there is one; what is only moved is read from its source, by some executors.
      int32_t n = 0;
      for (const int32_t place : {step.dst, step.numFrom == 0 ? step.src : -1}) {
        if (place < 0) continue;
        m.spot[n] = static_cast<int64_t>(spotOf(place, state.slice));
        m.version[n] = spots_[static_cast<size_t>(m.spot[n])].version;
        ++n;
      }
      ++referencesOut_[static_cast<size_t>(network_->rankOf(lane))];
    }
    ++pipe.tail;
    ++messages_;
    slotsUsed_ = std::max(slotsUsed_, static_cast<int32_t>(pipe.tail - pipe.head));
    wake(network_->pipes()[static_cast<size_t>(step.to[i])].reader);
  }
}

}  // namespace tutti::exec::prove
