#include "peers/tutti.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bench/team.h"
#include "core/format.h"
#include "launch/exchange.h"
#include "launch/rank.h"

namespace tutti::bench {
namespace {

constexpr auto kMostWait = std::chrono::seconds(60);
constexpr int kExitError = 3;

}  // namespace

void stop(std::string_view what) {
  std::fprintf(stderr, "bench: %.*s\n", static_cast<int>(what.size()), what.data());
  std::fflush(nullptr);
  std::_Exit(kExitError);
}

std::unique_ptr<Tutti> Tutti::connect() {
  const launch::Environment environment = launch::readEnvironment();
  const Result<launch::Standing> standing = launch::findStanding(environment);
  if (!standing) stop(standing.error().text());
  if (standing->ranks < 2) stop("needs ranks: start it with `tutti run -n 2 --` or with mpirun");
  const Result<ncclUniqueId> id = launch::exchangeId(*standing, environment, makeUniqueId, kMostWait);
  if (!id) stop(id.error().text());
  std::unique_ptr<Tutti> tutti(new Tutti(standing->rank, standing->ranks));
  tutti->check(ncclCommInitRank(&tutti->comm_, standing->ranks, *id, standing->rank));
  return tutti;
}

Tutti::~Tutti() { (void)ncclCommDestroy(comm_); }

void Tutti::check(ncclResult_t result) const {
  if (result == ncclSuccess) [[likely]] return;
  stop(format("rank {}: {}: {}", rank_, ncclGetErrorString(result), ncclGetLastError(comm_)));
}

void Tutti::agreeOnMax(std::vector<double>& values) {
  check(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat64, ncclMax, comm_, nullptr));
}

void Tutti::agreeOnSum(std::vector<double>& values) {
  check(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat64, ncclSum, comm_, nullptr));
}

void Tutti::barrier() {
  float here = 0;
  allReduce(&here, &here, 1);
}

void Tutti::allReduce(const float* in, float* out, size_t count) {
  check(ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm_, nullptr));
}

void Tutti::allGather(const float* in, float* out, size_t part) { check(ncclAllGather(in, out, part, ncclFloat, comm_, nullptr)); }

void Tutti::reduceScatter(const float* in, float* out, size_t part) {
  check(ncclReduceScatter(in, out, part, ncclFloat, ncclSum, comm_, nullptr));
}

void Tutti::allToAll(const float* in, float* out, size_t part) { check(ncclAlltoAll(in, out, part, ncclFloat, comm_, nullptr)); }

void Tutti::broadcast(float* data, size_t count, int root) {
  check(ncclBroadcast(data, data, count, ncclFloat, root, comm_, nullptr));
}

void Tutti::sendReceive(const float* in, int to, float* out, int from, size_t count) {
  check(ncclGroupStart());
  check(ncclSend(in, count, ncclFloat, to, comm_, nullptr));
  check(ncclRecv(out, count, ncclFloat, from, comm_, nullptr));
  check(ncclGroupEnd());
}

}  // namespace tutti::bench
