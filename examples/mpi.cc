// One process a device, started by mpirun: MPI carries the unique id, and nothing else.
//
//   mpirun -n 4 ./mpi
#include <mpi.h>

#include <vector>

#include "check.h"

namespace {

constexpr size_t kCount = 1 << 20;

/// The sum over all ranks, out of place.
void sumEverywhere(ncclComm_t comm, int rank, int ranks) {
  const std::vector<float> mine(kCount, static_cast<float>(rank + 1));
  std::vector<float> total(kCount);
  CHECK(ncclAllReduce(mine.data(), total.data(), kCount, ncclFloat, ncclSum, comm, nullptr));
  const auto expected = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const float value : total) expect(value == expected, "the sum over all ranks");
}

/// Rank 0's data on all ranks.
void broadcast(ncclComm_t comm, int rank) {
  std::vector<double> data(kCount, rank == 0 ? 0.5 : 0);
  CHECK(ncclBroadcast(data.data(), data.data(), kCount, ncclDouble, 0, comm, nullptr));
  for (const double value : data) expect(value == 0.5, "rank 0's data");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  ncclUniqueId id;
  if (rank == 0) CHECK(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);

  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, ranks, id, rank));
  sumEverywhere(comm, rank, ranks);
  broadcast(comm, rank);
  CHECK(ncclCommDestroy(comm));

  MPI_Finalize();
  if (rank == 0) std::printf("mpi: %d processes, all results right\n", ranks);
  return 0;
}
