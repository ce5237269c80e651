#include "faults/process_ranks.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace tutti::faults {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr double kPatienceSeconds = 20 * kSlow;

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

bool isAmong(std::initializer_list<int> list, int value) { return std::find(list.begin(), list.end(), value) != list.end(); }

template <class Entry>
void forEachEntry(const char* folder, Entry&& entry) {
  DIR* dir = opendir(folder);
  if (dir == nullptr) return;
  while (const dirent* found = readdir(dir))
    if (found->d_name[0] != '.') entry(found->d_name);
  closedir(dir);
}

int64_t countEntries(const char* folder) {
  int64_t count = 0;
  forEachEntry(folder, [&](const char*) { ++count; });
  return count;
}

template <class Line>
void forEachLine(const char* path, Line&& line) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return;
  char text[1024];
  while (std::fgets(text, sizeof text, file) != nullptr) line(text);
  std::fclose(file);
}

/// What the descriptors of this process are.
std::string openDescriptors() {
  std::string all;
  forEachEntry("/proc/self/fd", [&](const char* name) {
    char target[256] = {};
    if (readlink((std::string("/proc/self/fd/") + name).c_str(), target, sizeof target - 1) > 0)
      all += std::string(" ") + name + "=" + target;
  });
  return all;
}

/// Blocks of memfds that this process has open, each file once.
int64_t openMemoryKiB() {
  std::vector<ino_t> seen;
  int64_t blocks = 0;
  forEachEntry("/proc/self/fd", [&](const char* name) {
    char target[64] = {};
    const std::string path = std::string("/proc/self/fd/") + name;
    if (readlink(path.c_str(), target, sizeof target - 1) < 0 || std::strncmp(target, "/memfd:tutti", 12) != 0) return;
    struct stat info{};
    if (fstat(std::atoi(name), &info) != 0 || std::find(seen.begin(), seen.end(), info.st_ino) != seen.end()) return;
    seen.push_back(info.st_ino);
    blocks += info.st_blocks;
  });
  return blocks / 2;
}

/// Once what ends by itself has done so: a service's thread stays a tenth of a second, the door of ranks that failed to meet two seconds,
/// and a connection whose other side does not answer five. A process keeps its table of memory of ncclMemAlloc, and what gives
/// the memory of its GPUs to other processes: a thread and its descriptors.
void expectNothingLeft(const Footprint& before) {
#if defined(TUTTI_ON_GPUS)
  constexpr bool kHasGpus = true;
#else
  constexpr bool kHasGpus = false;
#endif
  const Footprint most{.descriptors = before.descriptors + 1 + (kHasGpus ? 2 : 0),
                       .threads = before.threads + (kHasGpus ? 1 : 0),
                       .sharedKiB = before.sharedKiB + 4};
  const auto isLeft = [&most](const Footprint& now) {
    return now.threads > most.threads || now.descriptors > most.descriptors || now.sharedKiB > most.sharedKiB;
  };
  const Stopwatch watch;
  Footprint after = Footprint::now();
  for (; isLeft(after) && watch.seconds() < 8 * kSlow; after = Footprint::now()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  siginfo_t child{};
  EXPECT_TRUE(waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == -1 && errno == ECHILD) << "processes are left";
  EXPECT_LE(after.threads, most.threads) << "threads are left";
  EXPECT_LE(after.descriptors, most.descriptors) << "descriptors are left:" << openDescriptors();
  EXPECT_LE(after.sharedKiB, most.sharedKiB) << "shared memory is left";
}

}  // namespace

/// Zeroed. Each word has one writer; all are sequentially consistent.
struct ProcessRanks::Shared {
  struct Id {
    std::atomic<int> isThere;
    ncclUniqueId id;
  };
  std::array<std::atomic<int>, kMost> stages;  ///< by the child
  std::atomic<int> allowed;                    ///< by the test
  std::array<std::array<std::atomic<int64_t>, kNumbers>, kMost> numbers;
  std::array<Id, kIds> ids;
  Id fresh;                                    ///< isThere: how many there were
  std::array<std::atomic<int>, kMost> seen;    ///< by the child: how many it wants
};

