// What `tutti bench` was asked to do, checked.
// Plain values; written by the command line, then read only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/operation.h"
#include "core/status.h"
#include "core/types.h"

namespace tutti::bench {

enum class RedOp : uint8_t { Sum, Prod, Max, Min, Avg, MulSum };
inline constexpr int kNumRedOps = 6;

std::string_view name(RedOp op);

/// Where a rank's buffers come from: the system, with large pages where it has them; malloc, as it is; or ncclMemAlloc.
enum class BufferKind : uint8_t { Malloc, PlainMalloc, NcclMem };

/// This process among those of the job.
struct Process {
  int number = 0;
  int count = 1;
  int onHost = 1;  ///< of those, how many run on this host; 1 when unknown
  std::string launcher;  ///< who started them; empty for a process that was started alone

  bool isLead() const { return number == 0; }
};

struct Options {
  const Operation* operation = nullptr;
  uint64_t minBytes = 8;
  uint64_t maxBytes = uint64_t{64} << 20;
  double stepFactor = 2;
  uint64_t stepBytes = 0;           ///< 0: multiply by stepFactor instead
  std::optional<int> iterations;    ///< timed repetitions of each row; unset: as many as fit a fixed time
  std::optional<int> warmups;       ///< calls before them; unset: chosen from the time of one call
  bool isChecked = true;
  std::vector<DataType> types = {DataType::F32};
  std::vector<RedOp> redOps = {RedOp::Sum};  ///< empty for operations that do not reduce
  std::vector<int> roots = {0};              ///< {-1} for operations without a root
  int ranks = 4;                    ///< of all processes together
  int threads = 4;                  ///< of them, how many are threads of this process
  Process process;
  BufferKind buffers = BufferKind::Malloc;
  bool rewritesInputs = false;      ///< before every timed call, which is then a sample of its own
  bool isOutOfPlace = true;
  bool isInPlace = true;
  bool measuresMemcpy = true;
  double timeoutSeconds = 300;      ///< for any one step of a row; 0: none
  std::string plotPath;
  std::string jsonPath;
};

/// "float", "half" … or "all".
Result<std::vector<DataType>> parseTypes(std::string_view text);
/// "sum" … or "all".
Result<std::vector<RedOp>> parseRedOps(std::string_view text);
/// A rank, or "all".
Result<std::vector<int>> parseRoots(std::string_view text, int ranks);

std::string typeNames();
std::string redOpNames();

/// Counts to measure, growing: each size divided down to whole elements (and blocks), at least one, none twice.
std::vector<uint64_t> countsOf(const Options& options, DataType type);

}  // namespace tutti::bench
