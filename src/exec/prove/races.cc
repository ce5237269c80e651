#include "exec/prove/races.h"

#include <algorithm>

#include "core/format.h"

namespace tutti::exec::prove {

using algo::Kind;

bool Races::check(const Network& network, const Case& c, const Execution& execution) {
  network_ = &network;
  execution_ = &execution;
  case_ = c;
  slots_ = static_cast<size_t>(c.slots);
  failure_.clear();
  shared_.clear();
  const std::vector<Spot>& spots = execution.spots();
  sharedOf_.assign(spots.size(), kNone);
  for (size_t s = 0; s < spots.size(); ++s) {
    if (!spots[s].isShared) continue;
    sharedOf_[s] = static_cast<int32_t>(shared_.size());
    shared_.push_back({s, kNone, 0, kNone});
  }
  numShared_ = shared_.size();
  if (shared_.empty()) return true;

  involved_.assign(static_cast<size_t>(network.lanes()), 0);
  columns_.clear();
  prepare(true);
  replay();
  std::vector<int32_t> all;
  for (int32_t lane = 0; lane < network.lanes(); ++lane)
    if (involved_[static_cast<size_t>(lane)] != 0) all.push_back(lane);
  for (size_t begin = 0; begin < all.size(); begin += kBlock) {
    const size_t end = std::min(all.size(), begin + kBlock);
    columns_.assign(all.begin() + static_cast<ptrdiff_t>(begin), all.begin() + static_cast<ptrdiff_t>(end));
    prepare(false);
    if (!replay()) return false;
  }
  return true;
}

void Races::prepare(bool marking) {
  marking_ = marking;
  width_ = columns_.size();
  const auto lanes = static_cast<size_t>(network_->lanes());
  lanes_.assign(lanes, {});
  for (size_t i = 0; i < width_; ++i) lanes_[static_cast<size_t>(columns_[i])].column = static_cast<int32_t>(i);
  clocks_.assign(lanes * width_, 0);
  for (SharedPlace& place : shared_) place = {place.spot, kNone, 0, kNone};
  reads_.clear();
  freeReads_ = kNone;
  const size_t pipes = network_->pipes().size();
  heads_.assign(pipes, 0);
  tails_.assign(pipes, 0);
  messages_.assign(pipes * slots_, {});
  freed_.assign(pipes * slots_, {});
  given_.resize(network_->signals().size());
  for (auto& queue : given_) queue.clear();
  taken_.assign(network_->signals().size(), 0);
  drained_.assign(static_cast<size_t>(network_->ranks()) * width_, 0);
  lent_.assign(execution_->numCells(), -1);
  snapshots_.clear();
  uses_.clear();
  freeSnapshots_.clear();
}

bool Races::replay() {
  for (const uint32_t entry : execution_->log()) {
    if ((entry & kEndOfOperation) != 0) {
      replayEnd(static_cast<int32_t>(entry & ~kEndOfOperation));
    } else if (!replayStep(static_cast<int32_t>(entry))) {
      return false;
    }
    if (!failure_.empty()) return false;
  }
  return true;
}

bool Races::replayStep(int32_t lane) {
  Lane& state = lanes_[static_cast<size_t>(lane)];
  const Program& program = network_->program(state.operation);
  if (state.step == program.stepsOf(lane)) {
    state.step = 0;
    ++state.slice;
  }
  const FlatStep& step = program.step(lane, state.step);
  acquireStep(step, lane);
  ++state.tick;
  if (!accessStep(step, lane)) return false;
  releaseStep(step, lane);
  ++state.step;
  return true;
}

void Races::replayEnd(int32_t rank) {
  const int32_t lanesPerRank = network_->lanesPerRank();
  const int32_t first = rank * lanesPerRank;
  Lane& owner = lanes_[static_cast<size_t>(first)];
  Tick* joint = clock(first);
  const Tick* drained = drained_.data() + static_cast<size_t>(rank) * width_;
  for (size_t i = 0; i < width_; ++i) joint[i] = std::max(joint[i], drained[i]);
  for (int32_t lane = first; lane < first + lanesPerRank; ++lane) {
    const Lane& state = lanes_[static_cast<size_t>(lane)];
    for (size_t i = 0; i < width_; ++i) joint[i] = std::max(joint[i], clock(lane)[i]);
    if (state.column >= 0) joint[state.column] = state.tick;
  }
  ++owner.tick;
  const Program& program = network_->program(owner.operation);
  const size_t begin = execution_->spotOf(program.place(rank, false, 0), 0);
  const size_t end = execution_->spotOf(program.place(rank, false, 0) + 2 * program.chunks, 0);
  for (size_t s = begin; s < end; ++s)
    if (!write(first, s)) return;
  if (owner.column >= 0) joint[owner.column] = owner.tick;
  for (int32_t lane = first; lane < first + lanesPerRank; ++lane) {
    Lane& state = lanes_[static_cast<size_t>(lane)];
    if (lane != first) std::copy(joint, joint + width_, clock(lane));
    Release stale{state.snapshot, lane, 0};
    drop(stale);
    state = {state.operation + 1, 0, 0, state.tick, kNone, state.column};
  }
}

void Races::acquireStep(const FlatStep& step, int32_t lane) {
  if (step.kind == Kind::Await || step.kind == Kind::Take) {
    const auto signal = static_cast<size_t>(step.from[0]);
    Release& release = given_[signal][taken_[signal]++];
    join(lane, release);
    drop(release);
  }
  if (step.kind != Kind::Pipe) return;
  for (int32_t i = 0; i < step.numFrom; ++i) {
    const auto pipe = static_cast<size_t>(step.from[i]);
    join(lane, messages_[pipe * slots_ + heads_[pipe] % slots_].release);
  }
  for (int32_t i = 0; i < step.numTo; ++i) {
    const auto pipe = static_cast<size_t>(step.to[i]);
    join(lane, freed_[pipe * slots_ + tails_[pipe] % slots_]);
  }
}

bool Races::accessStep(const FlatStep& step, int32_t lane) {
  const Lane& state = lanes_[static_cast<size_t>(lane)];
  if (step.src >= 0 && !read(lane, execution_->spotOf(step.src, state.slice))) return false;
  const int32_t rank = network_->rankOf(lane);
  if (step.kind == Kind::Pipe) {
    for (int32_t i = 0; i < step.numFrom; ++i) {
      const auto pipe = static_cast<size_t>(step.from[i]);
      for (const int64_t spot : messages_[pipe * slots_ + heads_[pipe] % slots_].spot)
        if (spot >= 0 && !read(lane, static_cast<size_t>(spot))) return false;
    }
  }
  if (step.kind == Kind::Store) {
    const size_t cell = execution_->cellOf(step.to[0], rank, state.operation, state.slice, step.round);
    if (!write(lane, cell)) return false;
    const bool lends = network_->program(state.operation).subject->traits.lends;
    lent_[static_cast<size_t>(execution_->cellNumber(cell))] = lends ? static_cast<int64_t>(execution_->spotOf(step.src, state.slice)) : -1;
  }
  if (step.kind == Kind::Load && !readCell(lane, step, step.from[0])) return false;
  if (step.kind == Kind::LoadReduce)
    for (int32_t writer = 0; writer < case_.ranks; ++writer)
      if (!readCell(lane, step, writer)) return false;
  if (step.kind == Kind::LoadReduce && execution_->places(state.operation)) {
    const Program& program = network_->program(state.operation);
    for (int32_t other = 0; other < case_.ranks; ++other) {
      const size_t placed = execution_->spotOf(network_->outputPlace(program, other, step.dstChunk), state.slice);
      if (other != rank && !write(lane, placed)) return false;
    }
  }
  return step.dst < 0 || step.changesNothing() || write(lane, execution_->spotOf(step.dst, state.slice));
}

/// The read of a cell, or of what was lent through it, which the writer waits for before its operation ends.
bool Races::readCell(int32_t lane, const FlatStep& step, int32_t writer) {
  const Lane& state = lanes_[static_cast<size_t>(lane)];
  const size_t cell = execution_->cellOf(network_->rankOf(lane), writer, state.operation, state.slice, step.round);
  if (!read(lane, cell)) return false;
  const int64_t lent = lent_[static_cast<size_t>(execution_->cellNumber(cell))];
  if (lent < 0) return true;
  if (!read(lane, static_cast<size_t>(lent))) return false;
  drain(writer, lane);
  return true;
}

/// The end of the rank's operation comes after what the lane has done so far.
void Races::drain(int32_t rank, int32_t lane) {
  Tick* drained = drained_.data() + static_cast<size_t>(rank) * width_;
  for (size_t c = 0; c < width_; ++c) drained[c] = std::max(drained[c], clock(lane)[c]);
  const Lane& state = lanes_[static_cast<size_t>(lane)];
  if (state.column >= 0) drained[state.column] = std::max(drained[state.column], state.tick);
}

void Races::releaseStep(const FlatStep& step, int32_t lane) {
  const Lane& state = lanes_[static_cast<size_t>(lane)];
  if (step.kind == Kind::Arrive || step.kind == Kind::Give) given_[static_cast<size_t>(step.to[0])].push_back(publish(lane));
  if (step.kind != Kind::Pipe) return;
  for (int32_t i = 0; i < step.numFrom; ++i) {
    const auto pipe = static_cast<size_t>(step.from[i]);
    const size_t at = pipe * slots_ + heads_[pipe]++ % slots_;
    Message& message = messages_[at];
    drop(message.release);
    drop(freed_[at]);
    freed_[at] = publish(lane);
    if (message.spot[0] >= 0) drain(network_->pipes()[pipe].from, lane);
  }
  for (int32_t i = 0; i < step.numTo; ++i) {
    const auto pipe = static_cast<size_t>(step.to[i]);
    Message& message = messages_[pipe * slots_ + tails_[pipe]++ % slots_];
    message = {publish(lane), {-1, -1}};
    if (!step.sendsReference) continue;
    int32_t n = 0;
    for (const int32_t place : {step.dst, step.numFrom == 0 ? step.src : -1})
      if (place >= 0) message.spot[n++] = static_cast<int64_t>(execution_->spotOf(place, state.slice));
  }
}

bool Races::isBefore(int32_t lane, Tick tick, int32_t later) const {
  if (lane == later) return true;
  const int32_t column = lanes_[static_cast<size_t>(lane)].column;
  return column < 0 || clock(later)[column] >= tick;  // lanes of other blocks have their own replay
}

bool Races::read(int32_t lane, size_t spot) {
  const int32_t index = sharedOf_[spot];
  if (index < 0) return true;
  if (marking_) {
    involved_[static_cast<size_t>(lane)] = 1;
    return true;
  }
  SharedPlace& place = shared_[static_cast<size_t>(index)];
  if (place.writer >= 0 && !isBefore(place.writer, place.writeTick, lane))
    return fail(lane, spot, false, place.writer, place.writeTick, true);
  const Tick tick = lanes_[static_cast<size_t>(lane)].tick;
  if (lanes_[static_cast<size_t>(lane)].column < 0) return true;
  for (int32_t r = place.reads; r >= 0; r = reads_[static_cast<size_t>(r)].next) {
    if (reads_[static_cast<size_t>(r)].lane != lane) continue;
    reads_[static_cast<size_t>(r)].tick = tick;
    return true;
  }
  int32_t at = freeReads_;
  if (at >= 0) {
    freeReads_ = reads_[static_cast<size_t>(at)].next;
  } else {
    at = static_cast<int32_t>(reads_.size());
    reads_.emplace_back();
  }
  reads_[static_cast<size_t>(at)] = {lane, tick, place.reads};
  place.reads = at;
  return true;
}

bool Races::write(int32_t lane, size_t spot) {
  const int32_t index = sharedOf_[spot];
  if (index < 0) return true;
  if (marking_) {
    involved_[static_cast<size_t>(lane)] = 1;
    return true;
  }
  SharedPlace& place = shared_[static_cast<size_t>(index)];
  if (place.writer >= 0 && !isBefore(place.writer, place.writeTick, lane))
    return fail(lane, spot, true, place.writer, place.writeTick, true);
  while (place.reads >= 0) {
    Read& r = reads_[static_cast<size_t>(place.reads)];
    if (!isBefore(r.lane, r.tick, lane)) return fail(lane, spot, true, r.lane, r.tick, false);
    const int32_t freed = place.reads;
    place.reads = r.next;
    r.next = freeReads_;
    freeReads_ = freed;
  }
  place.writer = lane;
  place.writeTick = lanes_[static_cast<size_t>(lane)].tick;
  return true;
}

bool Races::fail(int32_t lane, size_t spot, bool writes, int32_t other, Tick tick, bool otherWrites) {
  const auto at = [&](int32_t l, Tick t) { return execution_->describe(execution_->whereAt(l, t)); };
  failure_ = format("{}: {} {}, and nothing orders that after {}, which {} it", at(lane, lanes_[static_cast<size_t>(lane)].tick),
                    writes ? "writes" : "reads", execution_->spotName(spot), at(other, tick), otherWrites ? "writes" : "reads");
  return false;
}

void Races::join(int32_t lane, const Release& release) {
  if (width_ == 0 || release.lane < 0) return;
  Tick* mine = clock(lane);
  const Tick* theirs = snapshots_.data() + static_cast<size_t>(release.snapshot) * width_;
  Tick gained = 0;
  for (size_t i = 0; i < width_; ++i) {
    const Tick newer = mine[i] > theirs[i] ? mine[i] : theirs[i];
    gained |= newer ^ mine[i];
    mine[i] = newer;
  }
  const int32_t column = lanes_[static_cast<size_t>(release.lane)].column;
  if (column >= 0 && mine[column] < release.tick) {
    mine[column] = release.tick;
    gained = 1;
  }
  if (gained == 0) return;
  Lane& state = lanes_[static_cast<size_t>(lane)];
  Release stale{state.snapshot, lane, 0};
  drop(stale);
  state.snapshot = kNone;
}

Races::Release Races::publish(int32_t lane) {
  Lane& state = lanes_[static_cast<size_t>(lane)];
  if (width_ == 0) return {0, lane, state.tick};
  if (state.snapshot < 0) {
    if (freeSnapshots_.empty()) {
      freeSnapshots_.push_back(static_cast<int32_t>(uses_.size()));
      uses_.push_back(0);
      snapshots_.resize(snapshots_.size() + width_);
    }
    state.snapshot = freeSnapshots_.back();
    freeSnapshots_.pop_back();
    uses_[static_cast<size_t>(state.snapshot)] = 1;  // the lane's own
    std::copy(clock(lane), clock(lane) + width_, snapshots_.data() + static_cast<size_t>(state.snapshot) * width_);
  }
  ++uses_[static_cast<size_t>(state.snapshot)];
  return {state.snapshot, lane, state.tick};
}

void Races::drop(Release& release) {
  if (width_ > 0 && release.snapshot >= 0 && release.lane >= 0 && --uses_[static_cast<size_t>(release.snapshot)] == 0)
    freeSnapshots_.push_back(release.snapshot);
  release = {};
}

}  // namespace tutti::exec::prove
