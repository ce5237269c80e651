#include "transport/device/stages.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <span>
#include <utility>

#include "config/params.h"
#include "core/thread.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using driver::cuda::Driver;
using driver::cuda::Stream;
using driver::cuda::StreamOp;
using driver::cuda::StreamOpKind;
using exec::cuda::Verdict;
using exec::cuda::Waiting;

namespace {

// A stage: what is waited for, the ranks that have to say it, and the watch's mark.
constexpr int kRanksShift = 22;
constexpr uint32_t kWordBits = (uint32_t{1} << kRanksShift) - 1;
constexpr uint32_t kRankBits = (uint32_t{1} << exec::cuda::kMaxLocalRanks) - 1;
constexpr uint32_t kMarked = uint32_t{1} << 31;
static_assert(kRanksShift + exec::cuda::kMaxLocalRanks < 32);

constexpr std::chrono::milliseconds kBetweenLooks(10);
/// Where streams are let go on one stage after the other.
constexpr std::chrono::microseconds kBetweenStoppedLooks(200);

uint32_t load(uint32_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }

/// Calls `visit` with each rank of the bits.
template <class Visit>
void forEach(uint32_t bits, Visit&& visit) {
  for (; bits != 0; bits &= bits - 1) visit(std::countr_zero(bits));
}

}  // namespace

uint32_t StageCall::wordOf(uint32_t at) const {
  uint64_t x = (signature ^ uint64_t{at} * 0x9e3779b97f4a7c15U) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 32)) * 0x94d049bb133111ebU;
  return std::max(static_cast<uint32_t>(x >> 40) & kWordBits, uint32_t{1});
}

/// What a stream is to do, in the order in which it is added.
class StageRoom::Ops {
 public:
  Ops(const StageRoom& room, size_t number) : room_(room), number_(number) {}

  struct Saying {
    uint32_t ranks;  ///< bits
    uint32_t word;
  };
  /// Says its word to those of `tell`, and waits until all of `wait` have said theirs.
  Status put(const Saying& tell, const Saying& wait, Driver& driver, Stream stream) {
    const uint32_t awaited = wait.ranks;
    const int32_t own = room_.rank_;
    if (awaited != 0)
      add(StreamOpKind::Write, cell(own, std::countr_zero(awaited)) + offsetof(StageCell, stage), awaited << kRanksShift | wait.word);
    forEach(tell.ranks, [&](int32_t peer) { add(StreamOpKind::Write, cell(peer, own), tell.word); });
    forEach(awaited, [&](int32_t peer) { add(StreamOpKind::Wait, cell(own, peer), wait.word); });
    forEach(awaited, [&](int32_t peer) { add(StreamOpKind::WriteWide, cell(own, peer), 0); });  // the stage first, and with it
    return count_ == 0 ? Status() : driver.operate(stream, std::span(ops_).first(count_));
  }

 private:
  static constexpr size_t kMost = 1 + 3 * exec::cuda::kMaxLocalRanks;
  static_assert(kMost <= driver::cuda::kMostStreamOps);

  DevicePtr cell(int32_t owner, int32_t peer) const {
    return room_.seen_ + room_.page_.offsetOf(&room_.page_.cells(owner, peer).of[number_]);
  }
  void add(StreamOpKind kind, DevicePtr address, uint32_t value) {
    ops_[count_++] = {kind, address, value, kind == StreamOpKind::Wait ? driver::cuda::kWaitEqual : 0};
  }

  const StageRoom& room_;
  const size_t number_;
  std::array<StreamOp, kMost> ops_;
  size_t count_ = 0;
};

Status StageRoom::begin(const StageCall& call, Driver& driver, Stream stream) const {
  return Ops(*this, 0).put({call.writers, call.word()}, {call.written, call.targetWord()}, driver, stream);
}

Status StageRoom::meet(const StageCall& call, int32_t number, Driver& driver, Stream stream) const {
  return Ops(*this, static_cast<size_t>(number) + 1).put({call.written, call.targetWord()}, {call.writers, call.word()}, driver, stream);
}

struct StageRoom::Standing {
  int32_t rank = 0;
  size_t number = 0;  ///< 0: Begin
  uint32_t* at = nullptr;
  uint32_t stage = 0;  ///< with or without the mark

