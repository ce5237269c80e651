#include "comm/device_verdict.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_windows.h"
#include "core/format.h"
#include "exec/host/signature.h"

namespace tutti::comm {

using exec::cuda::Verdict;
using exec::cuda::Waiting;
using exec::host::describeCall;
using transport::device::LaunchBook;
using transport::device::Page;
using transport::local::Ending;

namespace {

constexpr int kKindShift = 60;
constexpr uint64_t kRest = (uint64_t{1} << kKindShift) - 1;
/// Of several calls: no collective, and none of copies (signatureOnWindows).
constexpr uint64_t kSeveral = uint64_t{15} << kKindShift;

const char* describe(Waiting waiting) {
  switch (waiting) {
    case Waiting::ForData: return "data from";
    case Waiting::ForSlot: return "a free slot of";
    case Waiting::ForCell: return "cells from";
    case Waiting::ForArrival: return "the arrival of";
    case Waiting::ForHandOver: return "a slice of lane";
    case Waiting::ForLeave: return "leave to use the buffers of";
    case Waiting::ForCopies: return "the end of the part of";
    default: return "nothing of";
  }
}

/// Of a launch of one collective, as exact as the bits allow.
Call callOf(uint64_t signature) {
  Call call = exec::host::unpackSignature(withoutCopyMark(signature));
  if (hasCopyMark(signature)) call = exec::host::onWindows(call);
  return call;
}

LaunchBook::Found find(const Page& page, int32_t rank, uint64_t signature) {
  LaunchBook::Found found = page.launches(rank).find(signature);
  if (!found.calls.empty() || signature == 0 || signature >= kSeveral) return found;
  if (const Call call = callOf(signature); !call.isMessage()) found.calls.push_back(call);
  return found;
}

/// Empty: they are not known any more.
std::vector<Call> callsOf(const Page& page, int32_t rank, uint64_t signature) { return find(page, rank, signature).calls; }

/// "AllReduce #5 of 1000 float, sum and 2 more calls".
std::string describeAll(const std::vector<Call>& calls) {
  constexpr size_t kMost = 4;
  if (calls.empty()) return "a launch whose calls are not known any more";
  std::string text;
  for (size_t i = 0; i < std::min(calls.size(), kMost); ++i) text += format("{}{}", i == 0 ? "" : " and ", describeCall(calls[i]));
  if (calls.size() > kMost) text += format(" and {} more", calls.size() - kMost);
  return text;
}

/// Messages that a wait may have been for: all, where it was for none of its peer.
std::vector<Call> suspected(std::vector<Call> calls, const Verdict& v) {
  if (calls.empty() || !calls.front().isMessage()) return calls;
  const bool receives = v.waiting != Waiting::ForSlot && v.waiting != Waiting::ForLeave;
  std::vector<Call> found;
  std::ranges::copy_if(calls, std::back_inserter(found), [&](const Call& c) { return c.root == v.peer && c.receives == receives; });
  return found.empty() ? calls : found;
}

exec::host::Outcome mismatchOf(const Verdict& v, const Page& page) {
  const Rank rank(v.rank);
  const Rank peer(v.peer);
  const std::vector<Call> own = callsOf(page, v.rank, v.expected);
  const std::vector<Call> theirs = callsOf(page, v.peer, v.seen);
  for (size_t i = 0; i < std::min(own.size(), theirs.size()); ++i)
    if (!exec::host::agree(own[i], theirs[i]))
      return {Ending::Mismatch, exec::host::mismatch(rank, own[i], peer, theirs[i]), {{rank, own[i]}, {peer, theirs[i]}}};
  return {Ending::Mismatch,
          error(Code::InvalidUsage,
                "calls do not match: rank {} launched {}, but rank {} launched {}; all ranks of a communicator must make the same calls in "
                "the same groups",
                v.rank, describeAll(own), v.peer, describeAll(theirs)),
          {}};
}

/// The peer of a message, if it has come to it; -1: it has not.
Rank comeTo(const std::vector<Call>& calls, const Verdict& v, const Page& page) {
  if (calls.empty() || !calls.front().isMessage()) return Rank(-1);
  const Call& call = calls.front();
  const auto& book = call.receives ? page.messages(call.root, v.rank) : page.messages(v.rank, call.root);
  return book.hasCome(!call.receives, call.sequence) ? Rank(call.root) : Rank(-1);
}

const char* whoWaits(const Verdict& v) { return v.channel == transport::device::kChannelOfStream ? "stream" : "kernel"; }

/// What that stood at.
std::string describeWait(const Verdict& v) {
  if (v.channel == transport::device::kChannelOfStream)
    return format("waits for {} rank {} (stage {}): expected {}, saw {}", describe(v.waiting), v.peer, v.step, v.expected, v.seen);
  const std::string whom = v.waiting == Waiting::ForHandOver ? format("{}", v.peer) : format("rank {}", v.peer);
  return format("waits for {} {} (channel {}, step {}, launch {}): expected {}, saw {}", describe(v.waiting), whom, v.channel, v.step,
                v.launch, v.expected, v.seen);
}

Status deadlineOf(const Verdict& v, int64_t limitMs, const std::vector<Call>& calls, const std::string& inTurn) {
  const int64_t waitedMs = static_cast<int64_t>(v.waitedNs / 1'000'000);
  const std::string limit = limitMs == 0 || limitMs > waitedMs ? "its deadline" : format("the deadline of {} ms", limitMs);
  return error(Code::RemoteError, "rank {} has waited {} ms, which is past {}, in {}: its {} {}{}", v.rank, waitedMs, limit,
               describeAll(calls), whoWaits(v), describeWait(v), inTurn);
}

bool isForRank(const Verdict& v) { return v.waiting != Waiting::ForHandOver && v.waiting < Waiting::OtherPlace && v.peer >= 0; }

/// What a rank waited for when it gave up, or when another one did. Null: it is not known to have waited for a rank.
const Verdict* ownWait(const Page& page, int32_t rank) {
  for (Verdict* const verdict : {&page.waits(rank).givenUp, &page.rank(rank).endedStage}) {
    const uint32_t state = std::atomic_ref(verdict->state).load(std::memory_order_acquire);
    if ((state == Verdict::Complete || state == Verdict::Ended) && isForRank(*verdict)) return verdict;
  }
  return nullptr;
}

/// Of the waits of ranks, from that of `first` on, each for the next: the one that ends them. Null: they go round.
const Verdict* endOfWaits(const Verdict& first, const Page& page, int32_t ranks) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  const Verdict* last = &first;
  for (int32_t steps = 0; steps < ranks; ++steps) {
    if (last->peer >= ranks) return last;
    const Verdict* next = ownWait(page, last->peer);
    for (; next == nullptr && std::chrono::steady_clock::now() < end; next = ownWait(page, last->peer)) std::this_thread::yield();
    if (next == nullptr) return last;
    last = next;
  }
  return nullptr;
}

}  // namespace

