// What the tests of segments share.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "../../driver/cuda/play.h"
#include "core/unique_fd.h"
#include "transport/device/segment_wire.h"

namespace tutti::transport::device::play {

using driver::cuda::play::openDescriptors;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

inline milliseconds since(SteadyClock::time_point began) { return std::chrono::duration_cast<milliseconds>(SteadyClock::now() - began); }

inline bool becomes(const std::function<bool()>& condition, milliseconds limit = milliseconds(10'000)) {
  for (const auto began = SteadyClock::now(); since(began) < limit; std::this_thread::sleep_for(milliseconds(1)))
    if (condition()) return true;
  return condition();
}

/// Threads of this process; `which` is asked with the name of each.
inline size_t countThreads(const std::function<bool(const std::string&)>& which = nullptr) {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/task");
  while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    char name[32] = {};
    FILE* const file = fopen((std::string("/proc/self/task/") + entry->d_name + "/comm").c_str(), "r");
    if (file == nullptr) continue;  // it has just ended
    if (fscanf(file, "%31[^\n]", name) != 1) name[0] = 0;
    (void)fclose(file);
    if (!which || which(name)) ++count;
  }
  if (folder != nullptr) closedir(folder);
  return count;
}

/// All that is open and runs at its end was there at its beginning.
class NothingIsLeft {
 public:
  NothingIsLeft() {
    std::thread([] {}).join();  // the thread sanitizer starts one of its own beside the first
    EXPECT_TRUE(becomes([this] {
      const size_t before = std::exchange(threads_, countThreads());
      return before == threads_;
    }));
    descriptors_ = openDescriptors();
  }
  NothingIsLeft(const NothingIsLeft&) = delete;
  NothingIsLeft& operator=(const NothingIsLeft&) = delete;
  ~NothingIsLeft() {
    EXPECT_TRUE(becomes([this] { return countThreads() <= threads_; })) << countThreads() << " threads, not " << threads_;
    EXPECT_TRUE(becomes([this] { return openDescriptors() == descriptors_; })) << openDescriptors() << " descriptors, not " << descriptors_;
  }

 private:
  size_t threads_ = 0;
  size_t descriptors_ = 0;
};

/// A socket to the server of a process; empty when nobody listens.
inline UniqueFd knock(const ProcessKey& key) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SegmentAddress address(key);
  if (connect(fd.get(), address.raw(), address.size()) != 0) fd.reset();
  return fd;
}

/// A forked process that is killed when the test lets go of it.
class Child {
 public:
  /// `run` gets one end of a socket pair, this process the other.
  explicit Child(const std::function<int(int socket)>& run) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_.reset(ends[0]);
    pid_ = fork();
    if (pid_ == 0) {
      socket_.reset();
      const int code = run(ends[1]);
      _exit(code != 0 || ::testing::Test::HasFailure() ? 1 + code : 0);
    }
    close(ends[1]);
    const timeval limit{20, 0};
    (void)setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    signal(SIGKILL);
    (void)exitCode();
  }
  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }
  void signal(int number) const {
    if (pid_ > 0) (void)kill(pid_, number);
  }
  /// Returns when all its threads stand still; SIGCONT lets them go on.
  void stop() const {
    signal(SIGSTOP);
    int status = 0;
    EXPECT_TRUE(waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status));
  }
  /// Lets it read its socket's end, and waits for its own.
  int exitCode() {
    socket_.reset();
    int status = 0;
    if (pid_ <= 0) return 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
  }
  template <class Value>
  Value receive() const {
    Value value{};
    EXPECT_EQ(read(socket_.get(), &value, sizeof value), static_cast<ssize_t>(sizeof value)) << "the child does not say what it has";
    return value;
  }

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

}  // namespace tutti::transport::device::play
