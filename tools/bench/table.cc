#include "bench/table.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "bench/units.h"
#include "core/format.h"
#include "nccl.h"
#include "tutti.h"

namespace tutti::bench {
namespace {

/// The file that provides the library, as the loader resolved it.
std::string libraryPath() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&tuttiVersion), &info) || !info.dli_fname) return "unknown";
  char* resolved = realpath(info.dli_fname, nullptr);
  std::string path = resolved ? resolved : info.dli_fname;
  std::free(resolved);
  return path;
}

std::string formatForm(const std::optional<Row>& row) {
  if (!row) return format(" {:>10} {:>8} {:>8} {:>7}", "-", "-", "-", "-");
  return format(" {:>10} {:>8} {:>8} {:>7}", formatNumber(row->timeUs), formatNumber(row->algbwGBps), formatNumber(row->busbwGBps),
                row->wrong ? format("{}", *row->wrong) : "n/a");
}

std::string describeProcesses(const Options& options) {
  if (options.process.count == 1) return "threads of one process";
  const std::string threads = options.threads == 1 ? "" : format(" of {} threads", options.threads);
  return format("{} processes{}, by {}", options.process.count, threads, options.process.launcher);
}

std::string libraryVersion() {
  int code = 0;
  (void)ncclGetVersion(&code);
  return format("tutti {}, provides NCCL {}.{}.{}", tuttiVersionString(), code / 10000, code / 100 % 100, code % 100);
}

}  // namespace

TableWriter::TableWriter(bool isLead) : isLead_(isLead), isTerminal_(isLead && isatty(STDERR_FILENO) == 1) {}

void TableWriter::print(const std::string& text) const {
  if (!isLead_) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void TableWriter::writeHeader(const Options& options, const std::string& simd) {
  const std::string repetitions = options.iterations ? format("{} samples a row", *options.iterations) : "samples for 0.1 s a row";
  std::string text;
  text += format("# {}\n# library {}\n", libraryVersion(), libraryPath());
  text += format("# {}: {} ranks ({}) on host devices, {} cores{}{}\n", options.operation->name, options.ranks, describeProcesses(options),
                 std::thread::hardware_concurrency(), simd.empty() ? "" : ", ", simd);
  text += format("# {}; a row's time is the median of its samples, a sample that of the slowest rank; results {}\n", repetitions,
                 options.isChecked ? "checked" : "not checked");
  text += "#\n";
  text +=
      format("# {:>12} {:>12} {:>8} {:>6} {:>4} |{:^36} |{:^36}\n", "size", "count", "type", "redop", "root", "out-of-place", "in-place");
  const std::string form = format(" {:>10} {:>8} {:>8} {:>7}", "time", "algbw", "busbw", "#wrong");
  text += format("# {:>12} {:>12} {:>8} {:>6} {:>4} |{} |{}\n", "(B)", "(elements)", "", "", "", form, form);
  const std::string unit = format(" {:>10} {:>8} {:>8} {:>7}", "(us)", "(GB/s)", "(GB/s)", "");
  text += format("# {:>12} {:>12} {:>8} {:>6} {:>4} |{} |{}\n", "", "", "", "", "", unit, unit);
  clearProgress();
  print(text);
}

void TableWriter::writeRow(const std::optional<Row>& outOfPlace, const std::optional<Row>& inPlace) {
  if (!outOfPlace && !inPlace) return;
  const Row& row = outOfPlace ? *outOfPlace : *inPlace;
  clearProgress();
  print(format("  {:>12} {:>12} {:>8} {:>6} {:>4} |{} |{}\n", row.bytes, row.count, row.type, row.redOp, row.root, formatForm(outOfPlace),
               formatForm(inPlace)));
}

void TableWriter::writeTraffic(const Call& call, const Traffic& traffic, double timeUs, const MemcpyRate& rate) {
  const double achieved = static_cast<double>(traffic.bytes) / timeUs / 1e3;
  clearProgress();
  print(format("# {}: {} moves {} of memory traffic at {} GB/s; memcpy on {} threads: {} GB/s; ratio {:.3f}\n", describe(call),
               traffic.algorithm.empty() ? "it" : traffic.algorithm, formatBytes(traffic.bytes), formatNumber(achieved), rate.threads,
               formatNumber(rate.gigabytesPerSecond), achieved / rate.gigabytesPerSecond));
}

void TableWriter::writeSummary(const std::vector<Row>& rows, double seconds) {
  double sum = 0;
  uint64_t wrong = 0;
  bool isChecked = false;
  for (const Row& row : rows) {
    sum += row.busbwGBps;
    wrong += row.wrong.value_or(0);
    isChecked = isChecked || row.wrong.has_value();
  }
  const double average = rows.empty() ? 0 : sum / static_cast<double>(rows.size());
  clearProgress();
  print(format("#\n# average bus bandwidth {} GB/s over {} rows; wrong elements: {}; {:.1f} s\n", formatNumber(average), rows.size(),
               isChecked ? format("{}", wrong) : "not checked", seconds));
}

void TableWriter::showProgress(const std::string& text) {
  if (!isTerminal_) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  isShowing_ = true;
}

void TableWriter::clearProgress() {
  if (!isShowing_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  isShowing_ = false;
}

void TableWriter::complain(const std::string& text) {
  clearProgress();
  std::fprintf(stderr, "tutti: %s\n", text.c_str());
}

}  // namespace tutti::bench
