// Collectives of tutti and of an MPI library side by side: the same processes, the same buffers, one after the other in turns.
//
//   mpirun -n 2 build/release/bin/bench_mpi [all_reduce|all_gather|reduce_scatter|broadcast|all_to_all|all] [--from 8] [--to 64M]
//                                           [--buffers malloc|ncclmem] [--rounds 21]
//
// One row a size: medians over the rounds, and their ratio. A round of a library is a batch of calls; before each call every rank
// writes its input anew, so that no cache holds what another rank is to read. Only the calls are timed; a round's time is the mean of
// its calls on the slowest rank. Results of both libraries are compared with each other, and the first with the expected value.
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

int rank = 0;
int ranks = 1;

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "bench_mpi: rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void check(ncclResult_t result) {
  if (result != ncclSuccess) stop(ncclGetLastError(nullptr));
}

struct Buffers {
  float* in = nullptr;
  float* out = nullptr;
  size_t inCount = 0;
  size_t outCount = 0;
};

/// How many elements a rank gives and gets when the larger buffer holds `count`.
struct Collective {
  const char* name;
  bool inIsPart;
  bool outIsPart;
  std::function<void(const Buffers&, size_t part, ncclComm_t)> tutti;
  std::function<void(const Buffers&, int part)> mpi;
  std::function<float(size_t i, size_t part)> expected;
};

float valueOf(int from, size_t i) { return static_cast<float>((static_cast<size_t>(from) * 31 + i * 7) % 64); }

