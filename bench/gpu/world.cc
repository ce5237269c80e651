#include "gpu/world.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

namespace tutti::bench::gpu {
namespace {

constexpr int kSpins = 4000;  // before a waiting rank yields its core
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr auto kLastWords = std::chrono::milliseconds(300);

int numberOfThisRank = -1;  // set once, before the rank begins; for the texts of stop()

class Watch {
 public:
  Watch(Shared& shared, std::vector<pid_t> pids, double limitSeconds)
      : shared_(shared), pids_(std::move(pids)), limit_(limitSeconds), beats_(pids_.size(), 0), since_(pids_.size(), Clock::now()) {}

  int untilAllEnd() {
    while (std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; })) {
      if (const int code = reapOne(); code >= 0) {
        if (code != 0 && worst_ == 0) worst_ = code;
        if (code > kExitWrong) return endAll(code);
        continue;
      }
      if (isStuck()) {
        std::fprintf(stderr, "bench_gpu: no step for %.0f s\n", limit_);
        return endAll(kExitHang);
      }
      std::this_thread::sleep_for(kLook);
    }
    return worst_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// The exit code of a rank that has ended since; -1: none has.
  int reapOne() {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    const auto found = std::find(pids_.begin(), pids_.end(), ended);
    if (ended <= 0 || found == pids_.end()) return -1;
    *found = 0;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    std::fprintf(stderr, "bench_gpu: rank %td was killed by signal %d\n", found - pids_.begin(), WTERMSIG(status));
    return kExitBroken;
  }

  bool isStuck() {
    bool isStuck = false;
    for (size_t r = 0; r < beats_.size(); ++r) {
      const uint64_t beats = shared_.ranks[r].beats.load(std::memory_order_relaxed);
      if (beats != beats_[r]) {
        beats_[r] = beats;
        since_[r] = Clock::now();
      }
      isStuck |= Clock::now() - since_[r] > std::chrono::duration<double>(limit_);
    }
    return isStuck;
  }

  int endAll(int code) {
    for (size_t r = 0; r < beats_.size(); ++r)
      std::fprintf(stderr, "bench_gpu: rank %zu, step %llu: %s\n", r, static_cast<unsigned long long>(shared_.ranks[r].beats.load()),
                   shared_.ranks[r].step);
    // Those that end of themselves now say why; and the first to be noticed need not be the first that died.
    const Clock::time_point end = Clock::now() + kLastWords;
    while (Clock::now() < end) {
      if (reapOne() < 0) std::this_thread::sleep_for(kLook);
    }
    for (const pid_t pid : pids_) {
      if (pid == 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    return code;
  }

  Shared& shared_;
  std::vector<pid_t> pids_;
  double limit_;
  std::vector<uint64_t> beats_;
  std::vector<Clock::time_point> since_;
  int worst_ = 0;
};

}  // namespace

void stopWith(const std::string& text) {
  if (numberOfThisRank < 0)
    std::fprintf(stderr, "bench_gpu: %s\n", text.c_str());
  else
    std::fprintf(stderr, "bench_gpu: rank %d: %s\n", numberOfThisRank, text.c_str());
  std::fflush(stdout);
  std::_Exit(kExitBroken);
}

void World::barrier() {
  const uint32_t generation = shared_.generation.load(std::memory_order_acquire);
  if (shared_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(ranks_)) {
    shared_.arrived.store(0, std::memory_order_relaxed);
    shared_.generation.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; shared_.generation.load(std::memory_order_acquire) == generation; ++spins) {
    if (spins > kSpins) sched_yield();
  }
}

std::vector<std::vector<double>> World::exchange(const std::vector<double>& own) {
  if (own.size() > kMostFigures) stop("{} figures of a rank; {} are the most", own.size(), kMostFigures);
  SharedRank& place = shared_.ranks[rank_];
  place.figures = own.size();
  std::copy(own.begin(), own.end(), place.figure);
  barrier();
  std::vector<std::vector<double>> all;
  for (int r = 0; r < ranks_; ++r) all.emplace_back(shared_.ranks[r].figure, shared_.ranks[r].figure + shared_.ranks[r].figures);
  barrier();  // nobody writes its next figures while another reads these
  return all;
}

std::vector<double> World::largest(const std::vector<double>& own) {
  std::vector<double> most = own;
  for (const std::vector<double>& theirs : exchange(own)) {
    most.resize(std::min(most.size(), theirs.size()));
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], theirs[i]);
  }
  return most;
}

double World::sum(double own) {
  double total = 0;
  for (const std::vector<double>& theirs : exchange({own})) total += theirs.front();
  return total;
}

void World::share(void* data, size_t bytes) {
  if (bytes > sizeof(shared_.message)) stop("a message of {} bytes; {} are the most", bytes, sizeof(shared_.message));
  if (isLead()) std::memcpy(shared_.message, data, bytes);
  barrier();
  std::memcpy(data, shared_.message, bytes);
  barrier();
}

void World::step(std::string_view text) {
  SharedRank& place = shared_.ranks[rank_];
  const size_t length = std::min(text.size(), sizeof(place.step) - 1);
  std::memcpy(place.step, text.data(), length);
  place.step[length] = 0;
  place.beats.fetch_add(1, std::memory_order_relaxed);
}

int runRanks(int ranks, double limitSeconds, const std::function<int(World&)>& body) {
  if (ranks < 1 || ranks > kMostRanks) stop("{} ranks; 1 to {} are possible", ranks, kMostRanks);
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) stop("no shared memory of {} bytes", sizeof(Shared));
  auto* shared = new (memory) Shared{};  // lives as long as the process
  std::fflush(nullptr);                  // or every rank would print it again
  std::vector<pid_t> pids;
  const pid_t parent = getpid();
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = fork();
    if (pid < 0) {
      for (const pid_t started : pids) kill(started, SIGKILL);
      stop("rank {} could not be started", r);
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) std::_Exit(kExitBroken);
      numberOfThisRank = r;
      World world(*shared, r, ranks);
      const int code = body(world);
      std::fflush(nullptr);
      std::_Exit(code);  // the ranks' libraries are not asked to tidy up
    }
    pids.push_back(pid);
  }
  return Watch(*shared, std::move(pids), limitSeconds).untilAllEnd();
}

}  // namespace tutti::bench::gpu
