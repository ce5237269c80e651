// Nothing is left of ranks, however they ended: no process, file, socket or door. Each job has a world of its own, so that whatever is
// found there is its own. What is left in a rank that lives on, every test of this folder looks for (process_ranks.h).
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "faults/hosts.h"

namespace tutti::faults::left_test {
namespace {

constexpr ncclResult_t ok = ncclSuccess;
constexpr int kRanks = 3;
constexpr int kDoomed = 1;
using Self = ProcessRanks::Self;

/// Where programs leave what is not for long.
const char* const kFolders[] = {"/tmp", "/var/tmp", "/dev/shm", "/run"};

/// Folders and a network of its own, in which everything that is there is ours. False where the system does not allow it.
bool enterOwnWorld() {
  (void)dlopen("libnccl-net-example.so", RTLD_NOW | RTLD_LOCAL);  // the build may lie in a folder that is about to be hidden
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return false;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  for (const char* folder : kFolders)
    if (mount("tmpfs", folder, "tmpfs", 0, nullptr) != 0) return false;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool isUp = ioctl(any, SIOCSIFFLAGS, &request) == 0;
  close(any);
  return isUp;
}

using Finds = std::vector<std::string>;

void findFiles(const std::string& folder, Finds& finds) {
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") finds.push_back("file " + folder + "/" + name);
  }
  closedir(dir);
}

/// Sockets with a name, abstract or in a folder, and those that listen or are bound.
void findSockets(const char* table, const std::function<bool(const std::string&)>& counts, Finds& finds) {
  std::FILE* file = std::fopen(table, "re");
  if (file == nullptr) return;
  char line[512];
  for (bool isHead = true; std::fgets(line, sizeof line, file) != nullptr; isHead = false)
    if (!isHead && counts(line)) finds.push_back(std::string("socket in ") + table + ": " + line);
  std::fclose(file);
}

/// With those whose parents have ended: this process takes them over.
std::vector<pid_t> childrenOfThis() {
  std::vector<pid_t> children;
  DIR* dir = opendir("/proc");
  while (const dirent* entry = readdir(dir)) {
    const pid_t pid = std::atoi(entry->d_name);
    std::FILE* file = pid > 0 ? std::fopen(("/proc/" + std::string(entry->d_name) + "/status").c_str(), "re") : nullptr;
    if (file == nullptr) continue;
    char line[256];
    int parent = 0;
    while (std::fgets(line, sizeof line, file) != nullptr)
      if (std::strncmp(line, "PPid:", 5) == 0) parent = std::atoi(line + 5);
    std::fclose(file);
    if (parent == getpid()) children.push_back(pid);
  }
  closedir(dir);
  return children;
}

/// All that is there besides the caller.
Finds findAll() {
  Finds finds;
  for (const char* folder : kFolders) findFiles(folder, finds);
  findSockets(
      "/proc/net/unix", [](const std::string& line) { return line.find('@') != std::string::npos || line.find('/') != std::string::npos; },
      finds);
  const auto listens = [](const std::string& line) { return line.find(" 0A ") != std::string::npos; };
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) findSockets(table, listens, finds);
  for (const char* table : {"/proc/net/udp", "/proc/net/udp6"}) findSockets(table, [](const std::string&) { return true; }, finds);
  for (const pid_t child : childrenOfThis()) finds.push_back("process " + std::to_string(child));
  return finds;
}

/// Runs `job` in a world of its own; what it left there.
void expectNothingLeft(const std::function<void()>& job, const std::function<void(const Finds&)>& judge) {
  ProcessRanks warden(1, [&](Self& self) {
    if (!enterOwnWorld()) return self.note(0, 1);
    ASSERT_EQ(findAll(), Finds()) << "it begins empty";
    job();
    judge(findAll());
    self.endsInTheMiddle();  // it is the job's doing that is judged
    self.note(1, 1);
  });
  warden.expectAllWell({}, 60);
  if (warden.number(0, 0) == 1) GTEST_SKIP() << "namespaces of its own take root";
  EXPECT_EQ(warden.number(0, 1), 1);
}

enum class Place { OneHost, Hosts, HostsOverAPlugin };
enum class Fate { Ends, IsKilled, IsKilledWhileStopped, LeavesWithoutAWord, AllAreKilled };

std::string nameOf(Place place) { return place == Place::OneHost ? "OneHost" : place == Place::Hosts ? "Hosts" : "Plugin"; }
std::string nameOf(Fate fate) {
  const char* const names[] = {"Ends", "IsKilled", "IsKilledWhileStopped", "LeavesWithoutAWord", "AllAreKilled"};
  return names[static_cast<size_t>(fate)];
}

