#include "library.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "nccl.h"

namespace tutti::bench {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "bench_net: %s\n", ncclGetLastError(nullptr));
  std::_Exit(1);
}

}  // namespace

LibraryRank::LibraryRank(bool first, int control) : first_(first) {
  setenv("NCCL_HOSTID", first ? "first" : "second", 1);
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  ncclUniqueId id;
  if (first) check(ncclGetUniqueId(&id));
  if ((first ? write(control, &id, sizeof id) : read(control, &id, sizeof id)) != sizeof id) std::_Exit(1);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, 2, id, first ? 0 : 1));
  comm_ = comm;
}

LibraryRank::~LibraryRank() { check(ncclCommDestroy(static_cast<ncclComm_t>(comm_))); }

double LibraryRank::ping(std::span<const std::byte> out, std::span<std::byte> in, int times) {
  auto* const comm = static_cast<ncclComm_t>(comm_);
  const int peer = first_ ? 1 : 0;
  const double begin = now();
  for (int i = 0; i < times; ++i) {
    if (first_) check(ncclSend(out.data(), out.size(), ncclChar, peer, comm, nullptr));
    check(ncclRecv(in.data(), in.size(), ncclChar, peer, comm, nullptr));
    if (!first_) check(ncclSend(in.data(), in.size(), ncclChar, peer, comm, nullptr));
  }
  return (now() - begin) / times / 2;
}

double LibraryRank::copy(std::span<std::byte> buffer) {
  auto* const comm = static_cast<ncclComm_t>(comm_);
  char word = 0;
  const double begin = now();
  if (first_) {
    check(ncclSend(buffer.data(), buffer.size(), ncclChar, 1, comm, nullptr));
    check(ncclRecv(&word, 1, ncclChar, 1, comm, nullptr));
  } else {
    check(ncclRecv(buffer.data(), buffer.size(), ncclChar, 0, comm, nullptr));
    check(ncclSend(&word, 1, ncclChar, 0, comm, nullptr));
  }
  return now() - begin;
}

}  // namespace tutti::bench
