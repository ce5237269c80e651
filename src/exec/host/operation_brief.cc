// The calls of a brief plan: one lane, one slice and nothing lent in windows. What each step needs is kept from call to call, and small
// values are moved without the general steps. Wherever such a call cannot go on, goOn() leaves advance()'s own state. And what the next
// call needs, fetched ahead of it.
#include <algorithm>
#include <utility>

#include "core/prefetch.h"
#include "core/short_copy.h"
#include "exec/host/operation.h"
#include "exec/host/wait.h"

namespace tutti::exec::host {

using algo::Buffer;
using algo::Kind;
using transport::local::CellHead;
using transport::local::kCacheLine;
using transport::local::kCellInlineBytes;
using transport::local::kShortBytes;
using transport::local::RecvEnd;
using transport::local::SlotHead;

void Operation::layOutBriefly() {
  brief_.clear();
  cellsOf_[0].clear();
  cellsOf_[1].clear();
  publishedRound_ = -1;
  if (lanes_.size() != 1 || plan_->geometry.slices != 1 || lanes_[0].steps->steps.empty() || !wanted_.empty()) return;
  std::vector<BriefStep> brief;
  for (const BoundStep& step : lanes_[0].steps->steps) {
    brief.push_back(briefOf(step));
    const uint64_t bytes = brief.back().bytes;
    const bool mayLend = plan_->lends && step.kind == Kind::Store && bytes > std::min(kEagerBytes, step.window->cellBytes);
    if (mayLend || (step.window != nullptr && bytes >= transport::local::kMovingBytes))
      return;  // its place would not be the same each time
  }
  const auto folds = [](const BriefStep& step) { return step.kind == BriefKind::Fold; };
  const auto fold = std::find_if(brief.begin(), brief.end(), folds);
  for (BriefStep& step : brief) {
    if (step.kind != BriefKind::Own) continue;
    // Left out only where a Fold of the same round stands for whoever looks at the own cell.
    const bool isFolded = fold != brief.end() && fold->bytes == step.bytes && fold->round == step.round && step.isFromIn;
    if (isFolded) briefOwn_ = step.from;
    if (!isFolded) step.kind = BriefKind::General;
  }
  const bool hasOwn = std::any_of(brief.begin(), brief.end(), [](const BriefStep& step) { return step.kind == BriefKind::Own; });
  if (fold != brief.end() && (!hasOwn || std::count_if(brief.begin(), brief.end(), folds) != 1)) {
    for (BriefStep& step : brief)
      if (folds(step) || step.kind == BriefKind::Own) step.kind = BriefKind::General;
  }
  publish(brief);
  for (BriefStep& step : brief)
    if (step.kind == BriefKind::Await) lookAhead(step, brief);
  isBriefLent_ = std::any_of(brief.begin(), brief.end(), [](const BriefStep& step) {
    return step.kind == BriefKind::General && step.step->kind == Kind::Pipe && step.step->numTo > 0;
  });
  brief_ = std::move(brief);  // only now: rangeOf() looks at it
}

/// Where every peer gets the same in a round, all of them can read it in one place: the own cell of the own window (window.h, 5). A line is
/// written instead of one for each peer, and readers that share a core, or its caches, fetch it once. Only where every rank gives something
/// to all, so that all come to the same answer, from their steps and sizes alone: in a broadcast, the root has other steps than the rest.
void Operation::publish(std::vector<BriefStep>& brief) {
  constexpr int32_t kFewest = 3;
  const bool isEverybodys = plan_->collective == Collective::AllReduce || plan_->collective == Collective::AllGather;
  const bool isWhole = std::none_of(brief.begin(), brief.end(), [](const BriefStep& step) { return step.kind == BriefKind::General; });
  if (plan_->ranks < kFewest || !isEverybodys || !isWhole) return;
  for (int32_t round = 0; round < plan_->rounds; ++round)
    if (publish(brief, static_cast<uint8_t>(round))) return;
}

/// False: it cannot be.
bool Operation::publish(std::vector<BriefStep>& brief, uint8_t round) {
  const auto ranks = static_cast<size_t>(plan_->ranks);
  const BriefStep* first = nullptr;
  size_t puts = 0;
  std::vector<BriefStep::Cell> cells[2] = {std::vector<BriefStep::Cell>(ranks), std::vector<BriefStep::Cell>(ranks)};
  const transport::local::WindowView* own = nullptr;
  for (const BriefStep& step : brief) {
    if (step.round != round) continue;
    if (step.kind == BriefKind::Put) {
      if (first == nullptr) first = &step;
      // Not by where they lie: of parts of a short whole several may be empty, for some ranks.
      if (step.step->src.chunk != first->step->src.chunk || step.isFromIn != first->isFromIn) return false;
      ++puts;
    }
    if (step.kind == BriefKind::Await) own = step.step->window;
  }
  if (own == nullptr || puts + 1 != ranks) return false;
  // Parts of a whole may differ in length: of each rank's, whoever loads it knows.
  const auto bytesOf = [&](Rank rank) {
    for (const BriefStep& step : brief)
      if (step.round == round && step.kind == BriefKind::Load && step.peer == rank) return step.bytes;
    return first->bytes;
  };
  const auto place = [&](const transport::local::WindowView& window, Rank rank, uint64_t bytes) {
    for (uint64_t bank = 0; bank < 2; ++bank)
      cells[bank][static_cast<size_t>(rank.value)] = {&window.head(bank, rank), window.payload(bank, rank, bytes)};
  };
  place(*own, plan_->rank, first->bytes);
  for (const BriefStep& step : brief)
    if (step.round == round && step.kind == BriefKind::Put) place(*step.step->window, step.peer, bytesOf(step.peer));
  bool isPut = false;
  bool hasArrived = false;
  for (BriefStep& step : brief) {
    const bool isOwn = step.kind == BriefKind::Put || step.kind == BriefKind::Arrive;
    if (step.round != round || (!isOwn && step.kind != BriefKind::Await && step.kind != BriefKind::Load)) continue;
    bool& isDone = step.kind == BriefKind::Put ? isPut : hasArrived;
    for (size_t bank = 0; bank < 2; ++bank) step.cells[bank] = cells[bank][static_cast<size_t>((isOwn ? plan_->rank : step.peer).value)];
    if (isOwn && std::exchange(isDone, true)) step.kind = BriefKind::Left;
  }
  for (size_t bank = 0; bank < 2; ++bank) cellsOf_[bank] = std::move(cells[bank]);
  publishedRound_ = round;
  return true;
}

/// The lines that are read when the awaited peer has come, beside that of its epoch: to ask for them with every look takes less time than
/// to fetch them one after the other afterwards. Of longer values the later lines come while the first are read.
void Operation::lookAhead(BriefStep& await, const std::vector<BriefStep>& brief) const {
  constexpr uint64_t kMostBytes = 256;  // `bench_mpi all_reduce reduce_scatter all_gather --from 32 --to 1200 --factor 1.42`
  const auto reads = [&](const BriefStep& step) {
    return step.round == await.round && (step.kind == BriefKind::Fold || (step.kind == BriefKind::Load && step.peer == await.peer));
  };
  const auto reader = std::find_if(brief.begin(), brief.end(), reads);
  if (reader == brief.end() || reader->bytes <= kCellInlineBytes || reader->bytes > kMostBytes) return;
  await.numAhead = static_cast<int8_t>((reader->bytes + kCacheLine - 1) / kCacheLine);
  for (uint64_t bank = 0; bank < 2; ++bank) {
    const BriefStep::Cell& cell = await.cells[bank];
    const bool isPublished = await.round == publishedRound_;
    await.ahead[bank] = isPublished ? cell.payload : await.step->window->payload(bank, await.peer, reader->bytes);
  }
}

/// A value that is copied into a cell as it is.
bool Operation::isBriefStore(const BoundStep& step) const { return !step.reduce || !plan_->reduction.scaling.hasFactor; }

Operation::BriefStep Operation::briefOf(const BoundStep& step) const {
  const Lane& lane = lanes_.front();
  BriefStep b;
  b.step = &step;
  b.round = step.round;
  b.peer = step.peer;
  b.range = rangeOf(lane, step);
  b.bytes = b.range.elems * plan_->elementBytes;
  b.from = b.range.begin * plan_->elementBytes;
  b.to = step.kind == Kind::Pipe && step.dst.buffer != Buffer::None ? placeBytes(step, lane, b.range) : b.from;
  b.isFromIn = step.src.buffer == Buffer::In;
  b.writes = step.dst.buffer != Buffer::None;
  // Of windows: the cell that it writes, or that it reads.
  const bool isOnWindow = step.window != nullptr && step.kind != Kind::LoadReduce;
  for (uint64_t bank = 0; isOnWindow && bank < 2; ++bank) {
    const Rank writer = step.kind == Kind::Store || step.kind == Kind::Arrive ? plan_->rank : step.peer;
    b.cells[bank] = {&step.window->head(bank, writer), step.window->payload(bank, writer, b.bytes)};
  }
  switch (step.kind) {
    case Kind::Pipe: {
      const int numSources = step.numFrom + (step.src.buffer != Buffer::None ? 1 : 0);
      const bool isLocal = step.numFrom == 0 && step.numTo == 0;
      if (step.reduce || numSources != 1 || (!isLocal && b.bytes > kShortBytes)) break;
      b.kind = BriefKind::Move;
      b.numTo = step.numTo;
      b.targets = lane.steps->targets.data() + step.firstTo;
      if (step.numFrom == 0) break;
      b.source = lane.steps->sources[step.firstFrom].end;
      b.peer = lane.steps->sources[step.firstFrom].rank;
      break;
    }
    case Kind::Store:
      if (isBriefStore(step)) b.kind = step.peer == plan_->rank ? BriefKind::Own : BriefKind::Put;
      break;
    case Kind::Arrive: b.kind = BriefKind::Arrive; break;
    case Kind::Await: b.kind = BriefKind::Await; break;
    case Kind::Load: b.kind = BriefKind::Load; break;
    case Kind::LoadReduce: b.kind = plan_->ranks > 1 ? BriefKind::Fold : BriefKind::General; break;
    case Kind::Give:
    case Kind::Take: break;
  }
  return b;
}

/// runPipe() for a short value that comes from one place, or one that only changes its place here.
[[gnu::always_inline]] inline bool Operation::move(const BriefStep& step) {
  RecvEnd* const from = step.source;
  if (from != nullptr && !soon(looks_, [from] { return from->ready(); })) return false;
  for (int i = 0; i < step.numTo; ++i)
    if (!step.targets[i]->ready(step.bytes)) return false;

  const std::byte* value = (step.isFromIn ? in_ : out_) + step.from;
  if (from != nullptr) {
    const SlotHead& head = from->head();
    if (!acceptCall(head.signature, step.peer) || !acceptSize(head.bytes, step.peer, step.bytes)) return false;
    value = from->payload();
  }
  if (step.writes) {
    std::byte* const to = out_ + step.to;
    if (to != value) copyShort(to, value, step.bytes);
    value = to;
  }
  for (int i = 0; i < step.numTo; ++i) step.targets[i]->pushShort(signature_, value, step.bytes);
  if (from != nullptr) from->releaseLater();
  return true;
}

/// runStore() of a value that is not lent.
inline void Operation::put(const BriefStep& step) const {
  const BriefStep::Cell& cell = step.cells[(windowEpoch_ + step.round) % 2];
  cell.head->bytes = step.bytes;
  cell.head->lent = 0;
  copyShort(cell.payload, (step.isFromIn ? in_ : out_) + step.from, step.bytes);
}

/// runLoad(), as long as the value is not lent.
inline bool Operation::load(const Lane& lane, const BriefStep& step) {
  const BriefStep::Cell& cell = step.cells[(windowEpoch_ + step.round) % 2];
  if (cell.head->lent != 0) [[unlikely]]
    return run(lane, *step.step);
  if (!acceptSize(cell.head->bytes, step.peer, step.bytes)) return false;
  copyShort(out_ + step.to, cell.payload, step.bytes);
  return true;
}

/// runLoadReduce() of all ranks' values, none of which is lent: the own one lies in the input.
inline bool Operation::fold(const Lane& lane, const BriefStep& step) {
  const transport::local::WindowView& window = *step.step->window;
  const uint64_t epoch = windowEpoch_ + step.round;
  const BriefStep::Cell* const published = step.round == publishedRound_ ? cellsOf_[epoch % 2].data() : nullptr;
  for (int32_t r = 0; r < plan_->ranks; ++r) {
    if (Rank(r) == plan_->rank) {
      cells_[static_cast<size_t>(r)] = in_ + briefOwn_;
      continue;
    }
    const CellHead& head = published != nullptr ? *published[r].head : window.head(epoch, Rank(r));
    if (!acceptSize(head.bytes, Rank(r), step.bytes)) return false;
    if (published != nullptr) {
      cells_[static_cast<size_t>(r)] = published[r].payload;
      continue;
    }
    if (head.lent != 0) [[unlikely]] {
      for (const BriefStep& own : brief_)
        if (own.kind == BriefKind::Own) (void)runStore(lane, *own.step);
      return run(lane, *step.step);
    }
    cells_[static_cast<size_t>(r)] = window.payload(epoch, Rank(r), step.bytes);
  }
  if (step.range.elems > 0) plan_->reduceFn(out_ + step.to, cells_.data(), plan_->ranks, step.range.elems, reduction_, 0, true);
  return true;
}

[[gnu::always_inline]] inline bool Operation::runBriefly(const Lane& lane, const BriefStep& step) {
  const uint64_t epoch = windowEpoch_ + step.round;
  switch (step.kind) {
    case BriefKind::Move: return move(step);
    case BriefKind::Put: put(step); return true;
    case BriefKind::Own:
    case BriefKind::Left: return true;
    case BriefKind::Arrive: arrive(*step.cells[epoch % 2].head, epoch); return true;
    case BriefKind::Await: {
      const CellHead& head = *step.cells[epoch % 2].head;
      // acquire: pairs with the release of Arrive
      const auto hasArrived = [&head, epoch] { return head.epoch.load(std::memory_order_acquire) == epoch; };
      const bool hasCome = step.numAhead == 0 ? soon(looks_, hasArrived) : soon(looks_, [&] {
        for (int line = 0; line < step.numAhead; ++line) prefetch(step.ahead[epoch % 2] + static_cast<size_t>(line) * kCacheLine);
        return hasArrived();
      });
      if (!hasCome) return false;
      return acceptCall(head.signature, step.peer);
    }
    case BriefKind::Load: return load(lane, step);
    case BriefKind::Fold: return fold(lane, step);
    case BriefKind::General: break;
  }
  return run(lane, *step.step);
}

/// From step `first` on, as far as it goes: how many are done.
[[gnu::noinline]] uint32_t Operation::runSteps(const Lane& lane, uint32_t first) {
  const BriefStep* const steps = brief_.data();
  const auto end = static_cast<uint32_t>(brief_.size());
  for (uint32_t next = first; next < end; ++next)
    if (!runBriefly(lane, steps[next])) [[unlikely]]
      return next;
  return end;
}

bool Operation::runAgain(const void* in, void* out, uint64_t signature, uint64_t windowEpoch, int32_t looks) {
  in_ = static_cast<const std::byte*>(in);
  out_ = static_cast<std::byte*>(out);
  signature_ = signature;
  windowEpoch_ = windowEpoch;
  looks_ = looks;
  Lane& lane = lanes_.front();
  lane.slice = 0;
  const auto end = static_cast<uint32_t>(brief_.size());
  uint32_t done = 0;
  while (done < end && brief_[done].kind == BriefKind::Move && move(brief_[done])) ++done;
  if (done < end && brief_[done].kind != BriefKind::Move) done = runSteps(lane, done);
  briefDone_ = done;
  if (done < end) [[unlikely]]
    return false;
  if (isBriefLent_ && !isDrained(*lane.steps)) return false;  // advance() waits until it has been read
  if (plan_->usesWindow) prepareCellsBriefly();
  return true;
}

/// advanceLane() of a brief plan.
bool Operation::advanceBriefly(Lane& lane) {
  if (lane.slice == 0) {
    const uint32_t done = runSteps(lane, lane.next);
    moved_ = moved_ || done > lane.next;
    lane.next = done;
    giveBack();
    if (done < brief_.size()) return false;
    lane.next = 0;
    lane.slice = 1;
  }
  return isDrained(*lane.steps) && isReturned();
}

void Operation::goOn() {
  Lane& lane = lanes_.front();
  const bool isThrough = briefDone_ == brief_.size();
  lane.next = isThrough ? 0 : briefDone_;
  lane.slice = isThrough ? 1 : 0;
  lane.given = 0;
  lane.finished = false;
  unfinished_ = 1;
  moved_ = briefDone_ > 0;
  exporter_ = nullptr;
  hasOffered_ = false;
  giveBack();
}

void Operation::giveBack() {
  for (const BriefStep& step : brief_)
    if (step.source != nullptr) step.source->giveBack();
}

/// The cells that a call like this one writes next are in their readers' caches, and to fetch them takes longer than to write them. So it
/// is begun here, where nobody waits: they lie in the other bank, and by arriving in this one their readers have said that they are done.
void Operation::prepareCells() const {
  constexpr uint64_t kLine = transport::local::kCacheLine;
  constexpr uint64_t kMostLines = 256;
  uint64_t lines = 0;
  for (const Lane& lane : lanes_) {
    for (const BoundStep& step : lane.steps->steps) {
      if (step.kind != Kind::Store || step.peer == plan_->rank || step.round != 0) continue;
      const algo::Range range = plan_->geometry.range(step.src.chunk, lane.channel, 0);
      const uint64_t bytes = range.elems * plan_->elementBytes;
      const uint64_t epoch = windowEpoch_ + static_cast<uint64_t>(plan_->rounds) + step.round;
      const bool hasPayload = bytes > kCellInlineBytes && bytes <= step.window->cellBytes && !step.fansOut;
      lines += 1 + (hasPayload ? (bytes + kLine - 1) / kLine : 0);
      if (lines > kMostLines) return;
      const CellHead& head = step.window->head(epoch, plan_->rank);
      prefetchForWrite(&head);
      const std::byte* payload = step.window->payload(epoch, plan_->rank, bytes);
      for (uint64_t at = 0; hasPayload && at < bytes; at += kLine) prefetchForWrite(payload + at);
    }
  }
}

/// prepareCells(), with what is known of the steps.
void Operation::prepareCellsBriefly() const {
  constexpr uint64_t kMostBytes = 1024;
  const uint64_t bank = (windowEpoch_ + static_cast<uint64_t>(plan_->rounds)) % 2;
  for (const BriefStep& step : brief_) {
    if (step.kind != BriefKind::Put || step.round != 0) continue;
    const BriefStep::Cell& cell = step.cells[bank];
    prefetchForWrite(cell.head);
    if (step.bytes <= kCellInlineBytes) continue;
    for (uint64_t at = 0; at < std::min(step.bytes, kMostBytes); at += kCacheLine) prefetchForWrite(cell.payload + at);
  }
}

}  // namespace tutti::exec::host