  bool isMarked() const { return (stage & kMarked) != 0; }
  bool isStill() const { return load(*at) == stage; }
  uint32_t wanted() const { return stage & kWordBits; }
  uint32_t& word(const Page& page, int32_t peer) const { return page.cells(rank, peer).of[number].word; }
  /// Ranks that are still waited for.
  uint32_t lacking(const Page& page) const {
    uint32_t bits = 0;
    forEach(stage >> kRanksShift & kRankBits,
            [&](int32_t peer) { bits |= load(word(page, peer)) == wanted() ? 0 : uint32_t{1} << peer; });
    return bits;
  }
};

/// Whom a wait was for, and what is said of it.
struct StageRoom::Ending {
  int32_t peer;
  Waiting waiting;
  uint64_t expected;
  uint64_t seen;
};

std::optional<StageRoom::Standing> StageRoom::standingOf(const Page& page, int32_t rank) {
  for (int32_t peer = 0; peer < page.ranks(); ++peer) {
    StageCell* const cells = page.cells(rank, peer).of;
    for (size_t number = 0; peer != rank && number < kStageMeetings; ++number)
      if (const uint32_t stage = load(cells[number].stage); stage != 0) return Standing{rank, number, &cells[number].stage, stage};
  }
  return std::nullopt;
}

/// Two ranks wait for each other in different calls: neither says anything more. A mark goes with its wait, so what the peer lacked was
/// lacking if its wait still stands afterwards; and the own one stands as well (look()), which it has done since it was marked. Of messages
/// the two directions have words of their own, so there other words alone say nothing.
std::optional<uint64_t> StageRoom::foreignOf(const Standing& standing, int32_t peer) const {
  const auto theirs = standingOf(page_, peer);
  if (!theirs || !theirs->isMarked() || theirs->wanted() == standing.wanted()) return std::nullopt;
  if (isMessage(rank_, standing.wanted()) && isMessage(peer, theirs->wanted())) return std::nullopt;
  const bool lacksThis = (theirs->lacking(page_) >> rank_ & 1) != 0;
  return lacksThis && theirs->isStill() ? std::optional(stageName(theirs->wanted())) : std::nullopt;
}

bool StageRoom::isMessage(int32_t rank, uint32_t word) const {
  const auto calls = page_.launches(rank).find(stageName(word)).calls;
  return !calls.empty() && calls.front().isMessage();
}

/// Why a wait that lacks some ranks has to end, if it has to.
std::optional<StageRoom::Ending> StageRoom::endingOf(const Standing& standing, uint32_t lacking, uint64_t waitedNs) const {
  const uint64_t own = stageName(standing.wanted());
  for (uint32_t bits = lacking; bits != 0; bits &= bits - 1) {
    const int32_t peer = std::countr_zero(bits);
    if (const uint32_t word = load(standing.word(page_, peer)); word != 0 && word != standing.wanted()) {
      const auto mine = page_.launches(rank_).find(own).calls;
      const auto theirs = page_.launches(peer).find(stageName(word)).calls;
      const bool isElsewhere = !mine.empty() && !theirs.empty() && mine.front().isLike(theirs.front());
      return Ending{peer, isElsewhere ? Waiting::OtherPlace : Waiting::Mismatch, own, stageName(word)};
    }
    if (const auto foreign = foreignOf(standing, peer)) return Ending{peer, Waiting::Mismatch, own, *foreign};
  }
  const uint64_t limitNs = std::atomic_ref(page_.waits(rank_).limitNs).load(std::memory_order_relaxed);
  return limitNs != 0 && waitedNs > limitNs ? std::optional(awaiting(standing, lacking)) : std::nullopt;
}

/// What is said of a wait that nothing is wrong with: for the first that is lacking.
StageRoom::Ending StageRoom::awaiting(const Standing& standing, uint32_t lacking) const {
  const int32_t peer = std::countr_zero(lacking);
  return {peer, standing.number == 0 ? Waiting::ForLeave : Waiting::ForCopies, standing.wanted(), load(standing.word(page_, peer))};
}

