#include "launch/keeper.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "launch/processes.h"

namespace tutti::launch {
namespace {

using std::chrono::milliseconds;

constexpr int kKillPauseMs = 10;
constexpr int kDrainMs = 1000;  // after the last process has ended: for output that somebody else holds open

// The order of what is polled: these, then for each rank its two streams and its socket.
constexpr size_t kSignals = 0;
constexpr size_t kCaller = 1;
constexpr size_t kRanks = 4;  // after the two outlets
constexpr size_t kPolledOfRank = 3;

milliseconds toMilliseconds(double seconds) { return milliseconds(static_cast<int64_t>(seconds * 1000)); }

std::string describeEnd(int status) {
  if (WIFSIGNALED(status)) return format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

Keeper::Keeper(const RunOptions& options, Descriptor caller, const Inherited& inherited)
    : options_(options),
      caller_(std::move(caller)),
      inherited_(inherited),
      post_(static_cast<size_t>(options.ranks)),
      outlets_{Outlet(STDOUT_FILENO), Outlet(STDERR_FILENO)},
      deadline_(Deadline::after(toMilliseconds(options.timeoutSeconds))) {}

int Keeper::run() {
  Status status = prepare();
  if (status.ok()) status = start();
  if (!status.ok()) {
    say(status.text());
    code_ = status.code() == Code::InvalidArgument ? kExitNoProgram : kExitError;
    end(SIGTERM);
  }
  loop();
  return code_;
}

void Keeper::loop() {
  std::vector<pollfd> polls;
  while (!isOver()) {
    addPolls(polls);
    int wait = deadline_.pollMs();
    if (phase_ == Phase::Killing) wait = kKillPauseMs;
    if (!hasChildren_) wait = kDrainMs;
    const int ready = poll(polls.data(), polls.size(), wait);
    if (!hasChildren_ && ready == 0 && (phase_ != Phase::Running || (outlets_[0].isEmpty() && outlets_[1].isEmpty()))) return;
    const auto isReady = [&](size_t i) { return ready > 0 && polls[i].revents != 0; };
    if (isReady(kSignals)) takeSignals();
    if (isReady(kCaller) && !isCallerGone_) {
      isCallerGone_ = true;
      phase_ = Phase::Killing;
      deadline_ = Deadline::after(kKillTime);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const size_t first = kRanks + kPolledOfRank * rank;
      for (size_t i = 0; i < 2; ++i) {
        if (isReady(first + i)) readStream(ranks_[rank].streams[i], outlets_[i]);
      }
      if (isReady(first + 2)) post_.serve(rank);
    }
    flush();
    if (phase_ == Phase::Killing) killAll();
    takeChildren();
    checkTime();
  }
}

void Keeper::addPolls(std::vector<pollfd>& polls) const {
  polls.clear();
  polls.push_back({signals_.get(), POLLIN, 0});
  polls.push_back({isCallerGone_ ? -1 : caller_.get(), POLLIN, 0});
  for (const Outlet& outlet : outlets_) polls.push_back({outlet.isEmpty() ? -1 : outlet.descriptor(), POLLOUT, 0});
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (size_t i = 0; i < 2; ++i) polls.push_back({outlets_[i].isFull() ? -1 : ranks_[rank].streams[i].source.get(), POLLIN, 0});
    polls.push_back({post_.descriptor(rank), POLLIN, 0});
  }
}

void Keeper::readStream(Stream& stream, Outlet& outlet) {
  char bytes[1 << 14];
  const ssize_t received = read(stream.source.get(), bytes, sizeof bytes);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received > 0) return stream.lines.feed({bytes, static_cast<size_t>(received)}, outlet.text());
  stream.lines.finish(outlet.text());
  stream.source.reset();
}

void Keeper::flush() {
  for (size_t i = 0; i < 2; ++i) {
    outlets_[i].flush();
    if (!outlets_[i].isBroken()) continue;
    // Nobody reads any more: the ranks learn it as they would without us.
    for (Rank& rank : ranks_) rank.streams[i].source.reset();
  }
}

void Keeper::takeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (signal == SIGUSR1 || signal == SIGUSR2) {
      for (const Rank& rank : ranks_) {
        if (rank.pid != 0) (void)kill(-rank.pid, signal);
      }
    } else if (phase_ == Phase::Running) {
      code_ = 128 + signal;
      end(signal);
    } else {
      phase_ = Phase::Killing;
      deadline_ = Deadline::after(kKillTime);
    }
  }
}

