#include <string>

#include "core/format.h"
#include "exec/prove/execute.h"

namespace tutti::exec::prove {

bool Execution::fail(int32_t lane, std::string_view text) {
  failure_ = format("{}: {}", describe(here(lane)), text);
  return false;
}

/// `orderedAfter`: a lane whose earlier writes the message that leads to this read already follows.
void Execution::noteRead(int32_t lane, Spot& spot, int32_t orderedAfter) {
  if (spot.writer >= 0 && spot.writer != lane && spot.writer != orderedAfter) spot.isShared = true;
  spot.reader = spot.reader == -1 || spot.reader == lane ? lane : kManyReaders;
}

void Execution::noteWrite(int32_t lane, Spot& spot) {
  if ((spot.writer >= 0 && spot.writer != lane) || (spot.reader != -1 && spot.reader != lane)) spot.isShared = true;
  spot.writer = lane;
  spot.writerTick = lanes_[static_cast<size_t>(lane)].tick;
  ++spot.version;
}

bool Execution::readMessage(int32_t lane, const FlatStep& step, int32_t pipe, Value& value) {
  const Message& m = messageOf(pipe, pipes_[static_cast<size_t>(pipe)].head);
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  const int32_t sender = network_->pipes()[static_cast<size_t>(pipe)].writer;
  const auto sentBy = [&] { return describe(whereAt(sender, m.tick)); };
  if (m.operation != state.operation || m.slice != state.slice)
    return fail(lane, format("receives slice {} of operation {}, sent by {}", m.slice, m.operation, sentBy()));
  if (m.sizeClass != sizeClassOf(state.operation, step.sizeChunk()))
    return fail(lane, format("receives {}, whose size is not that of chunk {}, sent by {}", describe(m.value), step.sizeChunk(), sentBy()));
  for (int i = 0; i < 2 && m.spot[i] >= 0; ++i) {
    Spot& spot = spots_[static_cast<size_t>(m.spot[i])];
    if (spot.version != m.version[i])
      return fail(lane, format("reads {} by reference, which {} has overwritten since it was sent by {}",
                               spotName(static_cast<size_t>(m.spot[i])), describe(whereAt(spot.writer, spot.writerTick)), sentBy()));
    noteRead(lane, spot, sender);
  }
  value = m.value;
  return true;
}

/// What a pipe step makes of its source and what it received.
bool Execution::combine(int32_t lane, const FlatStep& step, const Value* received, Value& result) {
  Value own;
  if (step.src >= 0 && !load(lane, step, own)) return false;
  if (!step.reduce) {
    if (step.numFrom > 1 || (step.numFrom == 1 && step.src >= 0)) return fail(lane, "moves more than one value");
    result = step.numFrom == 1 ? received[0] : own;
    return true;
  }
  operands_.clear();
  result = {0, -1, ValueKind::Partial};
  if (step.src >= 0) {
    if (own.kind != ValueKind::Raw) return fail(lane, format("contributes {}, which is not its input", describe(own)));
    operands_.push_back(own.expr);
    result.chunk = own.chunk;
  }
  for (int32_t i = 0; i < step.numFrom; ++i) {
    const Value& v = received[i];
    if (v.kind == ValueKind::Final) return fail(lane, format("reduces {} again", describe(v)));
    if (v.kind != ValueKind::Partial) return fail(lane, format("reduces {}, which was moved and not contributed", describe(v)));
    if (!operands_.empty() && v.chunk != result.chunk)
      return fail(lane, format("combines chunk {} with chunk {}, received from rank {}", result.chunk, v.chunk,
                               network_->pipes()[static_cast<size_t>(step.from[i])].from));
    operands_.push_back(v.expr);
    result.chunk = v.chunk;
  }
  if (operands_.empty()) return fail(lane, "reduces nothing");
  result.expr = network_->expressions().sum(operands_.data(), static_cast<int32_t>(operands_.size()));
  if (step.dst >= 0) result.kind = ValueKind::Final;
  return true;
}

bool Execution::load(int32_t lane, const FlatStep& step, Value& value) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  Spot& spot = spots_[spotOf(step.src, state.slice)];
  noteRead(lane, spot, -1);
  const bool isUntouched = spot.value.kind == ValueKind::None;
  if (step.srcIsInput) {
    if (!isUntouched)
      return fail(lane, format("reads in[{}], over which {} has stored the output", step.srcChunk,
                               describe(whereAt(spot.writer, spot.writerTick))));
    value = {static_cast<Expr>(network_->rankOf(lane)), step.srcChunk, ValueKind::Raw};
    return true;
  }
  if (isUntouched) return fail(lane, format("reads out[{}], where nothing has been stored", step.srcChunk));
  value = spot.value;
  return true;
}

/// Every store to the output must be the right value, the first time and only once.
bool Execution::storeOutput(int32_t lane, const FlatStep& step, Value value) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  const Program& program = network_->program(state.operation);
  const int32_t rank = network_->rankOf(lane);
  const int32_t root = program.views[static_cast<size_t>(rank)].root.value;
  if (step.src >= 0 && sizeClassOf(state.operation, step.srcChunk) != sizeClassOf(state.operation, step.dstChunk))
    return fail(lane, "source and destination are not of the same size");
  const Value expected = expectedValue(program.subject->traits.collective, rank, root, step.dstChunk, program.orders);
  if (value != expected) return fail(lane, format("stores to out[{}]: {}", step.dstChunk, difference(value, expected)));
  Spot& spot = spots_[spotOf(step.dst, state.slice)];
  const bool isPlaced = step.kind == algo::Kind::Load && places(state.operation) && spot.value == value;
  if (spot.value.kind != ValueKind::None && !isPlaced)
    return fail(lane, format("stores to out[{}] again, after {}", step.dstChunk, describe(whereAt(spot.writer, spot.writerTick))));
  const uint32_t version = spot.version;
  noteWrite(lane, spot);
  if (step.changesNothing()) spot.version = version;
  spot.value = value;
  return true;
}

