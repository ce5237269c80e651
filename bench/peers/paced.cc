// Broadcasts or messages of 8 bytes between two processes that take turns, so that nobody ever waits inside a call: for counting the
// instructions of one (instructions).
//
//   bench_paced CALLS [broadcast|message|group]
//
// group: a message alone in a group.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "nccl.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitError = 3;
constexpr int kExitWrong = 1;

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "bench_paced: %s\n", ncclGetLastError(nullptr));
  std::_Exit(kExitError);
}

/// One direction between the processes.
struct Channel {
  int ends[2];
  Channel() {
    if (pipe(ends) != 0) std::_Exit(kExitError);
  }
  template <class Value>
  void send(const Value& value) const {
    if (write(ends[1], &value, sizeof value) != sizeof value) std::_Exit(kExitError);
  }
  template <class Value>
  void receive(Value& value) const {
    if (read(ends[0], &value, sizeof value) != sizeof value) std::_Exit(kExitError);
  }
};

void makeCall(std::string_view kind, float* value, int rank, ncclComm_t comm) {
  if (kind == "broadcast") return check(ncclBroadcast(value, value, 2, ncclFloat, 0, comm, nullptr));
  const bool isGrouped = kind == "group";
  if (isGrouped) check(ncclGroupStart());
  check(rank == 0 ? ncclSend(value, 2, ncclFloat, 1, comm, nullptr) : ncclRecv(value, 2, ncclFloat, 0, comm, nullptr));
  if (isGrouped) check(ncclGroupEnd());
}

void makeCalls(int calls, std::string_view kind, int rank, ncclComm_t comm, const Channel& in, const Channel& out) {
  char turn = 0;
  for (int i = 0; i < calls; ++i) {
    if (rank == 1) in.receive(turn);
    float value[2] = {static_cast<float>(rank == 0 ? i : -1), 1};
    makeCall(kind, value, rank, comm);
    if (value[0] != static_cast<float>(i)) std::_Exit(kExitWrong);
    out.send(turn);
    if (rank == 0) in.receive(turn);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 0;
  const std::string_view kind = argc > 2 ? argv[2] : "broadcast";
  if (calls <= 0 || (kind != "broadcast" && kind != "message" && kind != "group")) {
    std::fprintf(stderr, "usage: bench_paced CALLS [broadcast|message|group]\n");
    return kExitUsage;
  }
  const Channel there;
  const Channel back;
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  const Channel& in = rank == 0 ? back : there;
  const Channel& out = rank == 0 ? there : back;
  ncclUniqueId id;
  if (rank == 0) {
    check(ncclGetUniqueId(&id));
    out.send(id);
  } else {
    in.receive(id);
  }
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, 2, id, rank));
  makeCalls(calls, kind, rank, comm, in, out);
  check(ncclCommDestroy(comm));
  int status = 0;
  if (rank == 0 && waitpid(child, &status, 0) != child) return kExitError;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kExitError;
}
