// How a block on the host waits, gives up, and tells.
#include <atomic>
#include <chrono>
#include <tuple>

#include "exec/cuda/host_block.h"

namespace tutti::exec::cuda {
namespace {

constexpr uint32_t kTriesPerCheck = 8;
constexpr uint64_t kHostLookNs = 100'000;  // as on devices: at most one look at the abort word in so long

template <class T>
std::atomic_ref<T> atomic(T& word) {
  return std::atomic_ref<T>(word);
}
uint64_t loadWord(const uint64_t& word) { return atomic(const_cast<uint64_t&>(word)).load(std::memory_order_relaxed); }

uint64_t nowNs() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}

enum class News { None, Abort, OwnLook };

News lookForNews(const WaitControl& control, uint64_t now) {
  AbortRelay& relay = *control.relay;
  if (atomic(relay.stop).load(std::memory_order_relaxed) != 0) return News::Abort;
  uint64_t looked = loadWord(relay.lookedNs);
  if (now - looked < kHostLookNs || !atomic(relay.lookedNs).compare_exchange_strong(looked, now, std::memory_order_relaxed))
    return News::None;
  atomic(relay.limitNs).store(loadWord(control.desk->limitNs), std::memory_order_relaxed);
  if (atomic(*control.abort).load(std::memory_order_relaxed) == 0) return News::OwnLook;
  atomic(relay.stop).store(1, std::memory_order_relaxed);
  return News::Abort;
}

/// As tellOfWait() of wait.cuh.
void tellOfWait(const WaitControl& control, const HostWait::Note& note, uint32_t since, uint32_t now) {
  const uint32_t waited = now - since;
  if (waited < kLeastSilence || now - atomic(control.relay->told).load(std::memory_order_relaxed) <= waited) return;
  const uint32_t silence = control.desk->silence;
  Verdict& lasting = control.desk->lasting;
  if (silence == 0 || waited < silence || atomic(lasting.state).load(std::memory_order_acquire) != Verdict::Empty) return;
  atomic(control.relay->told).store(now, std::memory_order_relaxed);
  HostWait::describe(control, lasting, note, static_cast<uint64_t>(waited) << kTickShift);
  atomic(lasting.state).store(Verdict::Complete, std::memory_order_release);
}

/// The own one unless the peer is in a launch of the same number that is another.
uint64_t signatureOf(const WaitControl& control, int32_t peer) {
  if (control.board == nullptr || peer < 0 || peer >= kBoardPeers) return control.signature;
  const BoardEntry& entry = control.board[peer];
  const uint64_t launch = loadWord(entry.launch);
  const uint64_t signature = loadWord(entry.signature);
  const bool hasPosted = loadWord(control.own->signature) == control.signature;
  return hasPosted && launch == loadWord(control.own->launch) ? signature : control.signature;
}

}  // namespace

void postOnBoards(const WaitControl& control) {
  if (control.board == nullptr) return;
  const uint64_t launch = loadWord(control.own->launch) + 1;
  const auto post = [&](BoardEntry* entry) {
    if (entry == nullptr) return;
    atomic(entry->signature).store(control.signature, std::memory_order_relaxed);
    atomic(entry->launch).store(launch, std::memory_order_relaxed);
  };
  post(control.own);
  for (BoardEntry* entry : control.post) post(entry);
}

void HostWait::describe(const WaitControl& control, Verdict& to, const Note& note, uint64_t waitedNs) {
  to.waiting = note.waiting;
  to.rank = note.rank;
  to.peer = note.peer;
  to.channel = note.channel;
  to.step = note.step;
  to.expected = note.expected;
  to.seen = note.seen;
  to.launch = control.board == nullptr ? 0 : loadWord(control.own->launch);
  to.signature = control.signature;
  to.waitedNs = waitedNs;
}

void HostWait::report(const WaitControl& control, const Note& note, uint64_t waitedNs, Verdict::State as) {
  Verdict& verdict = *control.verdict;
  uint32_t empty = Verdict::Empty;
  if (atomic(verdict.state).compare_exchange_strong(empty, Verdict::Claimed, std::memory_order_relaxed)) {
    describe(control, verdict, note, waitedNs);
    atomic(verdict.state).store(as, std::memory_order_release);
  }
  atomic(*control.abort).store(1, std::memory_order_relaxed);
}

bool HostWait::givesUp(const WaitControl& control, const Note& note) {
  const auto what = [](const Note& n) { return std::tuple(n.waiting, n.peer, n.channel, n.step, n.expected); };
  if (what(note) != what(latest_)) end();
  latest_ = note;
  if (++tries_ % kTriesPerCheck != 0) return false;
  const uint64_t ns = nowNs();
  const News news = lookForNews(control, ns);
  const bool isEnded = news == News::Abort;
  if (isEnded && (since_ == 0 || note.waiting == Waiting::ForHandOver)) return true;
  const uint32_t now = tickOf(ns);
  if (since_ == 0) since_ = beginningAt(now);
  if (news == News::OwnLook) tellOfWait(control, note, since_, now);
  const uint64_t other = note.waiting == Waiting::ForHandOver ? control.signature : signatureOf(control, note.peer);
  const bool isForeign = !isEnded && other != control.signature && other == foreign_;
  foreign_ = other;
  const uint32_t waited = now - since_;
  if (!isEnded && !isForeign && !isPast(waited, loadWord(control.relay->limitNs))) return false;
  Note last = note;
  if (isForeign) {
    last.waiting = Waiting::Mismatch;
    last.expected = control.signature;
    last.seen = other;
  }
  report(control, last, static_cast<uint64_t>(waited) << kTickShift, isEnded ? Verdict::Ended : Verdict::Complete);
  return true;
}

}  // namespace tutti::exec::cuda