/// The ranks that have ended, and how.
std::vector<std::pair<int, int>> Keeper::reap() {
  std::vector<std::pair<int, int>> ended;
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].pid != pid) continue;
      ranks_[rank].pid = 0;
      post_.close(rank);
      ended.emplace_back(static_cast<int>(rank), status);
    }
  }
  hasChildren_ = pid == 0;
  return ended;
}

void Keeper::takeChildren() {
  bool isRankLeft = false;
  auto ended = reap();
  const auto hasFailed = [](const auto& end) { return end.second != 0; };
  const auto wasKilled = [](const auto& end) { return WIFSIGNALED(end.second); };
  // What began it is told: the others of a rank that was killed, or that failed before it gave an id, give up within a millisecond, and may
  // be gone before it is, whose sockets close first.
  if (phase_ == Phase::Running && std::any_of(ended.begin(), ended.end(), hasFailed) &&
      std::none_of(ended.begin(), ended.end(), wasKilled)) {
    std::this_thread::sleep_for(milliseconds(kKillPauseMs));
    const auto later = reap();
    ended.insert(ended.end(), later.begin(), later.end());
  }
  std::stable_sort(ended.begin(), ended.end(), [this](const auto& a, const auto& b) {
    return post_.orderOf(static_cast<size_t>(a.first)) < post_.orderOf(static_cast<size_t>(b.first));
  });
  std::stable_partition(ended.begin(), ended.end(), wasKilled);
  for (const auto& [rank, how] : ended) judge(rank, how);
  for (const Rank& rank : ranks_) isRankLeft = isRankLeft || rank.pid != 0;
  if (hasChildren_ && !isRankLeft && phase_ == Phase::Running) end(SIGTERM);
}

void Keeper::judge(int rank, int status) {
  if (status == 0 || phase_ != Phase::Running) return;
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  say(format("rank {} {}{}", rank, describeEnd(status), options_.ranks > 1 ? "; ending the others" : ""));
  end(SIGTERM);
}

void Keeper::end(int signal) {
  signalAll(signal);
  asked_ = signal;
  phase_ = Phase::Ending;
  deadline_ = Deadline::after(std::max(toMilliseconds(options_.graceSeconds), milliseconds(1)));
}

void Keeper::signalAll(int signal) const {
  std::set<pid_t> groups;
  for (const Rank& rank : ranks_) groups.insert(rank.pid);
  for (const Process& process : descendantsOf(getpid())) {
    if (!groups.contains(process.group)) (void)kill(process.pid, signal);
  }
  // A group at once: no member escapes by forking meanwhile. One that is stopped hears nothing until it goes on.
  for (const Rank& rank : ranks_) {
    if (rank.pid == 0) continue;
    (void)kill(-rank.pid, signal);
    (void)kill(-rank.pid, SIGCONT);
  }
}

void Keeper::killAll() {
  for (const Process& process : descendantsOf(getpid())) (void)kill(process.pid, SIGKILL);
}

void Keeper::checkTime() {
  if (!hasChildren_ || !deadline_.isOver()) return;
  if (phase_ == Phase::Running) {
    code_ = kExitTimeout;
    say(format("not done after {} s (--timeout); ending all ranks", options_.timeoutSeconds));
    return end(SIGTERM);
  }
  if (phase_ == Phase::Ending && asked_ != SIGTERM) return end(SIGTERM);  // a shell has its background jobs ignore SIGINT
  if (phase_ == Phase::Ending) {
    std::string left;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].pid != 0) left += format("{}{}", left.empty() ? "" : ", ", rank);
    }
    const bool isOne = !left.empty() && left.find(',') == std::string::npos;
    const std::string who = left.empty() ? "processes that ranks left behind" : format("{} {}", isOne ? "rank" : "ranks", left);
    say(format("{} {} not ended within {} s; killed", who, isOne ? "has" : "have", options_.graceSeconds));
    phase_ = Phase::Killing;
    deadline_ = Deadline::after(kKillTime);
    return;
  }
  say("some processes can not be killed; leaving them");
  hasChildren_ = false;
  for (Rank& rank : ranks_) rank.pid = 0;
}

void Keeper::say(const std::string& text) { outlets_[1].text() += format("tutti run: {}\n", text); }

bool Keeper::isOver() const {
  if (hasChildren_) return false;
  for (const Rank& rank : ranks_) {
    for (const Stream& stream : rank.streams) {
      if (stream.source) return false;
    }
  }
  return outlets_[0].isEmpty() && outlets_[1].isEmpty();
}

}  // namespace tutti::launch
