// The log: NCCL_DEBUG and its relatives, one line a call, one fwrite a line.
//
// Owner of its state: one object in log.cc, the documented exception to "process-wide state lives in comm/process.h"; layers
// that may not see comm/ log too. Every function may be called by any thread.
// 1. Nothing is read from the environment before the first call; then once, and again after resetLog().
// 2. enabled() costs two relaxed loads; format arguments are evaluated in any case, so ask it first where they are dear.
// 3. A warning is stored for lastErrorText() even when it is not printed.
// 4. Log an error once, where its cause is first known; above that, Status::at() adds context.
#pragma once

#include <atomic>
#include <source_location>
#include <string_view>
#include <type_traits>

#include "core/format.h"
#include "core/status.h"
#include "observe/log_settings.h"

namespace tutti::observe {

namespace detail {

/// What enabled() asks. Written under the log's lock; the readers need no more than the values.
struct Threshold {
  std::atomic<int32_t> level{-1};   ///< A Level, or -1: the environment has to be read first.
  std::atomic<uint64_t> mask{0};    ///< Subsys bits.
};
extern Threshold threshold;

bool enabledSlow(Level level, Subsys subsys);
void write(Level level, Subsys subsys, Place place, std::string_view message);

/// A format text and where it stands in the source.
template <class... Args>
struct Located {
  template <class Text>
  consteval Located(const Text& t, std::source_location w = std::source_location::current()) : text(t), where(w) {}
  Place place() const { return {where.file_name(), where.line()}; }
  fmt::format_string<Args...> text;
  std::source_location where;
};

}  // namespace detail

/// Would a line of that level and part be printed? Warnings and version lines do not depend on the part.
inline bool enabled(Level level, Subsys subsys) {
  const int32_t limit = detail::threshold.level.load(std::memory_order_relaxed);
  if (limit < 0) [[unlikely]] return detail::enabledSlow(level, subsys);
  if (static_cast<int32_t>(level) > limit) return false;
  return level <= Level::Warn || overlap(subsys, Subsys(detail::threshold.mask.load(std::memory_order_relaxed)));
}

/// `log(Level::Info, Subsys::Init, "rank {} of {}", 0, 2);` For warnings use warn(), which knows its place.
template <class... Args>
void log(Level level, Subsys subsys, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(level, subsys)) detail::write(level, subsys, {}, formatArgs(text, fmt::make_format_args(args...)));
}

template <class... Args>
void info(Subsys subsys, fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::Info, subsys)) detail::write(Level::Info, subsys, {}, formatArgs(text, fmt::make_format_args(args...)));
}

/// Stores the text for lastErrorText() and prints it from NCCL_DEBUG=WARN on, with file and line of the caller.
template <class... Args>
void warn(detail::Located<std::type_identity_t<Args>...> text, Args&&... args) {
  detail::write(Level::Warn, Subsys::All, text.place(), formatArgs(text.text, fmt::make_format_args(args...)));
}

/// The same with a place of the caller's choice.
void warnAt(std::source_location where, std::string_view message);

/// `NCCL CALL ncclAllReduce(…)`, with NCCL_DEBUG=TRACE and the part CALL.
template <class... Args>
void call(fmt::format_string<Args...> text, Args&&... args) {
  if (enabled(Level::Trace, Subsys::Call)) {
    detail::write(Level::Trace, Subsys::Call, {}, formatArgs(text, fmt::make_format_args(args...)));
  }
}

/// Traces of the inside; compiled to nothing unless TUTTI_TRACE is defined.
template <class... Args>
void trace([[maybe_unused]] Subsys subsys, [[maybe_unused]] detail::Located<std::type_identity_t<Args>...> text,
           [[maybe_unused]] Args&&... args) {
#if defined(TUTTI_TRACE)
  if (enabled(Level::Trace, subsys)) {
    detail::write(Level::Trace, subsys, text.place(), formatArgs(text.text, fmt::make_format_args(args...)));
  }
#endif
}

/// Warns with the words of an error; does nothing for an OK status.
void logStatus(const Status& status, std::source_location where = std::source_location::current());

/// `NCCL version 2.28.9+…`, once per process: from INFO on by any rank, with VERSION or WARN by rank 0 alone.
void printBanner(std::string_view text, bool isRankZero);

/// Latest warning: zero-terminated, at most 1,023 bytes, "" at first. Valid and unchanged: see LastError.
const char* lastErrorText();

/// The device that lines of this thread carry in brackets. Initially 0, as a fresh thread's CUDA device.
void setCurrentDevice(int device);
int currentDevice();

/// Reads the environment and starts to report variables that are set, if that is not done yet. The first line does it too.
void setUpLog();

/// Forgets the settings: the next call reads the environment again (ncclResetDebugInit). An unchanged log file stays open.
void resetLog();

}  // namespace tutti::observe
