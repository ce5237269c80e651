// gpu_probe: the algorithm templates as CUDA kernels, checked bit for bit against the host and timed, on the GPUs of one machine.
//
//   gpu_probe verify   fresh inputs, all types, odd counts, in place and not, unaligned, eager and graph
//   gpu_probe oneshot  [--bytes 8,65536] [--threads 128,256] [--cells 1,2] [--ctas MOST] [--overlap 0,1]       time a sweep
//   gpu_probe ring     [--bytes B] [--ctas 64,128] [--threads T] [--unroll U] [--slice BYTES] [--slots S] [--pieces P]  time a sweep
//   gpu_probe absent   [--ring 0|1] [--timeout MS] [--limit MS]     the last rank never comes: who says so, and when
//
// All: --ranks N (2) --devices D --type f32|bf16|f16 --seed S; sweeps: --eager 1 --ops N --replays N. Flags that name sizes take lists. A
// slice travels in P pieces, a pipe has S x P slots. Ranks beyond the devices share them. Every timed row is verified before and after.
// Exit status: 0 all right, 1 a wrong result, 2 a CUDA error or bad argument, 3 a wait gave up.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "check.h"
#include "verify.h"

namespace {

using namespace tutti;
using namespace tutti::probe;

struct Options {
  std::string command;
  std::map<std::string, std::vector<uint64_t>> lists;
  DataType type = DataType::F32;
  uint64_t seed = std::random_device{}();

  const std::vector<uint64_t>& list(const std::string& name) const { return lists.at(name); }
  uint64_t one(const std::string& name) const { return lists.at(name).front(); }
};

[[noreturn]] void refuse(const char* why, const char* what) {
  std::fprintf(stderr, "gpu_probe: %s '%s' (see the head of bench/gpu_probe/main.cu)\n", why, what);
  std::exit(2);
}

std::vector<uint64_t> parseList(const char* text) {
  std::vector<uint64_t> values;
  for (char* rest = const_cast<char*>(text); *rest != 0;) {
    char* end = nullptr;
    values.push_back(std::strtoull(rest, &end, 10));
    if (end == rest) refuse("not a list of numbers:", text);
    rest = *end == ',' ? end + 1 : end;
  }
  if (values.empty()) refuse("empty list", text);
  return values;
}

Options parse(int argc, char** argv) {
  Options o;
  o.lists = {{"ranks", {2}},  {"devices", {0}}, {"bytes", {}},   {"threads", {256}},     {"cells", {1}},      {"ctas", {}},
             {"unroll", {8}}, {"slots", {2}},   {"pieces", {4}}, {"slice", {256 << 10}}, {"overlap", {0}},    {"eager", {0}},
             {"ops", {0}},    {"replays", {0}}, {"seed", {0}},   {"ring", {0}},          {"timeout", {2000}}, {"limit", {20000}}};
  if (argc < 2) refuse("no command:", "");
  o.command = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = std::strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "";
    if (i + 1 == argc) refuse("no value for", argv[i]);
    if (name == "type") {
      const std::string type = argv[i + 1];
      if (type != "f32" && type != "bf16" && type != "f16") refuse("no such type", argv[i + 1]);
      o.type = type == "f32" ? DataType::F32 : type == "bf16" ? DataType::BF16 : DataType::F16;
    } else if (o.lists.count(name) != 0) {
      o.lists[name] = parseList(argv[i + 1]);
    } else {
      refuse("unknown flag", argv[i]);
    }
  }
  if (o.one("seed") != 0) o.seed = o.one("seed");
  return o;
}

const char* nameOf(DataType type) { return type == DataType::F32 ? "f32" : type == DataType::BF16 ? "bf16" : "f16"; }

/// Enough blocks for `cellsPerThread` cells a thread, at most `cap`.
int32_t oneShotChannels(uint64_t bytes, int threads, uint64_t cellsPerThread, uint64_t cap) {
  const uint64_t perBlock = static_cast<uint64_t>(threads) * cellsPerThread * exec::cuda::kCellDataBytes;
  return static_cast<int32_t>(std::clamp<uint64_t>((bytes + perBlock - 1) / perBlock, 1, cap));
}

/// Verifies and says so; leaves the program when it cannot go on.
bool passes(Fabric& fabric, const Job& job, uint64_t seed, bool graph) {
  const VerifyResult v = verify(fabric, job, seed, graph);
  if (v.ran && v.wrong == 0 && v.overwritten == 0) return true;
  std::printf("FAILED %s %s count %llu channels %d slice %llu %s offset %llu %s: %llu wrong, %llu bytes overwritten\n",
              job.algo == Algo::Ring ? "ring" : "oneshot", nameOf(job.type), static_cast<unsigned long long>(job.count), job.channels,
              static_cast<unsigned long long>(job.sliceBytes), job.inPlace ? "in place" : "out of place",
              static_cast<unsigned long long>(job.offsetElems), graph ? "graph" : "eager", static_cast<unsigned long long>(v.wrong),
              static_cast<unsigned long long>(v.overwritten));
  if (!v.ran) std::_Exit(3);
  return false;
}

