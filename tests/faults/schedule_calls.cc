// The calls of a schedule: their buffers, and what they must hold afterwards.
#include <thread>

#include "faults/schedule_driver.h"

namespace tutti::faults {
namespace {

constexpr ncclResult_t ok = ncclSuccess;

int valueOf(uint64_t seed, int place, size_t i) {
  return static_cast<int>(conformance::mix(seed, static_cast<uint64_t>(place) * 0x10001 + i) & 0xffff);
}

size_t countOf(uint64_t seed) {
  const uint64_t dice = seed >> 32 & 31;
  return dice == 0 ? 60000 : dice < 6 ? 3000 : static_cast<size_t>(seed >> 40 & 63);
}

enum class Operation : uint8_t { AllReduce, Broadcast, AllGather, Exchange };

}  // namespace

/// Issues this rank's part of the event's operation.
ncclResult_t Driver::queue(int c, uint64_t seed, const Member& m, bool mayStream, ncclResult_t begun, std::vector<Queued>& queued) {
  const auto operation = static_cast<Operation>(seed & 3);
  const int size = static_cast<int>(circle(c).members.size());
  const int root = static_cast<int>((seed >> 2) % static_cast<uint64_t>(size));
  const size_t n = countOf(seed);
  auto work = std::make_unique<Work>();
  for (size_t i = 0; i < n; ++i) work->in.push_back(valueOf(seed, m.place, i));
  work->out.resize(operation == Operation::AllGather ? n * static_cast<size_t>(size) : n, -1);
  const auto expectFrom = [&](int place) {
    for (size_t i = 0; i < n; ++i) work->expected.push_back(valueOf(seed, place, i));
  };
  cudaStream_t stream = nullptr;
  if (mayStream && chance(35)) {
    cudaStream_t& own = streams_[m.rank];
    if (own == nullptr) check(tuttiStreamCreate(&own) == ok, "tuttiStreamCreate", m.rank);
    stream = own;
  }
  ncclComm_t comm = handle(c, m.place);
  const void* in = work->in.data();
  void* out = work->out.data();
  // A buffer without elements may have no address; the library is told one.
  int none = 0;
  if (n == 0) in = out = &none;
  ncclResult_t result = ok;
  switch (operation) {
    case Operation::AllReduce:
      work->expected.assign(n, 0);
      for (int p = 0; p < size; ++p)
        for (size_t i = 0; i < n; ++i) work->expected[i] += valueOf(seed, p, i);
      result = ncclAllReduce(in, out, n, ncclInt, ncclSum, comm, stream);
      break;
    case Operation::Broadcast:
      expectFrom(root);
      result = ncclBroadcast(in, out, n, ncclInt, root, comm, stream);
      break;
    case Operation::AllGather:
      for (int p = 0; p < size; ++p) expectFrom(p);
      result = ncclAllGather(in, out, n, ncclInt, comm, stream);
      break;
    case Operation::Exchange: {
      expectFrom((m.place + size - 1) % size);
      (void)ncclGroupStart();
      check(ncclSend(in, n, ncclInt, (m.place + 1) % size, comm, stream) == ok, "ncclSend", m.rank);
      check(ncclRecv(out, n, ncclInt, (m.place + size - 1) % size, comm, stream) == ok, "ncclRecv", m.rank);
      result = ncclGroupEnd();
      break;
    }
  }
  check(result == begun, "a call", m.rank, result);
  queued.push_back({m, std::move(work), stream});
  return result;
}

/// The calls have been launched: checks those that are complete.
void Driver::finish(int c, std::vector<Queued>& queued) {
  for (Queued& q : queued) {
    const ncclResult_t state = settle(handle(c, q.member.place));
    check(state == ok, "state after a call", q.member.rank, state);
    if (q.stream == nullptr) {
      verify(*q.work, q.member.rank);
    } else {
      pending_[q.member.rank].push_back(std::move(q.work));
    }
  }
}

void Driver::verify(const Work& work, int rank) { check(work.out == work.expected, "result", rank, static_cast<int64_t>(work.out.size())); }

void Driver::flush(int rank) {
  const auto works = pending_.find(rank);
  if (works == pending_.end() || works->second.empty()) return;
  const ncclResult_t result = tuttiStreamSynchronize(streams_[rank]);
  check(result == ok, "tuttiStreamSynchronize", rank, result);
  for (const auto& work : works->second) verify(*work, rank);
  works->second.clear();
}

void Driver::operate(const Event& e) {
  const auto members = mine(e.circle);
  if (members.empty()) return;
  const bool grouped = members.size() > 1 || chance(30);
  const ncclResult_t begun = circle(e.circle).blocking ? ok : ncclInProgress;
  std::vector<Queued> queued;
  if (grouped) (void)ncclGroupStart();
  for (const Member& m : members) (void)queue(e.circle, e.seed, m, true, grouped ? ok : begun, queued);
  if (grouped) {
    const ncclResult_t result = ncclGroupEnd();
    check(result == begun, "ncclGroupEnd", members[0].rank, result);
  }
  finish(e.circle, queued);
  for (const Member& m : members)
    if (chance(40)) flush(m.rank);
}

/// Calls of two communicators, and the making of a third, in one group.
void Driver::together(const Event& e) {
  const auto first = mine(e.circle), second = mine(e.second), third = mine(e.third);
  if (first.empty() && second.empty() && third.empty()) return;
  std::vector<Queued> inFirst, inSecond;
  std::vector<ncclComm_t> comms(third.size());
  (void)ncclGroupStart();
  for (const Member& m : first) (void)queue(e.circle, e.seed, m, false, ok, inFirst);
  for (size_t i = 0; i < third.size(); ++i) {
    const ncclResult_t result = join(e.third, third[i], &comms[i], static_cast<int>(circle(e.third).members.size()));
    check(result == ok, "ncclCommInitRankConfig in a group", third[i].rank, result);
  }
  for (const Member& m : second) (void)queue(e.second, e.seed * 3, m, false, ok, inSecond);
  const ncclResult_t result = ncclGroupEnd();
  check(result == (circle(e.circle).blocking ? ok : ncclInProgress), "ncclGroupEnd of a mixed group", -1, result);
  publish(e.third, third, comms);
  finish(e.circle, inFirst);
  finish(e.second, inSecond);
}

}  // namespace tutti::faults