std::vector<Collective> collectives() {
  return {
      {"all_reduce", false, false,
       [](const Buffers& b, size_t, ncclComm_t comm) { check(ncclAllReduce(b.in, b.out, b.outCount, ncclFloat, ncclSum, comm, nullptr)); },
       [](const Buffers& b, int) { MPI_Allreduce(b.in, b.out, static_cast<int>(b.outCount), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
       [](size_t i, size_t) {
         float sum = 0;
         for (int r = 0; r < ranks; ++r) sum += valueOf(r, i);
         return sum;
       }},
      {"all_gather", true, false,
       [](const Buffers& b, size_t part, ncclComm_t comm) { check(ncclAllGather(b.in, b.out, part, ncclFloat, comm, nullptr)); },
       [](const Buffers& b, int part) { MPI_Allgather(b.in, part, MPI_FLOAT, b.out, part, MPI_FLOAT, MPI_COMM_WORLD); },
       [](size_t i, size_t part) { return valueOf(static_cast<int>(i / part), i % part); }},
      {"reduce_scatter", false, true,
       [](const Buffers& b, size_t part, ncclComm_t comm) {
         check(ncclReduceScatter(b.in, b.out, part, ncclFloat, ncclSum, comm, nullptr));
       },
       [](const Buffers& b, int part) { MPI_Reduce_scatter_block(b.in, b.out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
       [](size_t i, size_t part) {
         float sum = 0;
         for (int r = 0; r < ranks; ++r) sum += valueOf(r, static_cast<size_t>(rank) * part + i);
         return sum;
       }},
      {"broadcast", false, false,
       [](const Buffers& b, size_t, ncclComm_t comm) { check(ncclBroadcast(b.in, b.out, b.outCount, ncclFloat, 0, comm, nullptr)); },
       [](const Buffers& b, int) { MPI_Bcast(rank == 0 ? b.in : b.out, static_cast<int>(b.outCount), MPI_FLOAT, 0, MPI_COMM_WORLD); },
       [](size_t i, size_t) { return valueOf(0, i); }},
      {"all_to_all", false, false,
       [](const Buffers& b, size_t part, ncclComm_t comm) { check(ncclAlltoAll(b.in, b.out, part, ncclFloat, comm, nullptr)); },
       [](const Buffers& b, int part) { MPI_Alltoall(b.in, part, MPI_FLOAT, b.out, part, MPI_FLOAT, MPI_COMM_WORLD); },
       [](size_t i, size_t part) { return valueOf(static_cast<int>(i / part), static_cast<size_t>(rank) * part + i % part); }},
  };
}

void writeInput(const Buffers& b) {
  // Stores only, of values that repeat: the cost of making them must not hide what the caches do.
  static std::vector<float> pattern;
  if (pattern.empty())
    for (size_t i = 0; i < 64; ++i) pattern.push_back(valueOf(rank, i));
  size_t i = 0;
  for (; i + 64 <= b.inCount; i += 64) std::memcpy(b.in + i, pattern.data(), 64 * sizeof(float));
  std::memcpy(b.in + i, pattern.data(), (b.inCount - i) * sizeof(float));
}

/// Mean seconds of a call on the slowest rank.
double runRound(const Buffers& b, int calls, const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  double seconds = 0;
  for (int i = 0; i < calls; ++i) {
    writeInput(b);
    const auto from = Clock::now();
    call();
    seconds += std::chrono::duration<double>(Clock::now() - from).count();
  }
  double slowest = 0;
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

size_t countWrong(const Buffers& b, const Collective& c, size_t part) {
  size_t wrong = 0;
  const bool isUntouched = std::strcmp(c.name, "broadcast") == 0 && rank == 0;  // MPI leaves the root's output alone
  for (size_t i = 0; i < b.outCount && !isUntouched; ++i) wrong += b.out[i] != c.expected(i, part) ? 1 : 0;
  return wrong;
}

size_t parseSize(const char* text) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  const double unit = *end == 'K' ? 1024 : *end == 'M' ? 1048576 : *end == 'G' ? 1073741824 : 1;
  return static_cast<size_t>(number * unit);
}

struct Options {
  std::string collective = "all_reduce";
  size_t from = 8;
  size_t to = size_t{64} << 20;
  bool ncclMemory = false;
  int rounds = 21;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--from") options.from = parseSize(value), ++i;
    else if (argument == "--to") options.to = parseSize(value), ++i;
    else if (argument == "--rounds") options.rounds = std::max(1, std::atoi(value)), ++i;
    else if (argument == "--buffers") options.ncclMemory = std::strcmp(value, "ncclmem") == 0, ++i;
    else options.collective = argument;
  }
  return options;
}

float* allocate(size_t bytes, bool ncclMemory) {
  void* memory = nullptr;
  if (ncclMemory) {
    check(ncclMemAlloc(&memory, bytes));
  } else if (posix_memalign(&memory, 4096, bytes) != 0) {
    stop("no memory");
  }
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

void compare(const Collective& c, const Options& options, ncclComm_t comm) {
  const size_t room = options.to + 4096;
  Buffers all{allocate(room, options.ncclMemory), allocate(room, options.ncclMemory), 0, 0};
  if (rank == 0) {
    std::printf("# %s of float, %d processes, %s buffers; medians of %d rounds in turns; time in us\n", c.name, ranks,
                options.ncclMemory ? "ncclMemAlloc" : "malloc", options.rounds);
    std::printf("%12s %12s %12s %8s %8s\n", "bytes", "tutti", "MPI", "ratio", "#wrong");
  }
  for (size_t bytes = options.from; bytes <= options.to; bytes *= bytes < 4096 ? 8 : 4) {
    const size_t part = std::max<size_t>(1, bytes / sizeof(float) / static_cast<size_t>(ranks));
    const bool cut = c.inIsPart || c.outIsPart || std::strcmp(c.name, "all_to_all") == 0;
    const size_t count = cut ? part * static_cast<size_t>(ranks) : bytes / sizeof(float);
    Buffers b = all;
    b.inCount = c.inIsPart ? part : count;
    b.outCount = c.outIsPart ? part : count;
    const int calls = static_cast<int>(std::clamp<size_t>((size_t{4} << 20) / bytes, 1, 2000));
    std::vector<double> tutti, mpi;
    size_t wrong = 0;
    for (int round = -2; round < options.rounds; ++round) {  // the first two warm up
      const double a = runRound(b, calls, [&] { c.tutti(b, part, comm); });
      if (round == 0) wrong += countWrong(b, c, part);
      const double m = runRound(b, calls, [&] { c.mpi(b, static_cast<int>(part)); });
      if (round == 0) wrong += countWrong(b, c, part);
      if (round < 0) continue;
      tutti.push_back(a);
      mpi.push_back(m);
    }
    unsigned long long mine = wrong, total = 0;
    MPI_Reduce(&mine, &total, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      std::printf("%12zu %12.2f %12.2f %8.2f %8llu\n", count * sizeof(float), median(tutti) * 1e6, median(mpi) * 1e6,
                  median(mpi) / median(tutti), total);
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Options options = parse(argc, argv);
  ncclUniqueId id;
  if (rank == 0) check(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  check(ncclCommInitRank(&comm, ranks, id, rank));
  bool found = false;
  for (const Collective& c : collectives())
    if (options.collective == c.name || options.collective == "all") compare(c, options, comm), found = true;
  if (!found) stop("unknown collective");
  check(ncclCommDestroy(comm));
  MPI_Finalize();
  return 0;
}