std::vector<int32_t> ringOrder(int32_t ranks, bool reversed) {
  std::vector<int32_t> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  if (reversed) std::reverse(order.begin(), order.end());
  return order;
}

int verifyAll(Fabric& fabric, const Options& o) {
  std::mt19937_64 random(o.seed);
  int cases = 0;
  int failed = 0;
  const auto run = [&](Job job, bool graph) {
    ++cases;
    if (!passes(fabric, job, random(), graph)) ++failed;
  };
  const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 31, 33, 255, 1000, 1023, 4097, 16384, 16385, 100003, (1 << 20) + 3};
  for (const DataType type : {DataType::F32, DataType::BF16, DataType::F16}) {
    for (const bool reversed : {false, true}) {
      for (const uint64_t slots : {2, 4}) {
        fabric.connectRing(ringOrder(fabric.ranks(), reversed), {8, static_cast<int32_t>(slots) * 2, 32 << 10});
        for (const uint64_t count : counts) {
          Job job{
              Algo::Ring, type, count, {slots == 2 ? 512 : 256, slots == 2 ? 4 : 8}, slots == 2 ? 3 : 8, count % 2 ? 64u << 10 : 16u << 10};
          for (const uint64_t offset : {0, 1}) {
            job.offsetElems = offset;
            job.inPlace = random() % 2;
            run(job, random() % 2);
          }
        }
      }
    }
    for (const uint64_t count : counts) {
      for (const int threads : {128, 256, 512}) {
        Job job{
            Algo::OneShot, type, count, {threads, 1}, oneShotChannels(count * sizeOf(type), threads, 2, 32), count % 2 ? 4096u : 32768u};
        job.offsetElems = random() % 3;
        job.inPlace = random() % 2;
        job.overlap = random() % 2;
        run(job, random() % 2);
        job.inPlace = !job.inPlace;
        run(job, random() % 2);
      }
    }
  }
  std::printf("verify: ranks %d, seed %llu: %d cases, %d failed\n", fabric.ranks(), static_cast<unsigned long long>(o.seed), cases, failed);
  return failed == 0 ? 0 : 1;
}

/// Verify, time, verify again; prints one row.
int measure(Fabric& fabric, const Options& o, const Job& job, Repeat repeat, const char* shape) {
  const bool before = passes(fabric, job, o.seed + 1, false);
  const Timing t = Runner(fabric).time(job, repeat);
  if (!t.ok) std::_Exit(3);
  const bool after = passes(fabric, job, o.seed + 2, repeat.graph);
  const double n = fabric.ranks();
  const double busGBps = static_cast<double>(job.bytes()) / t.usPerOp * 1e-3 * 2 * (n - 1) / n;
  std::printf("%-7s %-4s %9llu B  %-44s %-5s  %9.3f us (%.3f - %.3f)  %7.1f GB/s  launch %.1f ms  %s\n",
              job.algo == Algo::Ring ? "ring" : "oneshot", nameOf(job.type), static_cast<unsigned long long>(job.bytes()), shape,
              repeat.graph ? "graph" : "eager", t.usPerOp, t.best, t.worst, busGBps, t.launchMs, before && after ? "right" : "WRONG");
  std::fflush(stdout);
  return before && after ? 0 : 1;
}