/// Where nothing has been left yet.
void StageRoom::leave(Verdict& verdict, Verdict::State as, const Standing& standing, const Ending& ending, uint64_t waitedNs) const {
  const std::atomic_ref state(verdict.state);
  uint32_t empty = Verdict::Empty;
  if (!state.compare_exchange_strong(empty, Verdict::Claimed, std::memory_order_relaxed)) return;
  verdict.waiting = ending.waiting;
  verdict.rank = rank_;
  verdict.peer = ending.peer;
  verdict.channel = kChannelOfStream;
  verdict.step = static_cast<int32_t>(standing.number);
  verdict.expected = ending.expected;
  verdict.seen = ending.seen;
  verdict.launch = 0;
  verdict.signature = stageName(standing.wanted());
  verdict.waitedNs = waitedNs;
  state.store(as, std::memory_order_release);
}

/// Says to the own stream what it waits for, again and again while it soon waits anew.
void StageRoom::letGo(std::optional<Standing> standing, uint64_t waitedNs) const {
  constexpr int kMostStages = 64;
  constexpr int kMostTries = 200;
  for (int stages = 0; standing && stages < kMostStages; ++stages) {
    const uint32_t lacking = standing->lacking(page_);
    if (lacking != 0) leave(page_.rank(rank_).endedStage, Verdict::Ended, *standing, awaiting(*standing, lacking), waitedNs);
    const uint32_t word = standing->wanted();
    forEach(lacking, [&](int32_t peer) { std::atomic_ref(standing->word(page_, peer)).store(word, std::memory_order_release); });
    standing.reset();
    for (int tries = 0; !standing && tries < kMostTries; ++tries) standing = standingOf(page_, rank_);
  }
}

bool StageRoom::look(Clock::time_point now) {
  uint32_t& abort = page_.kernel().abort;
  const bool isStopped = load(abort) != 0;
  const auto found = standingOf(page_, rank_);
  if (!found) return false;
  const auto waitedNs = found->isMarked() ? static_cast<uint64_t>(std::chrono::nanoseconds(now - since_).count()) : 0;
  if (isStopped) {
    letGo(found, waitedNs);
    return true;
  }
  if (!found->isMarked()) {
    uint32_t stage = found->stage;
    if (std::atomic_ref(*found->at).compare_exchange_strong(stage, stage | kMarked, std::memory_order_acq_rel)) {
      since_ = now;
      hasTold_ = false;
    }
    return false;
  }
  const uint32_t lacking = found->lacking(page_);
  if (lacking == 0) return false;
  const auto ending = endingOf(*found, lacking, waitedNs);
  if (!found->isStill()) return false;  // it has gone on meanwhile: what was seen was of no wait
  if (ending) {
    leave(page_.rank(rank_).endedStage, Verdict::Complete, *found, *ending, waitedNs);
    std::atomic_ref(abort).store(1, std::memory_order_release);
    return true;
  }
  const uint64_t silence = uint64_t{page_.waits(rank_).silence} << exec::cuda::kTickShift;
  if (!hasTold_ && silence != 0 && waitedNs >= silence) {
    hasTold_ = true;
    leave(page_.waits(rank_).lasting, Verdict::Complete, *found, awaiting(*found, lacking), waitedNs);
  }
  return false;
}

Result<std::unique_ptr<StageWatch::Seat>> StageWatch::add(const StageRoom& room) {
  auto seat = std::make_unique<Seat>(*this, room);
  std::unique_lock lock(mutex_);
  if (seats_.empty()) {
    const bool namesThread = config::get<config::Param::SetThreadName>() != 0;
    auto started = startThread(namesThread ? "tutti stages" : nullptr, "that looks after what streams wait for",
                               [this, round = ++round_] { run(round); });
    if (!started) {
      lock.unlock();  // the seat takes it
      return tl::unexpected(std::move(started).error());
    }
    thread_ = std::move(*started);
  }
  seats_.push_back(seat.get());
  return seat;
}

void StageWatch::remove(Seat& seat) {
  std::thread over;
  {
    const std::lock_guard lock(mutex_);
    if (std::erase(seats_, &seat) == 0 || !seats_.empty()) return;
    ++round_;
    over = std::move(thread_);
  }
  changed_.notify_all();
  over.join();
}

void StageWatch::run(uint64_t round) {
  std::unique_lock lock(mutex_);
  while (round == round_) {
    bool isStopped = false;
    const auto now = StageRoom::Clock::now();
    for (Seat* const seat : seats_) isStopped = seat->room_.look(now) || isStopped;
    changed_.wait_for(lock, isStopped ? std::chrono::nanoseconds(kBetweenStoppedLooks) : std::chrono::nanoseconds(kBetweenLooks));
  }
}

}  // namespace tutti::transport::device
