#include "prove/prove.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "core/format.h"
#include "exit_codes.h"
#include "prove/select.h"
#include "prove/show.h"

namespace tutti::tool {
namespace {

using exec::prove::Case;
using exec::prove::Proof;

constexpr size_t kBatch = 16;  // neighbouring cases share what a prover remembers
constexpr int kExitFailed = 1;

/// Hands out cases in batches and keeps count. Shared by the proving threads.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total), isTerminal_(isatty(STDERR_FILENO) == 1) {}

  /// The next batch: [begin, end), empty at the end.
  std::pair<size_t, size_t> take() {
    const size_t begin = std::min(next_.fetch_add(kBatch, std::memory_order_relaxed), total_);
    return {begin, std::min(begin + kBatch, total_)};
  }

  void report(const Proof& proof) {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (!proof.ok && failures_++ == 0) {
      std::fprintf(stderr, "%s%s: NOT PROVED: %s\n", isTerminal_ ? "\r\033[K" : "", describe(proof.subject).c_str(), proof.failure.c_str());
    }
    const auto now = std::chrono::steady_clock::now();
    if (!isTerminal_ || (now - shown_ < std::chrono::milliseconds(100) && done_ != total_)) return;
    shown_ = now;
    std::fprintf(stderr, "\r\033[K[%zu/%zu] %s", done_, total_, done_ == total_ ? "" : describe(proof.subject).c_str());
    if (done_ == total_) std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }

  size_t failures() const { return failures_; }

 private:
  const size_t total_;
  const bool isTerminal_;
  std::atomic<size_t> next_{0};  ///< only counted up; the cases themselves were written before the threads started
  std::mutex mutex_;
  // Under mutex_:
  size_t done_ = 0;
  size_t failures_ = 0;
  std::chrono::steady_clock::time_point shown_;
};

std::vector<Proof> proveAll(const std::vector<Case>& cases, Progress& progress) {
  std::vector<Proof> proofs(cases.size());
  const auto work = [&] {
    exec::prove::Prover prover;
    for (auto [begin, end] = progress.take(); begin < end; std::tie(begin, end) = progress.take()) {
      for (size_t i = begin; i < end; ++i) {
        proofs[i] = prover.prove(cases[i]);
        progress.report(proofs[i]);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(2u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return proofs;
}

bool writeFile(const std::string& path, const std::string& text) {
  FILE* file = std::fopen(path.c_str(), "we");
  const bool isWritten = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool isClosed = file && std::fclose(file) == 0;
  if (!isWritten || !isClosed) std::fprintf(stderr, "tutti: cannot write %s: %s\n", path.c_str(), std::strerror(errno));
  return isWritten && isClosed;
}

}  // namespace

int runProve(const ProveOptions& options) {
  if (options.listsOnly) {
    std::fputs(listAlgorithms().c_str(), stdout);
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  const Result<std::vector<Case>> cases = selectCases(options);
  if (!cases) {
    std::fprintf(stderr, "tutti prove: %s\n", cases.error().text().c_str());
    return kExitUsage;
  }
  Progress progress(cases->size());
  const std::vector<Proof> proofs = proveAll(*cases, progress);
  const std::string table = exec::prove::markdownTable(proofs);
  std::fputs(alignColumns(table, {"collective", "algorithm", "ranks", "slots", "cases", "steps", "result"}).c_str(), stdout);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const size_t failures = progress.failures();
  const std::string outcome = format("{} cases, {}", proofs.size(), failures == 0 ? "all proved" : format("{} NOT PROVED", failures));
  std::fputs(format("{}, {:.1f} s\n", outcome, seconds).c_str(), stdout);
  const bool isWritten = options.markdownPath.empty() || writeFile(options.markdownPath, proofsDocument(table, outcome, options.isFull));
  return failures == 0 && isWritten ? 0 : kExitFailed;
}

}  // namespace tutti::tool