/// Every combination of the lists, the last one fastest.
std::vector<std::vector<uint64_t>> combinations(const std::vector<std::vector<uint64_t>>& lists) {
  std::vector<std::vector<uint64_t>> all = {{}};
  for (const std::vector<uint64_t>& list : lists) {
    std::vector<std::vector<uint64_t>> longer;
    for (const std::vector<uint64_t>& head : all) {
      for (const uint64_t value : list) {
        longer.push_back(head);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

Repeat repeatOf(const Options& o, Repeat usual) {
  usual.graph = o.one("eager") == 0;
  if (o.one("ops") != 0) usual.ops = static_cast<int>(o.one("ops"));
  if (o.one("replays") != 0) usual.replays = static_cast<int>(o.one("replays"));
  return usual;
}

int sweepOneShot(Fabric& fabric, const Options& o) {
  fabric.connectRing(ringOrder(fabric.ranks(), false), {});
  int status = 0;
  const Repeat repeat = repeatOf(o, {true, 100, 20, 7});
  const uint64_t cap = o.list("ctas").empty() ? Fabric::kMaxChannels : o.one("ctas");
  for (const std::vector<uint64_t>& choice : combinations({o.list("overlap"), o.list("threads"), o.list("cells"), o.list("bytes")})) {
    Job job{Algo::OneShot, o.type, choice[3] / sizeOf(o.type), {static_cast<int>(choice[1]), 1}};
    job.channels = oneShotChannels(choice[3], job.shape.workers, choice[2], cap);
    job.overlap = choice[0] != 0;
    char shape[80];
    std::snprintf(shape, sizeof shape, "%d CTAs x %d, %d cells%s", job.channels, job.shape.workers, static_cast<int>(choice[2]),
                  job.overlap ? ", overlap" : "");
    status |= measure(fabric, o, job, repeat, shape);
  }
  return status;
}

int sweepRing(Fabric& fabric, const Options& o) {
  int status = 0;
  const Repeat repeat = repeatOf(o, {true, 5, 4, 3});
  const std::vector<uint64_t> ctas = o.list("ctas").empty() ? std::vector<uint64_t>{128} : o.list("ctas");
  const auto swept =
      combinations({o.list("bytes"), o.list("slice"), o.list("slots"), o.list("pieces"), o.list("unroll"), o.list("threads"), ctas});
  for (const std::vector<uint64_t>& choice : swept) {
    const uint64_t slice = choice[1];
    const auto slots = static_cast<int32_t>(choice[2]);
    const auto pieces = static_cast<int32_t>(choice[3]);
    Job job{Algo::Ring, o.type, choice[0] / sizeOf(o.type), {static_cast<int>(choice[5]), static_cast<int>(choice[4])}};
    job.channels = static_cast<int32_t>(choice[6]);
    job.sliceBytes = slice;
    job.overlap = o.one("overlap") != 0;
    fabric.connectRing(ringOrder(fabric.ranks(), false), {job.channels, slots * pieces, slice / pieces});
    char shape[80];
    std::snprintf(shape, sizeof shape, "%d CTAs x %d, unroll %d, %d x %d x %d KB%s", job.channels, job.shape.workers, job.shape.unroll,
                  slots, pieces, static_cast<int>((slice / pieces) >> 10), job.overlap ? ", overlap" : "");
    status |= measure(fabric, o, job, repeat, shape);
  }
  return status;
}

/// Every rank but the last launches. Right when the launch ends by itself, by the device's own limit or by the host's abort word.
int waitForAbsent(Fabric& fabric, const Options& o) {
  fabric.connectRing(ringOrder(fabric.ranks(), false), {});
  Job job{o.one("ring") ? Algo::Ring : Algo::OneShot, o.type, 1 << 20, {256, 8}};
  job.channels = 16;
  const auto start = std::chrono::steady_clock::now();
  const bool ok = Runner(fabric).runOnce(job, false, fabric.ranks() - 1);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  std::printf("%s without rank %d: %s after %.0f ms\n", job.algo == Algo::Ring ? "ring" : "oneshot", fabric.ranks() - 1,
              ok ? "completed, which is WRONG" : "ended", ms);
  return ok ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o = parse(argc, argv);
  int present = 0;
  PROBE_CHECK(cudaGetDeviceCount(&present));
  const auto ranks = static_cast<int32_t>(o.one("ranks"));
  const int devices = static_cast<int>(o.one("devices") ? o.one("devices") : std::min<uint64_t>(ranks, present));
  if (ranks < 1 || ranks > exec::cuda::kMaxLocalRanks || devices < 1 || devices > present) refuse("ranks or devices out of range", "");
  if ((o.command == "oneshot" || o.command == "ring") && o.list("bytes").empty()) {
    o.lists["bytes"] = o.command == "ring" ? std::vector<uint64_t>{256 << 20} : std::vector<uint64_t>{8, 1024, 8192, 32768, 65536};
  }
  uint64_t largest = 8 << 20;
  for (const uint64_t bytes : o.list("bytes")) largest = std::max(largest, bytes);
  for (int d = 0; d < devices; ++d) {
    PROBE_CHECK(cudaSetDevice(d));
    loadKernels();
  }
  Fabric fabric(ranks, devices, largest + 64, {o.one("timeout") * 1'000'000, o.one("limit")});
  if (o.command == "verify") return verifyAll(fabric, o);
  if (o.command == "oneshot") return sweepOneShot(fabric, o);
  if (o.command == "absent") return waitForAbsent(fabric, o);
  if (o.command == "ring") return sweepRing(fabric, o);
  refuse("unknown command", argv[1]);
}
