// What bench_gpu was asked to do, checked.
// Plain values; written by the command line (options.cc), then read only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/operation.h"
#include "bench/options.h"
#include "gpu/library.h"

namespace tutti::bench::gpu {

enum class Mode : uint8_t { Eager, Graph };
std::string_view name(Mode mode);

/// Memory of cudaMalloc; of ncclMemAlloc; of ncclMemAlloc and registered with both libraries; the same as symmetric windows of both, or of
/// the first alone.
enum class Buffers : uint8_t { Plain, Allocated, Registered, Windows, WindowsOfA };
std::string_view name(Buffers buffers);

struct LibraryOptions {
  std::string name;
  std::string path;
  Variables variables;
};

struct BenchOptions {
  std::string command;
  LibraryOptions a;
  LibraryOptions b;  ///< its path is empty where one library alone is measured
  int ranks = 2;
  bool isHost = false;
  double limitSeconds = 60;    ///< for one step of a rank
  double seconds = 450;        ///< nothing new begins after them
  std::string jsonPath;        ///< a line a row, each written at once

  std::vector<const Operation*> operations;
  std::vector<DataType> types = {DataType::F32};
  std::vector<RedOp> redOps = {RedOp::Sum};
  std::vector<Mode> modes = {Mode::Eager, Mode::Graph};
  bool appends = false;  ///< to the rows of a mode before
  std::vector<int> ctas = {0};  ///< the most of a call, for both libraries; 0: as they like
  uint64_t minBytes = 8;
  uint64_t maxBytes = uint64_t{1} << 30;
  double stepFactor = 2;
  int rounds = 24;
  int warmups = 3;
  double blockUs = 2000;
  uint64_t rotateBytes = uint64_t{128} << 20;
  bool isInPlace = false;
  Buffers buffers = Buffers::Plain;
  bool isMemoryOfA = true;      ///< whose ncclMemAlloc
  int root = 0;

  int productSize = 8192;       ///< overlap
  bool isProductOfZeros = false;  ///< overlap
  uint64_t seed = 1;            ///< torture
  uint64_t steps = 0;           ///< torture; 0: until the time is up
  bool isMixed = false;         ///< torture: calls of several communicators at once
  double slowUs = 2000;         ///< torture: the most that a rank is held back before a step
  std::vector<std::string> plot;  ///< plot: rows in, drawing out
};

/// Ends the process where they are wrong, or only help was wanted.
BenchOptions parseBenchOptions(int argc, char** argv);

}  // namespace tutti::bench::gpu
