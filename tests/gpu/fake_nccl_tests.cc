// Stands in for the programs of nccl-tests, for mpirun and for the probes, by the name it is called with, so that tests/gpu/run is tested
// without a GPU. It maps the libnccl.so.2 that the loader finds and prints the table that the options ask for.
//
// FAKE="NAME=DEED NAME=DEED…" lets the program NAME misbehave (deeds: see perform()); FAKE_PIDS names a file for the process ids of
// one that hangs; FAKE_FOREIGN is the library that the deed "foreign" maps.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

struct Table {
  std::string program;
  std::string deed;
  std::vector<size_t> sizes;
  std::vector<std::string> types;
  std::vector<std::string> ops;
  std::vector<int> roots;
  double microseconds = 10;
  bool hasOps = false;
  bool blindInPlace = false;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string deedOf(const std::string& program) {
  const std::string all = environment("FAKE");
  const std::string key = program + "=";
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(' ', at), all.size());
    if (all.compare(at, key.size(), key) == 0) return all.substr(at + key.size(), end - at - key.size());
    at = end + 1;
  }
  return "";
}

bool isOneOf(const std::string& name, std::initializer_list<const char*> names) {
  for (const char* n : names)
    if (name == n) return true;
  return false;
}

[[noreturn]] void sleepForEver() {
  for (;;) pause();
}

/// Does not end when asked to, nor does the process that it starts.
[[noreturn]] void hang() {
  std::signal(SIGTERM, SIG_IGN);
  const pid_t child = fork();
  if (child != 0) {
    if (FILE* file = std::fopen(environment("FAKE_PIDS").c_str(), "w")) {
      std::fprintf(file, "%d %d\n", getpid(), child);
      std::fclose(file);
    }
  }
  sleepForEver();
}

/// A process that outlives this one.
void leaveBehind() {
  if (fork() == 0) sleepForEver();
  usleep(200'000);
}

void printRow(const Table& t, size_t size, const std::string& type, const std::string& op, int root, bool last) {
  std::string wrong = t.deed == "wrong" && last ? "3" : "0";
  if (t.deed == "unchecked") wrong = "N/A";
  const char* inPlace = t.blindInPlace ? "N/A" : wrong.c_str();
  std::printf("%12zu  %12zu  %8s  %6s  %6d", size, size, type.c_str(), op.c_str(), root);
  if (t.deed == "mixed" && last) {
    std::printf("host: something else\n");
    return;
  }
  for (const char* count : {wrong.c_str(), inPlace}) std::printf("  %7.2f  %6.2f  %6.2f  %6s", t.microseconds, 1.0, 2.0, count);
  std::printf("\n");
}

void perform(const Table& t) {
  size_t row = 0;
  const size_t rows = t.sizes.size() * t.types.size() * t.ops.size() * t.roots.size();
  for (const auto& type : t.types)
    for (const auto& op : t.ops)
      for (const int root : t.roots)
        for (const size_t size : t.sizes) {
          ++row;
          if (t.deed == "short" && row == rows) continue;
          if (t.deed == "poor" && type == "f8e5m2") continue;
          if (row > 2 && t.deed == "hang") hang();
          if (row > 2 && t.deed == "crash") std::abort();
          printRow(t, size, type, op, root, row == rows);
        }
  const std::string forced = environment("TUTTI_ALGO");
  if (!forced.empty()) {
    const char* algorithm = t.deed == "detour" ? "pat" : forced.c_str();
    const std::string protocol = t.deed == "simplify" ? "Simple" : environment("NCCL_PROTO");
    if (t.deed != "taciturn")
      std::fprintf(stderr, "INFO AllReduce: 8 elements of float -> algorithm %s, protocol %s\n", algorithm, protocol.c_str());
  }
  if (t.deed != "direct") {
    if (environment("NCCL_P2P_DISABLE") == "1")
      std::fprintf(stderr, "INFO rank 0 and rank 1 exchange data through host memory: NCCL_P2P_DISABLE=1\n");
    if (environment("TUTTI_P2P_PROBE") == "spoil=0-1")
      std::fprintf(stderr, "WARN rank 1 saw 0x2 where rank 0 wrote 0x3 (round 4, word 64)\n");
  }
  if (t.deed == "leave") leaveBehind();
  if (t.deed == "silent") return;
  std::printf("# Out of bounds values : %d %s\n", t.deed == "bounds", t.deed == "bounds" ? "FAILED" : "OK");
  std::printf("# Avg bus bandwidth    : 1.5\n#\n");
}

std::map<char, std::string> parse(int argc, char** argv) {
  std::map<char, std::string> options = {{'b', "8"}, {'e', "8"}, {'r', "0"}, {'d', "float"}, {'o', "sum"}};
  for (const char one : {'f', 'i', 't', 'g'}) options.emplace(one, "1");
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i][1]] = argv[i + 1];
  return options;
}

