#include "faults/hosts.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <regex>
#include <thread>

namespace tutti::faults {

int Layout::firstRankOf(int process) const {
  int first = 0;
  for (int p = 0; p < process; ++p) first += ranksOf(p);
  return first;
}

void playHost(int host) {
  setenv("NCCL_HOSTID", ("host" + std::to_string(host)).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
}

namespace {
bool givesNames = false;
}

void playNamedHost(int host) {
  const std::string name = "host" + std::to_string(host);
  givesNames = unshare(CLONE_NEWUTS) == 0 && sethostname(name.data(), name.size()) == 0;
  playHost(host);
}

std::string nameOfHost(int host) { return givesNames ? "host" + std::to_string(host) : hostName(); }

std::string hostName() {
  char text[256] = {};
  gethostname(text, sizeof text - 1);
  const std::string name = text;
  return name.substr(0, name.find('.'));
}

void runRanks(ProcessRanks::Self& self, const Layout& layout, const RankBody& body, int id) {
  playHost(layout.hosts[static_cast<size_t>(self.index())]);
  const ncclUniqueId shared = self.id(id);
  const int first = layout.firstRankOf(self.index());
  std::atomic<int> stage{0};
  std::barrier threadsMeet(layout.ranksOf(self.index()), [&]() noexcept { self.meet(stage); });
  const auto meet = [&](int next) {
    stage = next;
    threadsMeet.arrive_and_wait();
  };
  const auto run = [&](int rank) {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, layout.ranks(), shared, rank), ncclSuccess) << lastError();
    body({rank, comm, meet});
  };
  if (layout.ranksOf(self.index()) == 1) return run(first);
  std::vector<std::thread> threads;
  for (int t = 0; t < layout.ranksOf(self.index()); ++t) threads.emplace_back(run, first + t);
  for (std::thread& thread : threads) thread.join();
}

testing::AssertionResult namesRank(const std::string& text, int rank) {
  static const std::regex list("ranks? ([0-9]+(, [0-9]+)*)");
  static const std::regex number("[0-9]+");
  for (std::sregex_iterator found(text.begin(), text.end(), list), end; found != end; ++found) {
    const std::string names = (*found)[1];
    for (std::sregex_iterator name(names.begin(), names.end(), number); name != end; ++name)
      if (name->str() == std::to_string(rank)) return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "rank " << rank << " is not named in: " << text;
}

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos) return testing::AssertionFailure() << "no '" << word << "' in: " << text;
  return testing::AssertionSuccess();
}

std::string lastError() { return ncclGetLastError(nullptr); }

}  // namespace tutti::faults
