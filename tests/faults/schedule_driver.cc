#include "faults/schedule_driver.h"

#include <chrono>
#include <cstdio>
#include <thread>

namespace tutti::faults {

constexpr ncclResult_t ok = ncclSuccess;

World::World(const Plan& p, uint64_t s)
    : plan(p), seed(s), handles(p.circles.size()), ids(p.circles.size()), ready(p.events.size()), at(static_cast<size_t>(p.threads)) {
  for (size_t c = 0; c < p.circles.size(); ++c) {
    handles[c] = std::deque<std::atomic<ncclComm_t>>(p.circles[c].members.size());
    expect(ncclGetUniqueId(&ids[c]) == ok, "ncclGetUniqueId");
  }
}

void World::expect(bool holds, const char* what, int event, int rank, int64_t seen) {
  if (holds || failures++ > 5) return;  // later ones follow from the first
  std::fprintf(stderr, "schedule %llu, event %d, rank %d: %s (%lld); last error: %s\n", static_cast<unsigned long long>(seed), event, rank,
               what, static_cast<long long>(seen), ncclGetLastError(nullptr));
}

void Driver::run() {
  for (size_t i = 0; i < w_.plan.events.size(); ++i) {
    event_ = static_cast<int>(i);
    w_.at[static_cast<size_t>(thread_)] = event_;
    perform(w_.plan.events[i]);
  }
  for (auto& [rank, stream] : streams_) {
    flush(rank);
    check(tuttiStreamDestroy(stream) == ok, "tuttiStreamDestroy", rank);
  }
}

void Driver::perform(const Event& e) {
  switch (e.kind) {
    case Kind::Create: return create(e);
    case Kind::Operate: return operate(e);
    case Kind::Together: return together(e);
    case Kind::Split:
    case Kind::Shrink: return divide(e);
    case Kind::ShrinkAbort: return complete(e, true), divide(e);
    case Kind::Revoke: return revoke(e);
    case Kind::Abort: return abort(e);
    case Kind::EndBroken: return endBroken(e);
    case Kind::Destroy: return destroy(e);
    case Kind::Abandon: return abandon(e);
  }
}

std::vector<Driver::Member> Driver::mine(int c) const {
  std::vector<Member> members;
  for (size_t p = 0; c >= 0 && p < circle(c).members.size(); ++p)
    if (drives(circle(c).members[p])) members.push_back({circle(c).members[p], static_cast<int>(p)});
  return members;
}

ncclResult_t Driver::settle(ncclComm_t comm) {
  for (int tries = 0;; ++tries) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
    if (result != ok) return result;
    if (state != ncclInProgress) return state;
    if (tries < 100) std::this_thread::yield();
    if (tries >= 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// ---- making communicators

ncclResult_t Driver::join(int c, const Member& m, ncclComm_t* comm, int ranks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = circle(c).blocking ? 1 : 0;
  config.splitShare = circle(c).shares ? 1 : 0;
  return ncclCommInitRankConfig(comm, ranks, w_.ids[static_cast<size_t>(c)], m.place, &config);
}

void Driver::create(const Event& e) {
  const auto members = mine(e.circle);
  if (members.empty()) return;
  std::vector<ncclComm_t> comms(members.size());
  const bool grouped = members.size() > 1 || chance(50);
  const ncclResult_t begun = circle(e.circle).blocking ? ok : ncclInProgress;
  if (grouped) (void)ncclGroupStart();
  for (size_t i = 0; i < members.size(); ++i) {
    const ncclResult_t result = join(e.circle, members[i], &comms[i], static_cast<int>(circle(e.circle).members.size()));
    check(result == (grouped ? ok : begun), "ncclCommInitRankConfig", members[i].rank, result);
  }
  if (grouped) check(ncclGroupEnd() == begun, "ncclGroupEnd after joins");
  publish(e.circle, members, comms);
}

void Driver::publish(int c, const std::vector<Member>& members, const std::vector<ncclComm_t>& comms) {
  for (size_t i = 0; i < members.size(); ++i) {
    const ncclResult_t state = settle(comms[i]);
    check(state == ok, "state of a new communicator", members[i].rank, state);
    handle(c, members[i].place) = comms[i];
  }
}

/// Ranks of a communicator of which one never comes.
void Driver::abandon(const Event& e) {
  for (const Member& m : mine(e.circle)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    const int ranks = static_cast<int>(circle(e.circle).members.size()) + 1;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, w_.ids[static_cast<size_t>(e.circle)], m.place, &config);
    // Whoever comes after the first abort is refused, or told of it at once.
    const bool isTold = comm == nullptr && (result == ncclInvalidUsage || result == ncclRemoteError);
    check(result == ncclInProgress || isTold, "a join that cannot succeed", m.rank, result);
    ncclResult_t state = ok;
    if (comm != nullptr)
      check(ncclCommGetAsyncError(comm, &state) == ok && state != ok, "state of a join that cannot succeed", m.rank, state);
    check(ncclCommAbort(comm) == ok, "abort of a join", m.rank);
  }
}

void Driver::divide(const Event& e) {
  auto members = mine(e.circle);
  if (e.kind != Kind::Split) std::erase_if(members, [&e](const Member& m) { return e.children[static_cast<size_t>(m.place)] < 0; });
  if (members.empty()) return;
  std::vector<ncclComm_t> made(members.size(), reinterpret_cast<ncclComm_t>(0x5));
  const bool blocking = circle(e.circle).blocking;
  const bool grouped = members.size() > 1 || chance(50);
  if (grouped) (void)ncclGroupStart();
  for (size_t i = 0; i < members.size(); ++i) {
    const auto place = static_cast<size_t>(members[i].place);
    ncclComm_t comm = handle(e.circle, members[i].place);
    std::vector<int> excluded = e.excluded;
    const ncclResult_t result =
        e.kind == Kind::Split ? ncclCommSplit(comm, e.colors[place], e.keys[place], &made[i], nullptr)
                              : ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &made[i], nullptr,
                                               e.kind == Kind::ShrinkAbort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT);
    check(result == ok, "ncclCommSplit or ncclCommShrink", members[i].rank, result);
    if (grouped) check(made[i] == nullptr, "no child before the group's end", members[i].rank);
  }
  if (grouped) check(ncclGroupEnd() == (blocking ? ok : ncclInProgress), "ncclGroupEnd after splits");
  for (size_t i = 0; i < members.size(); ++i) {
    const ncclResult_t state = settle(handle(e.circle, members[i].place));
    check(state == (e.kind == Kind::ShrinkAbort ? ncclRemoteError : ok), "state of the parent", members[i].rank, state);
    const int child = e.children[static_cast<size_t>(members[i].place)];
    check((made[i] != nullptr) == (child >= 0), "who gets a child", members[i].rank);
    if (made[i] == nullptr) continue;
    int rank = -1, size = -1;
    check(ncclCommUserRank(made[i], &rank) == ok && rank == circle(child).placeOf(members[i].rank), "rank in the child", members[i].rank,
          rank);
    check(ncclCommCount(made[i], &size) == ok && size == static_cast<int>(circle(child).members.size()), "size of the child",
          members[i].rank, size);
    handle(child, rank) = made[i];
  }
}

// ---- ends

/// Completes what is pending of the ranks concerned; who `waits` goes on when that is so on every thread.
void Driver::complete(const Event& e, bool waits) {
  auto& ready = w_.ready[static_cast<size_t>(event_)];
  for (const int rank : e.concerned) {
    if (!drives(rank)) continue;
    flush(rank);
    ++ready;
  }
  while (waits && ready < static_cast<int>(e.concerned.size())) std::this_thread::yield();
}

/// An all-reduce that must fail, because a rank will not take part, or has cut off everything.
void Driver::callInVain(int c, const std::vector<Member>& members) {
  if (members.empty()) return;
  std::vector<int> values(members.size());
  (void)ncclGroupStart();
  for (size_t i = 0; i < members.size(); ++i)
    (void)ncclAllReduce(&values[i], &values[i], 1, ncclInt, ncclSum, handle(c, members[i].place), nullptr);
  ncclResult_t result = ncclGroupEnd();
  for (size_t i = 0; result == ncclInProgress && i < members.size(); ++i) {
    const ncclResult_t state = settle(handle(c, members[i].place));
    check(state != ok && state != ncclInProgress, "state after a call in vain", members[i].rank, state);
  }
  check(result != ok, "a call in vain", members[0].rank, result);
}

void Driver::endOne(int c, const Member& m, bool aborts) {
  ncclComm_t comm = handle(c, m.place);
  const ncclResult_t result = aborts ? ncclCommAbort(comm) : ncclCommDestroy(comm);
  check(result == ok, "end of a communicator", m.rank, result);
  if (!chance(20)) return;
  check(ncclCommDestroy(comm) == ncclInvalidArgument, "end of what has ended", m.rank);
  check(ncclCommAbort(comm) == ok, "abort of what has ended", m.rank);
}

void Driver::revoke(const Event& e) {
  complete(e, drives(e.actor) || !circle(e.circle).blocking);
  const auto members = mine(e.circle);
  std::vector<Member> others;
  for (const Member& m : members) {
    if (m.rank != e.actor) others.push_back(m);
    if (m.rank == e.actor) check(ncclCommRevoke(handle(e.circle, m.place), 0) == ok, "ncclCommRevoke", m.rank);
  }
  if (circle(e.circle).blocking) callInVain(e.circle, others);  // a non-blocking one would be poisoned
  for (const Member& m : others) check(ncclCommRevoke(handle(e.circle, m.place), 0) == ok, "ncclCommRevoke of the others", m.rank);
  for (const Member& m : members) {
    ncclResult_t state = ncclInternalError;
    check(ncclCommGetAsyncError(handle(e.circle, m.place), &state) == ok && state == ok, "state of a revoked communicator", m.rank, state);
  }
}

void Driver::abort(const Event& e) {
  complete(e, drives(e.actor));
  std::vector<Member> others;
  for (const Member& m : mine(e.circle)) {
    if (m.rank != e.actor) others.push_back(m);
    if (m.rank != e.actor) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(300)));
    const auto begin = std::chrono::steady_clock::now();
    check(ncclCommAbort(handle(e.circle, m.place)) == ok, "ncclCommAbort", m.rank);
    check(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1), "an abort takes less than a second", m.rank);
  }
  callInVain(e.circle, others);
  for (const Member& m : others) endOne(e.circle, m, e.aborts);
}

void Driver::endBroken(const Event& e) {
  const auto members = mine(e.circle);
  complete(e, !members.empty());
  if (e.inVain) callInVain(e.circle, members);
  for (const Member& m : members) endOne(e.circle, m, e.aborts);
}

void Driver::destroy(const Event& e) {
  const auto members = mine(e.circle);
  const bool blocking = circle(e.circle).blocking;
  const bool finalizes = chance(50);
  for (const Member& m : members) {
    if (!finalizes) break;
    const ncclResult_t result = ncclCommFinalize(handle(e.circle, m.place));
    check(result == (blocking ? ok : ncclInProgress), "ncclCommFinalize", m.rank, result);
  }
  for (const Member& m : members) {
    ncclComm_t comm = handle(e.circle, m.place);
    check(settle(comm) == ok, "state before the end", m.rank);
    const ncclResult_t result = ncclCommDestroy(comm);
    check(result == ok, "ncclCommDestroy", m.rank, result);
    if (chance(20)) check(ncclCommDestroy(comm) == ncclInvalidArgument, "a second destroy", m.rank);
  }
}

}  // namespace tutti::faults