ProcessRanks::ProcessRanks(int count, const Body& body) {
  if (count > kMost || countEntries("/proc/self/task") != 1) std::abort();  // a fork keeps one thread, and locks of the others
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(memory);
  ends_.resize(static_cast<size_t>(count));
  gone_.resize(static_cast<size_t>(count));
  std::fflush(nullptr);
  for (int child = 0; child < count; ++child) {
    texts_.push_back(memfd_create("text", MFD_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) runChild(child, body);
    if (pid < 0) std::abort();
    pids_.push_back(pid);
  }
}

ProcessRanks::~ProcessRanks() {
  for (int child = 0; child < static_cast<int>(pids_.size()); ++child)
    if (!look(child)) kill(child);
  for (const int text : texts_) close(text);
  munmap(shared_, sizeof(Shared));
}

void ProcessRanks::runChild(int child, const Body& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // whom its own children leave behind is its child, too
  dup2(texts_.back(), STDOUT_FILENO);
  dup2(texts_.back(), STDERR_FILENO);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  Self self(shared_, child, static_cast<int>(ends_.size()));
  const Footprint before = Footprint::now();
  body(self);
  if (!self.isInTheMiddle()) expectNothingLeft(before);
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

/// Whether it has ended.
bool ProcessRanks::look(int child) {
  const auto c = static_cast<size_t>(child);
  int status = 0;
  if (gone_[c]) return true;
  if (waitpid(pids_[c], &status, WNOHANG) != pids_[c]) return false;
  gone_[c] = true;
  ends_[c].byItself = WIFEXITED(status);
  ends_[c].code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

bool ProcessRanks::awaitStage(int child, int stage) {
  const Stopwatch watch;
  const auto& reached = shared_->stages[static_cast<size_t>(child)];
  while (reached < stage) {
    const bool isOver = look(child) || watch.seconds() > kPatienceSeconds;
    if (isOver && reached < stage) {  // it may have come to it just before its end
      ADD_FAILURE() << "child " << child << " is at stage " << shared_->stages[static_cast<size_t>(child)] << ", not at " << stage << "\n"
                    << textOf(child);
      return false;
    }
    pause();
  }
  return true;
}

bool ProcessRanks::awaitStageOfAll(int stage, std::initializer_list<int> except) {
  bool all = true;
  for (int child = 0; all && child < static_cast<int>(pids_.size()); ++child)
    all = isAmong(except, child) || awaitStage(child, stage);
  return all;
}

void ProcessRanks::allow(int stage) { shared_->allowed = stage; }

void ProcessRanks::signal(int child, int number) {
  if (!look(child)) ::kill(pid(child), number);
}

void ProcessRanks::kill(int child) {
  signal(child, SIGKILL);
  while (!look(child)) pause();
}

int64_t ProcessRanks::number(int child, int which) const {
  return shared_->numbers[static_cast<size_t>(child)][static_cast<size_t>(which)];
}

std::string ProcessRanks::textOf(int child) const {
  std::string text(64 << 10, '\0');
  const ssize_t length = pread(texts_[static_cast<size_t>(child)], text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return text;
}

const Ended& ProcessRanks::end(int child, double seconds) {
  const Stopwatch watch;
  while (!look(child) && watch.seconds() < seconds * kSlow) pause();
  Ended& ended = ends_[static_cast<size_t>(child)];
  if (!gone_[static_cast<size_t>(child)]) {
    kill(child);
    ended.text = "(killed: it had not ended)\n";
  }
  if (ended.text.size() < 64) ended.text += textOf(child);
  return ended;
}

void ProcessRanks::expectAllWell(std::initializer_list<int> except, double seconds) {
  const Stopwatch watch;
  for (int child = 0; child < static_cast<int>(pids_.size()); ++child) {
    if (isAmong(except, child)) continue;
    const Ended& ended = end(child, std::max(0.1, seconds - watch.seconds()));
    EXPECT_TRUE(ended.byItself && ended.code == 0) << "child " << child << ", code " << ended.code << ", after stage "
                                                   << shared_->stages[static_cast<size_t>(child)] << ":\n" << ended.text;
  }
}

void ProcessRanks::Self::reach(int stage) { shared_->stages[static_cast<size_t>(index_)] = stage; }
void ProcessRanks::Self::awaitAllowed(int stage) {
  while (shared_->allowed < stage) pause();
}
void ProcessRanks::Self::awaitStage(int child, int stage) {
  while (shared_->stages[static_cast<size_t>(child)] < stage) pause();
}
void ProcessRanks::Self::meet(int stage, std::initializer_list<int> except) {
  reach(stage);
  for (int child = 0; child < count_; ++child)
    if (!isAmong(except, child)) awaitStage(child, stage);
}
void ProcessRanks::Self::note(int which, int64_t number) {
  shared_->numbers[static_cast<size_t>(index_)][static_cast<size_t>(which)] = number;
}
int64_t ProcessRanks::Self::number(int child, int which) const {
  return shared_->numbers[static_cast<size_t>(child)][static_cast<size_t>(which)];
}

ncclUniqueId ProcessRanks::Self::id(int which, int maker) {
  Shared::Id& place = shared_->ids[static_cast<size_t>(which)];
  if (index_ == maker && place.isThere == 0) {
    EXPECT_EQ(ncclGetUniqueId(&place.id), ok) << ncclGetLastError(nullptr);
    place.isThere = 1;
  }
  while (place.isThere == 0) pause();
  return place.id;
}

ncclUniqueId ProcessRanks::Self::freshId() {
  ++freshIds_;
  shared_->seen[static_cast<size_t>(index_)] = freshIds_;  // the one before has been taken
  if (index_ == 0) {
    for (int child = 0; child < count_; ++child)
      while (shared_->seen[static_cast<size_t>(child)] < freshIds_) pause();
    EXPECT_EQ(ncclGetUniqueId(&shared_->fresh.id), ok) << ncclGetLastError(nullptr);
    shared_->fresh.isThere = freshIds_;
  }
  while (shared_->fresh.isThere < freshIds_) pause();
  return shared_->fresh.id;
}

Footprint Footprint::now() {
  Footprint print{countEntries("/proc/self/fd"), countEntries("/proc/self/task"), 0, 0, 0, openMemoryKiB()};
  forEachLine("/proc/self/maps", [&](const char*) { ++print.mappings; });
  forEachLine("/proc/self/status", [&](const char* line) {
    if (std::strncmp(line, "VmRSS:", 6) == 0) print.residentKiB = std::atoll(line + 6);
    if (std::strncmp(line, "VmSize:", 7) == 0) print.virtualKiB = std::atoll(line + 7);
  });
  return print;
}

Footprint Footprint::settled() {
  Footprint print = now();
  for (int still = 0, tries = 0; still < 15 && tries < 300; ++still, ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Footprint later = now();
    if (later.threads != print.threads || later.descriptors != print.descriptors) still = 0;
    print = later;
  }
  return print;
}

ncclComm_t joinAll(ProcessRanks::Self& self, int id) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRank(&comm, self.count(), self.id(id), self.index()), ok) << ncclGetLastError(nullptr);
  if (comm == nullptr) {
    std::fflush(nullptr);
    _exit(1);
  }
  return comm;
}

ncclResult_t sumOnce(ncclComm_t comm, int ranks, size_t count) {
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ok);
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = rank + static_cast<int>(i % 1000);
  const ncclResult_t result = ncclAllReduce(values.data(), values.data(), count, ncclInt, ncclSum, comm, nullptr);
  if (result != ok) return result;
  for (size_t i = 0; i < count; ++i) {
    const int wanted = ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i % 1000);
    if (values[i] == wanted) continue;
    ADD_FAILURE() << "element " << i << " is " << values[i] << " instead of " << wanted;
    break;
  }
  return result;
}