/// What each rank does: work, a death in the middle of it for some fates, and going on without the dead.
void liveAndSee(Self& rank, Place place, Fate fate) {
  if (place != Place::OneHost) playHost(rank.index());
  if (place == Place::HostsOverAPlugin) {
    setenv("NCCL_NET_PLUGIN", "example", 1);
    setenv("NCCL_NET", "Example", 1);
  }
  void* memory = nullptr;
  EXPECT_EQ(ncclMemAlloc(&memory, 1 << 20), ok) << lastError();
  ncclComm_t comm = joinAll(rank);
  EXPECT_EQ(sumOnce(comm, kRanks, 300000), ok) << lastError();
  rank.meet(1);
  if (fate == Fate::Ends) {
    EXPECT_EQ(ncclCommDestroy(comm), ok);
    EXPECT_EQ(ncclMemFree(memory), ok);
    return;
  }
  if (fate == Fate::LeavesWithoutAWord && rank.index() == kDoomed) {
    rank.endsInTheMiddle();
    return;
  }
  EXPECT_EQ(sumUntilError(comm, 1000), ncclRemoteError) << lastError();
  ncclComm_t child = nullptr;
  int dead = kDoomed;
  EXPECT_EQ(ncclCommShrink(comm, &dead, 1, &child, nullptr, NCCL_SHRINK_ABORT), ok) << lastError();
  EXPECT_EQ(sumOnce(child, kRanks - 1, 300000), ok) << lastError();
  EXPECT_EQ(ncclCommDestroy(child), ok);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
  EXPECT_EQ(ncclMemFree(memory), ok);
}

void play(Place place, Fate fate) {
  ProcessRanks children(kRanks, [&](Self& rank) { liveAndSee(rank, place, fate); });
  ASSERT_TRUE(children.awaitStageOfAll(1));
  if (fate == Fate::AllAreKilled) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (int child = 0; child < kRanks; ++child) children.kill(child);
    return;
  }
  if (fate == Fate::IsKilledWhileStopped) {
    children.signal(kDoomed, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (fate == Fate::IsKilled || fate == Fate::IsKilledWhileStopped) children.kill(kDoomed);
  if (fate == Fate::Ends || fate == Fate::LeavesWithoutAWord)
    children.expectAllWell();
  else
    children.expectAllWell({kDoomed});
}

class Left : public testing::TestWithParam<std::tuple<Place, Fate>> {};

TEST_P(Left, IsNothing) {
  const auto [place, fate] = GetParam();
  expectNothingLeft([place = place, fate = fate] { play(place, fate); }, [](const Finds& finds) { EXPECT_EQ(finds, Finds()); });
}

INSTANTIATE_TEST_SUITE_P(Of, Left,
                         testing::Combine(testing::Values(Place::OneHost, Place::Hosts, Place::HostsOverAPlugin),
                                          testing::Values(Fate::Ends, Fate::IsKilled, Fate::IsKilledWhileStopped, Fate::LeavesWithoutAWord,
                                                          Fate::AllAreKilled)),
                         [](const auto& test) { return nameOf(std::get<0>(test.param)) + nameOf(std::get<1>(test.param)); });

/// A child of a child that has ended. It lasts three seconds.
void leaveAnOrphan() {
  const pid_t child = fork();
  if (child == 0) {
    if (fork() == 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    _exit(0);
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

/// The test above would see each of these.
TEST(LeftOver, IsFound) {
  const auto leave = [] {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, "left", 4);
    EXPECT_EQ(bind(socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&name), offsetof(sockaddr_un, sun_path) + 5), 0);
    std::strcpy(name.sun_path, "/run/left");
    EXPECT_EQ(bind(socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    EXPECT_EQ(::listen(socket(AF_INET, SOCK_STREAM, 0), 1), 0);
    close(open("/dev/shm/left", O_CREAT | O_WRONLY, 0600));
    leaveAnOrphan();
  };
  expectNothingLeft(leave, [](const Finds& finds) {
    std::string all;
    for (const std::string& find : finds) all += find + "\n";
    EXPECT_TRUE(mentions(all, {"file /dev/shm/left", "file /run/left", "@left", " /run/left", "/proc/net/tcp: ", "process "}));
  });
}

/// By the look that every test takes at its ranks.
TEST(LeftOver, ProcessesOfARankAreFoundByAllTests) {
  ProcessRanks children(1, [](Self&) { leaveAnOrphan(); });
  const Ended& ended = children.end(0);
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(mentions(ended.text, {"processes are left"}));
}

}  // namespace
}  // namespace tutti::faults::left_test