bool Execution::storeCell(int32_t lane, const FlatStep& step) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  Value own;
  if (!load(lane, step, own)) return false;
  if (step.reduce && own.kind != ValueKind::Raw) return fail(lane, format("contributes {}, which is not its input", describe(own)));
  Spot& cell = spots_[cellOf(step.to[0], network_->rankOf(lane), state.operation, state.slice, step.round)];
  noteWrite(lane, cell);
  cell.value = own;
  if (step.reduce) cell.value.kind = ValueKind::Partial;
  cell.operation = state.operation;
  cell.slice = state.slice;
  cell.round = step.round;
  cell.sizeClass = sizeClassOf(state.operation, step.srcChunk);
  cell.lent = -1;
  if (network_->program(state.operation).subject->traits.lends) {
    const size_t lent = spotOf(step.src, state.slice);
    cell.lent = static_cast<int64_t>(lent);
    cell.lentVersion = spots_[lent].version;
    ++referencesOut_[static_cast<size_t>(network_->rankOf(lane))];
  }
  ++messages_;
  return true;
}

/// What `writer` has stored for this rank in this round, if it has; reading ends a loan.
Spot* Execution::readCell(int32_t lane, const FlatStep& step, int32_t writer) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  const size_t at = cellOf(network_->rankOf(lane), writer, state.operation, state.slice, step.round);
  Spot& cell = spots_[at];
  const auto storedBy = [&] { return describe(whereAt(cell.writer, cell.writerTick)); };
  if (cell.operation < 0) return fail(lane, format("reads {}, where nothing has been stored", spotName(at))), nullptr;
  if (cell.operation != state.operation || cell.slice != state.slice || cell.round != step.round) {
    fail(lane, format("reads {}, which holds round {} of slice {} of operation {}, stored by {}", spotName(at), cell.round, cell.slice,
                      cell.operation, storedBy()));
    return nullptr;
  }
  if (cell.sizeClass != sizeClassOf(state.operation, step.dstChunk)) {
    fail(lane, format("reads {}, whose size is not that of chunk {}, stored by {}", spotName(at), step.dstChunk, storedBy()));
    return nullptr;
  }
  noteRead(lane, cell, -1);
  if (cell.lent >= 0) {
    Spot& lent = spots_[static_cast<size_t>(cell.lent)];
    if (lent.version != cell.lentVersion) {
      fail(lane, format("reads {} in place, which {} has overwritten since {} lent it", spotName(static_cast<size_t>(cell.lent)),
                        describe(whereAt(lent.writer, lent.writerTick)), storedBy()));
      return nullptr;
    }
    noteRead(lane, lent, -1);
  }
  return &cell;
}

bool Execution::loadCell(int32_t lane, const FlatStep& step) {
  const Spot* cell = readCell(lane, step, step.from[0]);
  if (cell == nullptr) return false;
  if (cell->value.kind == ValueKind::Partial) return fail(lane, format("moves {} as if it were finished", describe(cell->value)));
  if (!storeOutput(lane, step, cell->value)) return false;
  if (cell->lent >= 0) endReference(step.from[0]);
  return true;
}

bool Execution::reduceCells(int32_t lane, const FlatStep& step) {
  operands_.clear();
  Value result{0, -1, ValueKind::Final};
  for (int32_t writer = 0; writer < case_.ranks; ++writer) {
    const Spot* cell = readCell(lane, step, writer);
    if (cell == nullptr) return false;
    if (cell->value.kind != ValueKind::Partial)
      return fail(lane, format("reduces {} of rank {}, which was moved and not contributed", describe(cell->value), writer));
    if (writer > 0 && cell->value.chunk != result.chunk)
      return fail(lane, format("combines chunk {} with chunk {} of rank {}", result.chunk, cell->value.chunk, writer));
    operands_.push_back(cell->value.expr);
    result.chunk = cell->value.chunk;
  }
  result.expr = network_->expressions().sum(operands_.data(), static_cast<int32_t>(operands_.size()));
  if (!storeOutput(lane, step, result) || !placeResult(lane, step, result)) return false;
  if (network_->program(lanes_[static_cast<size_t>(lane)].operation).subject->traits.lends)
    for (int32_t writer = 0; writer < case_.ranks; ++writer) endReference(writer);
  return true;
}

/// To the other ranks' outputs, if it is written there at once.
bool Execution::placeResult(int32_t lane, const FlatStep& step, const Value& result) {
  const LaneState& state = lanes_[static_cast<size_t>(lane)];
  if (!places(state.operation)) return true;
  const Program& program = network_->program(state.operation);
  for (int32_t rank = 0; rank < case_.ranks; ++rank) {
    if (rank == network_->rankOf(lane)) continue;
    const int32_t root = program.views[static_cast<size_t>(rank)].root.value;
    const Value expected = expectedValue(program.subject->traits.collective, rank, root, step.dstChunk, program.orders);
    if (result != expected) return fail(lane, format("places in rank {}'s out[{}]: {}", rank, step.dstChunk, difference(result, expected)));
    Spot& spot = spots_[spotOf(network_->outputPlace(program, rank, step.dstChunk), state.slice)];
    if (spot.value.kind != ValueKind::None)
      return fail(lane, format("places in rank {}'s out[{}], where {} has stored", rank, step.dstChunk,
                               describe(whereAt(spot.writer, spot.writerTick))));
    noteWrite(lane, spot);
    spot.value = result;
  }
  return true;
}

}  // namespace tutti::exec::prove