ncclResult_t sumUntilError(ncclComm_t comm, size_t count) {
  std::vector<int> values(count);
  ncclResult_t result = ok;
  while (result == ok) result = ncclAllReduce(values.data(), values.data(), count, ncclInt, ncclSum, comm, nullptr);
  return result;
}

ncclResult_t passOn(ncclComm_t comm, int rank, int ranks, const int* in, int* out, size_t count) {
  if (const ncclResult_t begun = ncclGroupStart(); begun != ok) return begun;
  const ncclResult_t sent = ncclSend(in, count, ncclInt, (rank + 1) % ranks, comm, nullptr);
  const ncclResult_t received = ncclRecv(out, count, ncclInt, (rank + ranks - 1) % ranks, comm, nullptr);
  const ncclResult_t ended = ncclGroupEnd();
  return sent != ok ? sent : received != ok ? received : ended;
}

std::string verdictOf(ncclComm_t comm) {
  std::string text(1 << 16, '\0');
  size_t needed = 0;
  EXPECT_EQ(tuttiCommGetVerdict(comm, text.data(), text.size(), &needed), ok);
  return text.c_str();
}

void abortPromptly(ncclComm_t comm) {
  const Stopwatch watch;
  EXPECT_EQ(ncclCommAbort(comm), ok) << ncclGetLastError(nullptr);
  EXPECT_LT(watch.seconds(), kPromptSeconds) << "ncclCommAbort";
}

}  // namespace tutti::faults
