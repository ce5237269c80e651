#include "conformance/harness.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <future>

namespace tutti::conformance {
namespace {

[[noreturn]] void endStuck(const std::string& what) {
  std::fprintf(stderr, "\nSTUCK: no progress for %d s in: %s\n", kStuckSeconds, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double Random::between(double low, double high) { return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53); }

uint64_t mix(uint64_t a, uint64_t b) { return Random(a * 0x9e3779b97f4a7c15ull + b).next(); }

uint64_t hashBytes(const void* data, size_t bytes, uint64_t hash) {
  const auto* p = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ p[i]) * 0x100000001b3ull;
  return hash;
}

ScopedEnv::ScopedEnv(const char* name, const std::string& value) : name_(name) {
  if (const char* old = std::getenv(name)) before_ = old, wasSet_ = true;
  setenv(name, value.c_str(), 1);
}

ScopedEnv::~ScopedEnv() {
  if (wasSet_) {
    setenv(name_, before_.c_str(), 1);
  } else {
    unsetenv(name_);
  }
}

namespace {

/// The first CPU of each kind that the process may use; -1: none.
std::array<int, 2> cpusByParity() {
  std::array<int, 2> found = {-1, -1};
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return found;
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu)
    if (CPU_ISSET(cpu, &allowed)) found[static_cast<size_t>(cpu % 2)] = cpu;
  return found;
}

const std::array<int, 2>& placeCpus() {
  static const std::array<int, 2> cpus = cpusByParity();  // before any thread is bound
  return cpus;
}

}  // namespace

bool placesRanks() {
  const char* wanted = std::getenv("TUTTI_TEST_PLACES");
  return wanted != nullptr && *wanted == '1' && placeCpus()[0] >= 0 && placeCpus()[1] >= 0;
}

RankThreads::RankThreads(int ranks, const std::string& algorithms, Enter enter) : ranks_(ranks), enter_(std::move(enter)), barrier_(ranks) {
  const ScopedEnv env("TUTTI_ALGO", algorithms);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  announced_ = "creating " + std::to_string(ranks) + " ranks";
  busy_ = ranks;
  for (int r = 0; r < ranks; ++r) threads_.emplace_back([this, r, id] { loop(r, id); });
  waitIdle();
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    announced_ = "destroying " + std::to_string(ranks()) + " ranks";
    stopping_ = true;
    busy_ = ranks();
  }
  changed_.notify_all();
  waitIdle();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::loop(int rank, ncclUniqueId id) {
  if (placesRanks()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(placeCpus()[static_cast<size_t>(rank % 2)], &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  const std::shared_ptr<void> entered = enter_ != nullptr ? enter_(rank) : nullptr;
  ncclComm_t comm = nullptr;
  const ncclResult_t created = ncclCommInitRank(&comm, ranks_, id, rank);
  if (created != ncclSuccess) ++failures_;
  EXPECT_EQ(created, ncclSuccess) << "rank " << rank << ": " << ncclGetLastError(nullptr);
  std::unique_lock lock(mutex_);
  for (uint64_t seen = 0;;) {
    if (--busy_ == 0) changed_.notify_all();
    changed_.wait(lock, [&] { return generation_ != seen || stopping_; });
    if (stopping_) break;
    seen = generation_;
    const Body& body = *body_;
    lock.unlock();
    body(rank, comm);
    lock.lock();
  }
  lock.unlock();
  if (comm != nullptr) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess) << ncclGetLastError(nullptr);
  }
  lock.lock();
  if (--busy_ == 0) changed_.notify_all();
}

void RankThreads::run(const Body& body) {
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    busy_ = ranks();
    ++generation_;
    ++progress_;
  }
  changed_.notify_all();
  waitIdle();
}

void RankThreads::announce(std::string what) {
  const std::lock_guard lock(mutex_);
  announced_ = std::move(what);
  ++progress_;
}

void RankThreads::waitIdle() {
  std::unique_lock lock(mutex_);
  uint64_t last = progress_;
  while (!changed_.wait_for(lock, std::chrono::seconds(kStuckSeconds), [&] { return busy_ == 0; })) {
    if (progress_ == last) endStuck(announced_);
    last = progress_;
  }
}

int explainChannels(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type, int root) {
  char text[1024] = "";
  if (tuttiExplain(comm, collective, count, type, ncclSum, root, text, sizeof text, nullptr) != ncclSuccess) return 0;
  constexpr std::string_view kKey = "\"channels\":";
  const char* const at = std::strstr(text, kKey.data());
  return at == nullptr ? 0 : std::atoi(at + kKey.size());
}

std::string explainAlgorithm(ncclComm_t comm, const char* collective, size_t count, ncclDataType_t type, ncclRedOp_t op, int root) {
  char text[1024] = "";
  const ncclResult_t result = tuttiExplain(comm, collective, count, type, op, root, text, sizeof text, nullptr);
  if (result != ncclSuccess) return std::string("error: ") + ncclGetLastError(comm);
  const std::string_view all = text;
  constexpr std::string_view kKey = "\"algorithm\":\"";
  const size_t begin = all.find(kKey);
  if (begin == std::string_view::npos) return "no algorithm in " + std::string(all);
  const size_t from = begin + kKey.size();
  return std::string(all.substr(from, all.find('"', from) - from));
}

void GuardedBuffer::resize(size_t bytes, size_t misalignment) {
  storage_.assign(bytes + misalignment + 2 * kGuard + 64, std::byte{kPoison});
  const auto address = reinterpret_cast<uintptr_t>(storage_.data()) + kGuard;
  begin_ = kGuard + (64 - address % 64) % 64 + misalignment;
  bytes_ = bytes;
}

bool GuardedBuffer::guardsIntact() const {
  const auto isPoison = [](std::byte b) { return b == std::byte{kPoison}; };
  return std::all_of(storage_.begin(), storage_.begin() + static_cast<std::ptrdiff_t>(begin_), isPoison) &&
         std::all_of(storage_.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_), storage_.end(), isPoison);
}

void runWithin(double seconds, const std::string& what, const std::function<void()>& body) {
  std::packaged_task<void()> task(body);
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    std::fprintf(stderr, "\nSTUCK: longer than %.1f s: %s\n", seconds, what.c_str());
    std::fflush(stderr);
    std::abort();
  }
  thread.join();
}

}  // namespace tutti::conformance