Table plan(const std::string& program, std::map<char, std::string> options) {
  Table t;
  t.program = program;
  t.deed = deedOf(program);
  const size_t factor = std::stoul(options['f']);
  for (size_t size = std::stoul(options['b']); size <= std::stoul(options['e']);) {
    t.sizes.push_back(size);
    size = factor > 1 ? size * factor : size + std::stoul(options['i']);
  }
  t.types = {options['d']};
  if (t.types[0] == "all")
    t.types = {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  t.hasOps = isOneOf(program, {"all_reduce_perf", "reduce_perf", "reduce_scatter_perf", "sendrecv_perf"});
  t.ops = {t.hasOps ? options['o'] : program == "hypercube_perf" ? "" : "none"};
  if (t.ops[0] == "all") t.ops = {"sum", "prod", "max", "min", "avg", "mulsum"};
  const std::string processes = environment("FAKE_RANKS");
  const int ranks = std::stoi(options['t']) * std::stoi(options['g']) * (processes.empty() ? 1 : std::stoi(processes));
  const bool rooted = isOneOf(program, {"broadcast_perf", "reduce_perf", "scatter_perf", "gather_perf"});
  t.roots = {rooted ? std::stoi(options['r']) : -1};
  if (rooted && t.roots[0] == -1) {
    t.roots.clear();
    for (int r = 0; r < ranks; ++r) t.roots.push_back(r);
  }
  t.blindInPlace = isOneOf(program, {"alltoall_perf", "alltoallv_perf", "sendrecv_perf"});
  return t;
}

int runTest(const std::string& program, int argc, char** argv) {
  Table t = plan(program, parse(argc, argv));
  if (t.deed != "unmapped") {
    void* library = dlopen(t.deed == "foreign" ? environment("FAKE_FOREIGN").c_str() : "libnccl.so.2", RTLD_NOW);
    if (library == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 127;
    }
    using Clock = double (*)();
    t.microseconds = reinterpret_cast<Clock>(dlsym(library, "fakeMicroseconds"))();
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (environment("FAKE_RANK").empty() || environment("FAKE_RANK") == "0") {
    std::printf("# Collective test starting: %s\n# algorithm '%s' protocol '%s' stray '%s'\n", program.c_str(),
                environment("TUTTI_ALGO").c_str(), environment("NCCL_PROTO").c_str(), environment("NCCL_STRAY").c_str());
    for (const char* const name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_UNIVERSE_SIZE", "PMI_RANK", "PMIX_RANK", "OMPI_MCA_plm_rsh_agent", "LD_LIBRARY_PATH"})
      std::printf("# %s '%s'\n", name, environment(name).c_str());
    std::printf("#\n");
    perform(t);
  }
  usleep(200'000);  // long enough to be looked at, on a busy machine too
  return t.deed == "fail" ? 3 : 0;
}

/// … -np N COMMAND…; every process has a group of its own, as with Open MPI.
int runProcesses(int argc, char** argv) {
  int at = 1;
  while (at + 1 < argc && std::strcmp(argv[at], "-np") != 0) ++at;
  if (at + 2 >= argc) return 2;
  const int processes = std::atoi(argv[at + 1]);
  for (int rank = 0; rank < processes; ++rank) {
    if (fork() != 0) continue;
    setpgid(0, 0);
    setenv("FAKE_RANKS", argv[at + 1], 1);
    setenv("FAKE_RANK", std::to_string(rank).c_str(), 1);
    execv(argv[at + 2], argv + at + 2);
    _exit(127);
  }
  int worst = 0, status = 0;
  while (wait(&status) > 0) worst = status != 0 ? 1 : worst;
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  const std::string name = slash == nullptr ? argv[0] : slash + 1;
  if (name == "mpirun") return runProcesses(argc, argv);
  if (name.ends_with("_perf")) return runTest(name, argc, argv);
  std::printf("ok\nverify: 300 of 400 cases, 0 failed\n");
  const std::string deed = deedOf(name);
  return deed.empty() ? 0 : std::stoi(deed);
}
