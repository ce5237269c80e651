// spdlog is left out on purpose: levels, filters, layout, file naming and "one fwrite, at most 1,024 bytes" are all prescribed,
// so nothing would remain of it but the fwrite, for seven seconds of compile time.
#include "observe/log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>

#include "config/params.h"
#include "observe/last_error.h"

namespace tutti::observe {

namespace detail {
constinit Threshold threshold;
}  // namespace detail

namespace {

/// Everything but the threshold, under `mutex`. Never destroyed: threads may log while the process exits.
struct LogState {
  std::mutex mutex;
  FILE* file = nullptr;  ///< Null: standard output.
  std::array<char, 4096> path{};  ///< Of `file`.
  std::array<char, 256> host{};
  std::array<char, 256> timestampFormat{};
  uint32_t timestampLevels = 0;
  double startMs = 0;
  bool reportsVariables = false;
};

constinit LogState state;
constinit LastError lastError;
constinit std::atomic<bool> bannerPrinted{false};  // whoever sets it prints; orders nothing
constinit thread_local int threadDevice = 0;

template <size_t kBytes>
void assign(std::array<char, kBytes>& to, std::string_view from) {
  const size_t bytes = std::min(from.size(), kBytes - 1);
  std::memcpy(to.data(), from.data(), bytes);
  to[bytes] = '\0';
}

double nowMs() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

/// Opens what NCCL_DEBUG_FILE names, unless that is open already. Returns why not, or "".
std::string openFile(Level level) {
  const std::string wanted = config::findText(config::Param::DebugFile).value_or("");
  std::string path;
  if (level > Level::Version && !wanted.empty()) path = expandPath(wanted, state.host.data(), getpid());
  if (state.file && path == state.path.data()) return {};
  if (state.file) std::fclose(state.file);
  state.file = nullptr;
  if (path.empty()) return {};
  if (path.size() >= state.path.size()) return "the path is too long";
  state.file = std::fopen(path.c_str(), "we");
  if (!state.file) return format("{}: {}", path, strerrordesc_np(errno));
  std::setvbuf(state.file, nullptr, _IOLBF, 0);
  assign(state.path, path);
  return {};
}

/// Under the lock. Returns a complaint to be warned about once the lock is free, or "".
std::string readSettings() {
  using config::Param;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) assign(host, "unknown");
  assign(state.host, shortenHost(host.data()));
  // findText() and not getText(): reporting these variables would come back here.
  const auto textOr = [](Param param) {
    return config::findText(param).value_or(config::table()[static_cast<size_t>(param)].text);
  };
  const Level level = parseLevel(textOr(Param::Debug));
  const std::string subsys = textOr(Param::DebugSubsys);
  assign(state.timestampFormat, textOr(Param::DebugTimestampFormat));
  state.timestampLevels = parseLevelSet(textOr(Param::DebugTimestampLevels));
  state.startMs = nowMs();
  std::string complaint = openFile(level);
  detail::threshold.mask.store(uint64_t(parseSubsys(subsys)), std::memory_order_relaxed);
  // Last: who sees a level that is not -1 skips the lock. It may still see the mask of before; the lock orders everything else.
  detail::threshold.level.store(static_cast<int32_t>(level), std::memory_order_release);
  return complaint;
}

void reportVariable(std::string_view line) {
  if (enabled(Level::Info, Subsys::Env)) detail::write(Level::Info, Subsys::Env, {}, line);
}

std::string timestampOf(Level level) {
  if (!((state.timestampLevels >> static_cast<int>(level)) & 1)) return {};
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return formatTimestamp(state.timestampFormat.data(), time.tv_sec, time.tv_nsec);
}

/// Lays a line out and writes it at once, so that lines of several threads and processes do not mix.
void print(Level level, bool isCall, Place place, std::string_view message) {
  std::lock_guard lock(state.mutex);
  const Origin origin{state.host.data(), getpid(), static_cast<int>(syscall(SYS_gettid)), threadDevice};
  const std::string line = layOutLine(level, isCall, timestampOf(level), origin, place, nowMs() - state.startMs, message);
  FILE* const file = state.file ? state.file : stdout;
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);  // a line that explains a crash must not die with it
}

}  // namespace

namespace detail {

bool enabledSlow(Level level, Subsys subsys) {
  setUpLog();
  return enabled(level, subsys);
}

void write(Level level, Subsys subsys, Place place, std::string_view message) {
  place.file = shortenPath(place.file);
  if (level == Level::Warn) {
    lastError.set(message);
    if (!enabled(level, subsys)) return;
  }
  print(level, overlap(subsys, Subsys::Call), place, message);
  if (level == Level::Warn && config::get<config::Param::WarnEnableDebugInfo>()) {
    int32_t warnOnly = static_cast<int32_t>(Level::Warn);
    threshold.level.compare_exchange_strong(warnOnly, static_cast<int32_t>(Level::Info), std::memory_order_relaxed);
  }
}

}  // namespace detail

void warnAt(std::source_location where, std::string_view message) {
  detail::write(Level::Warn, Subsys::All, {where.file_name(), where.line()}, message);
}

void logStatus(const Status& status, std::source_location where) {
  if (!status.ok()) warnAt(where, status.text());
}

void printBanner(std::string_view text, bool isRankZero) {
  if (!enabled(isRankZero ? Level::Version : Level::Info, Subsys::All)) return;
  if (!bannerPrinted.exchange(true, std::memory_order_relaxed)) print(Level::Version, false, {}, text);
}

const char* lastErrorText() { return lastError.read(); }

void setCurrentDevice(int device) { threadDevice = device; }
int currentDevice() { return threadDevice; }

void setUpLog() {
  std::string complaint;
  {
    std::lock_guard lock(state.mutex);
    if (detail::threshold.level.load(std::memory_order_relaxed) >= 0) return;
    complaint = readSettings();
    if (!state.reportsVariables) config::setNoticeSink(reportVariable);
    state.reportsVariables = true;
  }
  if (!complaint.empty()) warn("NCCL_DEBUG_FILE cannot be opened, logging to standard output: {}", complaint);
}

void resetLog() {
  std::lock_guard lock(state.mutex);
  detail::threshold.level.store(-1, std::memory_order_relaxed);
}

}  // namespace tutti::observe
