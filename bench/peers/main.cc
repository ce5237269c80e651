// Calls of tutti and of another library side by side: the same processes, the same buffers, in turns. See --help.
//
//   mpirun -n 2 build/release/bin/bench_mpi
//   build/release/bin/tutti run -n 2 --no-prefix -- build/release/bin/bench_gloo
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/json.h"
#include "bench/output.h"
#include "bench/plot.h"
#include "core/format.h"
#include "peers/compare.h"
#include "peers/options.h"
#include "peers/report.h"

namespace tutti::bench {
namespace {

constexpr int kExitWrong = 1;

std::string bufferText(BufferKind kind) {
  switch (kind) {
    case BufferKind::Malloc: return "pages of the system";
    case BufferKind::PlainMalloc: return "malloc";
    case BufferKind::NcclMem: return "ncclMemAlloc";
  }
  return "";
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void writeFile(const std::string& path, const std::string& text) {
  Result<File> file = openOutput(path);
  if (!file) stop(file.error().text());
  if (const Status status = writeOutput(std::move(*file), path, text); !status.ok()) stop(status.text());
}

class Program {
 public:
  Program(const PeerOptions& options, Tutti& tutti, Library& peer)
      : options_(options), tutti_(tutti), peer_(peer), comparison_(tutti, peer, options.common.buffers, largest()) {}

  int run() {
    std::vector<Row> all;
    for (const Operation* operation : options_.operations) {
      const std::vector<Row> rows = compare(operation);
      all.insert(all.end(), rows.begin(), rows.end());
      const std::string& path = options_.common.plotPath;
      const bool isOnly = options_.operations.size() == 1;
      if (isLead() && !rows.empty()) writeFile(path.empty() || isOnly ? path : pathFor(path, operation->name), drawSvg(rows));
    }
    if (isLead()) writeFile(options_.common.jsonPath, toJson(all));
    for (const Row& row : all) {
      if (row.wrong.value_or(0) != 0) return kExitWrong;
    }
    return 0;
  }

 private:
  bool isLead() const { return tutti_.rank() == 0; }

  Options optionsOf(const Operation* operation) const {
    Options options = options_.common;
    options.operation = operation;
    options.ranks = tutti_.ranks();
    return options;
  }

  Call callOf(const Operation* operation, uint64_t count) const {
    const std::optional<RedOp> redOp = operation->isReduction ? std::optional(RedOp::Sum) : std::nullopt;
    return {operation, DataType::F32, redOp, operation->isRooted ? 0 : -1, count, tutti_.ranks(), operation->op == Op::Broadcast};
  }

  /// Bytes of the largest call; small sizes are rounded up to an element a rank.
  uint64_t largest() const {
    uint64_t bytes = 0;
    for (const Operation* operation : options_.operations)
      bytes = std::max(bytes, callOf(operation, countsOf(optionsOf(operation), DataType::F32).back()).bytes());
    return bytes;
  }

  std::vector<Row> compare(const Operation* operation) {
    if (!peer_.offers(operation->op)) {
      if (isLead()) print(format("# {} has no {} of this form\n", peer_.name(), operation->name));
      return {};
    }
    if (isLead()) print(tableHead(callOf(operation, 0), peer_.name(), bufferText(options_.common.buffers), options_.rounds));
    std::vector<Row> rows;
    for (const uint64_t count : countsOf(optionsOf(operation), DataType::F32)) {
      const Call call = callOf(operation, count);
      const std::array<Measurement, 2> measured = comparison_.measure(call, options_.rounds);
      for (size_t i = 0; i < 2; ++i) {
        if (!measured[i].firstWrong.empty()) std::fprintf(stderr, "wrong: %s\n", measured[i].firstWrong.c_str());
        rows.push_back(makeRow(call, measured[i], true));
        rows.back().library = i == 0 ? tutti_.name() : peer_.name();
      }
      if (isLead()) print(tableLine(rows[rows.size() - 2], rows.back()));
    }
    return rows;
  }

  const PeerOptions& options_;
  Tutti& tutti_;
  Library& peer_;
  Comparison comparison_;
};

int run(int argc, char** argv) {
  const PeerOptions options = parsePeerOptions(argc, argv);
  if (options.isHosts) {
    setenv("NCCL_HOSTID", std::to_string(getpid()).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
  }
  const std::unique_ptr<Tutti> tutti = Tutti::connect();
  const std::unique_ptr<Library> peer = connectPeer(*tutti);
  const int code = Program(options, *tutti, *peer).run();
  tutti->barrier();
  return code;
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  setenv("TUTTI_DEVICE", "host", 1);  // its buffers are memory of the host
  try {
    return tutti::bench::run(argc, argv);
  } catch (const std::exception& problem) {
    tutti::bench::stop(problem.what());
  }
}