GivenUp readVerdict(const Verdict& v, const Page& page, int32_t ranks) {
  GivenUp result{Rank(v.rank), {}, {}, static_cast<int64_t>(v.waitedNs / 1'000'000)};
  LaunchBook::Found found = find(page, v.rank, v.signature);
  const std::vector<Call> calls = suspected(std::move(found.calls), v);
  for (const Call& call : calls) {
    transport::local::ChainWait& chain = result.wait.chains.emplace_back();
    chain.call = call;
    chain.step = static_cast<uint32_t>(std::max(v.step, 0));
  }
  if (!calls.empty() && v.waiting < Waiting::OtherPlace) result.wait.chains.front().words = describeWait(v);  // once: it is one wait
  if (v.waiting == Waiting::Mismatch) {
    result.outcome = mismatchOf(v, page);
  } else if (v.waiting == Waiting::OtherPlace) {
    result.outcome = {Ending::Mismatch,
                      error(Code::InvalidUsage,
                            "a buffer of rank {} lies elsewhere in its symmetric windows than that of rank {}: NCCL_WIN_COLL_SYMMETRIC "
                            "promises the same offset on all ranks",
                            v.peer, v.rank),
                      {}};
  } else {
    const auto limitNs = std::atomic_ref(page.waits(v.rank).limitNs).load(std::memory_order_relaxed);
    const Rank come = found.isEager ? comeTo(calls, v, page) : Rank(-1);  // now: who comes while others tell of their waits came too late
    const Verdict* const last = isForRank(v) ? endOfWaits(v, page, ranks) : nullptr;
    const std::string inTurn =
        last == nullptr || last == &v ? "" : format("; that of rank {}, where these waits end, {}", last->rank, describeWait(*last));
    result.outcome = {Ending::Deadline, deadlineOf(v, static_cast<int64_t>(limitNs / 1'000'000), calls, inTurn), {}};
    result.outcome.isOfGraph = !found.isEager;
    result.outcome.come = come;
    if (last != nullptr) {
      result.outcome.awaited = Rank(last->peer);
    } else if (!found.isEager && isForRank(v)) {
      result.outcome.awaited = Rank(v.peer);
    }
  }
  return result;
}

std::string describeLasting(const Verdict& wait, const Page& page) {
  const std::vector<Call> calls = suspected(callsOf(page, wait.rank, wait.signature), wait);
  return format("rank {} has waited for {} ms in {}: its {} {}", wait.rank, wait.waitedNs / 1'000'000, describeAll(calls),
                whoWaits(wait), describeWait(wait));
}

uint64_t signatureOf(std::span<const Call* const> calls) {
  uint64_t signature = 0;
  for (const Call* const call : calls) {
    const uint64_t own = exec::host::packSignature(*call);
    if (calls.size() == 1) return own;
    signature = (signature ^ own) * 0x9e3779b97f4a7c15U;
  }
  return (signature & kRest) | kSeveral;
}

uint64_t signatureOfMessages(uint64_t number) { return static_cast<uint64_t>(Collective::SendRecv) << kKindShift | (number & kRest); }

}  // namespace tutti::comm
