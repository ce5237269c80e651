// Any MPI library, as it comes: Open MPI from Debian's packages is what the numbers in docs/performance/cpu.md are of.
#include <mpi.h>

#include "core/format.h"
#include "peers/tutti.h"

namespace tutti::bench {
namespace {

void check(int result) {
  if (result != MPI_SUCCESS) stop(format("MPI: error {}", result));
}

class Mpi final : public Library {
 public:
  Mpi() { check(MPI_Init(nullptr, nullptr)); }
  ~Mpi() override { (void)MPI_Finalize(); }

  /// The first line of what the library says of itself, up to a comma: "Open MPI v4.1.4".
  std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check(MPI_Get_library_version(text, &length));
    const std::string_view version(text, static_cast<size_t>(length));
    return std::string(version.substr(0, version.find_first_of(",\n")));
  }

  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD)); }
  void allReduce(const float* in, float* out, size_t count) override {
    check(MPI_Allreduce(in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  }
  void allGather(const float* in, float* out, size_t part) override {
    check(MPI_Allgather(in, static_cast<int>(part), MPI_FLOAT, out, static_cast<int>(part), MPI_FLOAT, MPI_COMM_WORLD));
  }
  void reduceScatter(const float* in, float* out, size_t part) override {
    check(MPI_Reduce_scatter_block(in, out, static_cast<int>(part), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
  }
  void allToAll(const float* in, float* out, size_t part) override {
    check(MPI_Alltoall(in, static_cast<int>(part), MPI_FLOAT, out, static_cast<int>(part), MPI_FLOAT, MPI_COMM_WORLD));
  }
  void broadcast(float* data, size_t count, int root) override {
    check(MPI_Bcast(data, static_cast<int>(count), MPI_FLOAT, root, MPI_COMM_WORLD));
  }
  void sendReceive(const float* in, int to, float* out, int from, size_t count) override {
    const int n = static_cast<int>(count);
    check(MPI_Sendrecv(in, n, MPI_FLOAT, to, 0, out, n, MPI_FLOAT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
};

}  // namespace

std::unique_ptr<Library> connectPeer(Tutti& tutti) {
  auto mpi = std::make_unique<Mpi>();
  int rank = 0;
  int ranks = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  if (rank != tutti.rank() || ranks != tutti.ranks()) stop("MPI and tutti count the ranks differently: start it with mpirun");
  return mpi;
}

}  // namespace tutti::bench
