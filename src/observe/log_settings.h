// What the NCCL_DEBUG variables ask for, and how a line looks: pure functions of their arguments.
//
// No state. Any thread.
// 1. A line never exceeds kMaxLineBytes, its newline included; a longer message is cut.
// 2. Words of the variables are read in any case; unknown words are passed over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::observe {

/// How much is logged; a level includes those below it. Values are those that network plugins get.
enum class Level : int32_t { None = 0, Version = 1, Warn = 2, Info = 3, Abort = 4, Trace = 5 };

/// Parts that log, as bits. Values are those that network plugins get.
enum class Subsys : uint64_t {
  None = 0,
  Init = 0x1,
  Coll = 0x2,
  P2p = 0x4,
  Shm = 0x8,
  Net = 0x10,
  Graph = 0x20,
  Tuning = 0x40,
  Env = 0x80,
  Alloc = 0x100,
  Call = 0x200,
  Proxy = 0x400,
  Nvls = 0x800,
  Bootstrap = 0x1000,
  Reg = 0x2000,
  Profile = 0x4000,
  Ras = 0x8000,
  All = ~uint64_t{0},
};
constexpr Subsys operator|(Subsys a, Subsys b) { return Subsys(uint64_t(a) | uint64_t(b)); }
constexpr bool overlap(Subsys a, Subsys b) { return (uint64_t(a) & uint64_t(b)) != 0; }

inline constexpr size_t kMaxLineBytes = 1024;

/// NCCL_DEBUG. Unknown words are Level::None.
Level parseLevel(std::string_view text);

/// NCCL_DEBUG_SUBSYS: a comma list; a leading ^ means all but these.
Subsys parseSubsys(std::string_view text);

/// NCCL_DEBUG_TIMESTAMP_LEVELS: bit n stands for level n; ALL for every one; a leading ^ means all but these.
uint32_t parseLevelSet(std::string_view text);

/// NCCL_DEBUG_FILE: %h is `host`, %p is `pid`, %% a per cent sign; other %x stay as they are.
std::string expandPath(std::string_view text, std::string_view host, int pid);

/// NCCL_DEBUG_TIMESTAMP_FORMAT: strftime's, after _ became a space and the first %1f … %9f that many digits of `nanoseconds`
/// (cut, not rounded). Local time. Empty for an empty or unusable format.
std::string formatTimestamp(std::string_view text, int64_t seconds, int64_t nanoseconds);

/// `src/comm/init.cc` of wherever it was built: "comm/init.cc"; a file outside src/: its last part.
std::string_view shortenPath(std::string_view path);

/// The name of a machine, cut at the first dot.
std::string_view shortenHost(std::string_view host);

/// Who writes a line.
struct Origin {
  std::string_view host;
  int pid = 0;
  int tid = 0;
  int device = 0;
};

/// Whence a line comes; `file` empty when it is not told.
struct Place {
  std::string_view file;
  unsigned line = 0;
};

/// The whole line with its newline. `timestamp` may be empty; `ms` is since the log was set up and shown by traces alone.
std::string layOutLine(Level level, bool isCall, std::string_view timestamp, const Origin& origin, Place place, double ms,
                       std::string_view message);

}  // namespace tutti::observe
