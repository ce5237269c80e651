// Real processes: forked before there is any thread, they speak over the loopback interface and hand a memfd over.
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "bootstrap/mesh.h"
#include "play.h"

namespace tutti::bootstrap::process_test {
namespace {

using namespace play;

/// A child that reads the id from a pipe, joins, and reports with its exit code.
struct Child {
  pid_t pid = -1;
  UniqueFd idPipe;

  void tell(const UniqueIdBytes& id) const { ASSERT_EQ(write(idPipe.get(), id.data(), id.size()), static_cast<ssize_t>(id.size())); }
  int exitCode() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
};

Child spawn(const std::function<int(const UniqueIdBytes&)>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    close(ends[1]);
    UniqueIdBytes id{};
    if (read(ends[0], id.data(), id.size()) != static_cast<ssize_t>(id.size())) _exit(99);
    _exit(body(id));
  }
  close(ends[0]);
  child.idPipe = UniqueFd(ends[1]);
  return child;
}

TEST(Processes, MeetOnOneHostAndShareAMemfd) {
  constexpr int32_t kRanks = 5;
  std::vector<Child> children;
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    children.push_back(spawn([rank](const UniqueIdBytes& id) {
      Service service;  // the real world
      const Joined own = join(service, id, kRanks, rank);
      const auto outcome = wait(*own);
      if (!outcome) return 1;
      const Roster& roster = **outcome;
      if (roster.processes.size() != kRanks || roster.hosts.size() != 1 || roster.ownProcess != rank) return 2;
      if (markOf(roster.shared) != 0) return 3;
      for (int32_t r = 0; r < kRanks; ++r) {
        if (roster.notes[static_cast<size_t>(r)] != noteOf(r)) return 4;
      }
      const int mark = 1000 + rank;  // seen by the parent
      return pwrite(roster.shared.get(), &mark, sizeof mark, static_cast<off_t>(sizeof mark) * rank) == sizeof mark ? 0 : 5;
    }));
  }
  Service service;
  const auto id = service.makeId();
  ASSERT_TRUE(id);
  for (const Child& child : children) child.tell(*id);
  const Joined own = join(service, *id, kRanks, 0);
  const auto outcome = wait(*own);
  ASSERT_TRUE(outcome) << outcome.error().text();
  EXPECT_EQ((*outcome)->process(0).pid, getpid());
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    const Child& child = children[static_cast<size_t>(rank) - 1];
    EXPECT_EQ((*outcome)->process(rank).pid, child.pid);
    EXPECT_EQ(child.exitCode(), 0) << rank;
    int mark = 0;
    EXPECT_EQ(pread((*outcome)->shared.get(), &mark, sizeof mark, static_cast<off_t>(sizeof mark) * rank),
              static_cast<ssize_t>(sizeof mark));
    EXPECT_EQ(mark, 1000 + rank) << "the same memory";
  }
}

TEST(Processes, KilledWhileOthersAreMissingIsNamedWithinASecond) {
  std::vector<Child> children;
  for (int32_t rank = 1; rank < 4; ++rank) {
    children.push_back(spawn([rank](const UniqueIdBytes& id) {
      Service service(worldOf("host" + std::to_string(rank % 2)));
      const Joined own = join(service, id, 5, rank);  // rank 4 never comes
      const auto outcome = wait(*own);
      return !outcome && outcome.error().text().find("rank 2 (process") != std::string::npos ? 0 : 1;
    }));
  }
  Service service(worldOf("host0"));
  const auto id = service.makeId();
  for (const Child& child : children) child.tell(*id);
  const Joined own = join(service, *id, 5, 0);
  ASSERT_TRUE(becomes([&] { return own->describeMissing().starts_with("rank 4 of 5"); }));
  ASSERT_EQ(kill(children[1].pid, SIGKILL), 0);
  const auto outcome = wait(*own, milliseconds(1000));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::RemoteError);
  EXPECT_NE(outcome.error().text().find("rank 2 (process " + std::to_string(children[1].pid)), std::string::npos) << outcome.error().text();
  EXPECT_EQ(children[0].exitCode(), 0);
  EXPECT_EQ(children[1].exitCode(), 128 + SIGKILL);
  EXPECT_EQ(children[2].exitCode(), 0);
}

/// A process that has the root of an id for three ranks, and is rank 0 of it.
pid_t startRoot(UniqueIdBytes& id) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t root = fork();
  if (root == 0) {
    Service service(worldOf("host0"));
    const auto made = service.makeId();
    const Joined own = join(service, *made, 3, 0);
    if (write(ends[1], made->data(), made->size()) < 0) _exit(1);
    for (;;) pause();
  }
  EXPECT_EQ(read(ends[0], id.data(), id.size()), static_cast<ssize_t>(id.size()));
  close(ends[0]);
  close(ends[1]);
  return root;
}

TEST(Processes, StoppedRootIsSaidToBeSilent) {
  UniqueIdBytes id{};
  const pid_t root = startRoot(id);
  Service service(worldOf("host1"));
  const Joined own = join(service, id, 3, 1);
  ASSERT_TRUE(becomes([&] { return own->describeMissing().starts_with("rank 2 of 3 (said "); }));
  ASSERT_EQ(kill(root, SIGSTOP), 0);
  EXPECT_EQ(own->describeMissing().find("silent"), std::string::npos) << own->describeMissing();
  EXPECT_TRUE(becomes([&] { return own->describeMissing().ends_with("which has been silent since: it may have stopped)"); }))
      << own->describeMissing();
  EXPECT_EQ(kill(root, SIGKILL), 0);
  waitpid(root, nullptr, 0);
}

TEST(Processes, StoppedRootKeepsNothingOfWhoGaveUp) {
  UniqueIdBytes id{};
  const pid_t root = startRoot(id);
  ASSERT_EQ(kill(root, SIGSTOP), 0);
  Service service(worldOf("host1"));
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  const Joined own = join(service, id, 3, 1);
  EXPECT_TRUE(becomes([&] { return descriptors() > before + 2; }));
  own->end(error(Code::RemoteError, "the user has aborted"));
  EXPECT_TRUE(becomes([&] { return descriptors() == before; }, milliseconds(20'000))) << descriptors() << " instead of " << before;
  EXPECT_EQ(kill(root, SIGKILL), 0);
  waitpid(root, nullptr, 0);
}

TEST(Processes, KilledRootIsNamed) {
  UniqueIdBytes id{};
  const pid_t root = startRoot(id);
  Service service(worldOf("host1"));
  const Joined own = join(service, id, 3, 1);
  ASSERT_TRUE(becomes([&] { return own->describeMissing().starts_with("rank 2 of 3 (said "); })) << "it has been welcomed, too";
  ASSERT_EQ(kill(root, SIGKILL), 0);
  const auto outcome = wait(*own, milliseconds(1000));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), Code::RemoteError);
  EXPECT_NE(outcome.error().text().find("process " + std::to_string(root) + " on host0, of rank 0"), std::string::npos)
      << outcome.error().text();
  waitpid(root, nullptr, 0);
}

/// It has a rank of another root's block: that root names the rank, and is heard, whichever connection is seen to end first.
TEST(Processes, KilledRootIsNamedByItsRankWhereAnotherRootKnowsIt) {
  for (int round = 0; round < 8; ++round) {
    int fromChild[2];
    int toChild[2];
    ASSERT_EQ(pipe(fromChild), 0);
    ASSERT_EQ(pipe(toChild), 0);
    const pid_t child = fork();
    if (child == 0) {
      Service service(worldOf("host1"));
      std::vector<UniqueIdBytes> ids(2);
      ids[1] = *service.makeId();
      if (write(fromChild[1], ids[1].data(), ids[1].size()) < 0) _exit(1);
      if (read(toChild[0], ids[0].data(), ids[0].size()) < 0) _exit(1);
      const Joined own = service.join(ids, 4, Rank(1), noteOf(1), nullptr);
      for (;;) pause();
    }
    std::vector<UniqueIdBytes> ids(2);
    ASSERT_EQ(read(fromChild[0], ids[1].data(), ids[1].size()), static_cast<ssize_t>(ids[1].size()));
    Service service(worldOf("host0"));
    ids[0] = *service.makeId();
    ASSERT_EQ(write(toChild[1], ids[0].data(), ids[0].size()), static_cast<ssize_t>(ids[0].size()));
    for (const int fd : {fromChild[0], fromChild[1], toChild[0], toChild[1]}) close(fd);
    const Joined first = service.join(ids, 4, Rank(0), noteOf(0), nullptr);
    const Joined other = service.join(ids, 4, Rank(2), noteOf(2), nullptr);
    EXPECT_TRUE(becomes([&] {
      const std::string missing = first->describeMissing();
      return missing.starts_with("ranks 2, 3 of 4") && missing.find("rank 3 of 4 (said ") != std::string::npos;
    })) << first->describeMissing();
    ASSERT_EQ(kill(child, SIGKILL), 0);
    const auto outcome = wait(*other, milliseconds(1000));
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), Code::RemoteError);
    EXPECT_NE(outcome.error().text().find("rank 1 (process " + std::to_string(child) + " on host1)"), std::string::npos)
        << outcome.error().text();
    waitpid(child, nullptr, 0);
  }
}

/// At whatever moment of the set-up one is killed: the others all get the same kind of answer, and soon.
TEST(Processes, KilledAtAnyMomentNobodyWaitsForEver) {
  std::mt19937 random(11);
  int failed = 0;
  for (int round = 0; round < 40; ++round) {
    constexpr int32_t kRanks = 6;
    std::vector<Child> children;
    for (int32_t rank = 1; rank < kRanks; ++rank) {
      children.push_back(spawn([rank](const UniqueIdBytes& id) {
        Service service(worldOf("host" + std::to_string(rank % 2)));
        const Joined own = join(service, id, kRanks, rank);
        const auto outcome = wait(*own);
        if (!outcome) return outcome.error().code() == Code::InProgress ? 2 : 1;
        const auto barrier = (*outcome)->mesh->barrier(milliseconds(20'000));  // the loss ends it
        return becomes([&] { return barrier->poll().has_value(); }) ? 0 : 3;
      }));
    }
    const size_t victim = random() % children.size();
    {
      Service service(worldOf("host0"));
      const auto id = service.makeId();
      ASSERT_TRUE(id);
      Limits limits;
      limits.waiting = milliseconds(500);  // a victim that had not registered is merely missing
      const Joined own = join(service, *id, kRanks, 0, limits);
      for (const Child& child : children) child.tell(*id);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
      kill(children[victim].pid, SIGKILL);
      const auto began = std::chrono::steady_clock::now();
      const auto outcome = wait(*own);
      failed += outcome ? 0 : 1;
      ASSERT_TRUE(outcome || outcome.error().code() == Code::RemoteError) << outcome.error().text();
      if (outcome) {
        const auto barrier = (*outcome)->mesh->barrier(milliseconds(20'000));
        ASSERT_TRUE(becomes([&] { return barrier->poll().has_value(); }));
      }
      EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1000)) << (outcome ? "" : outcome.error().text());
    }
    for (size_t i = 0; i < children.size(); ++i) {
      const int code = children[i].exitCode();
      EXPECT_TRUE(i == victim || code == 0 || code == 1) << "rank " << i + 1 << ": " << code;
    }
  }
  std::printf("%d of 40 were killed before the end\n", failed);
}

TEST(Processes, AForkedChildBeginsAnew) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer lets no forked child of a process with threads start one";
#endif
  Service service(worldOf("h"));
  Service other(worldOf("h"));
  const auto id = service.makeId();
  Joined first = join(service, *id, 2, 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto own = service.makeId();  // not by the parent's thread, which is not here
    if (!own || UniqueId::decode(*own)->pid != getpid()) _exit(1);
    if (UniqueId::decode(*own)->addresses == UniqueId::decode(*id)->addresses) _exit(2);
    const Joined alone = join(service, *own, 1, 0);
    if (!wait(*alone)) _exit(3);
    first.reset();  // the parent's: nobody is told
    service.~Service();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status), 0);
  const Joined second = join(other, *id, 2, 1);
  EXPECT_TRUE(wait(*first)) << "the parent's join went on";
  EXPECT_TRUE(wait(*second));
}

/// Two network namespaces with a cable between them; gone with the object.
class Cable {
 public:
  Cable() {
    const std::string tag = "ttb" + std::to_string(getpid());
    names = {tag + "a", tag + "b"};
    isThere = geteuid() == 0 && run("ip netns add " + names[0]) && run("ip netns add " + names[1]) &&
              run("ip link add ttbv0 netns " + names[0] + " type veth peer name ttbv1 netns " + names[1]);
    for (int i = 0; isThere && i < 2; ++i) {
      const std::string in = "ip -n " + names[static_cast<size_t>(i)] + " ";
      const std::string device = "ttbv" + std::to_string(i);
      isThere = run(in + "addr add 10.77.0." + std::to_string(i + 1) + "/24 dev " + device) && run(in + "link set " + device + " up") &&
                run(in + "link set lo up");
    }
    for (const std::string& name : names) {  // the kernel takes its time to see the other end
      isThere = isThere && becomes([&] { return run("ip -n " + name + " -o link show up type veth | grep -q 'state UP'"); });
    }
  }
  ~Cable() {
    for (const std::string& name : names) (void)run("ip netns del " + name);
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  bool isThere = false;
  std::vector<std::string> names;

 private:
  static bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }
};

TEST(Processes, NetworkNamespacesCountAsHosts) {
  const Cable cable;
  if (!cable.isThere) GTEST_SKIP() << "network namespaces need root and the command ip";
  const auto enter = [&](int32_t rank) {
    const UniqueFd space(open(("/run/netns/" + cable.names[static_cast<size_t>(rank / 2)]).c_str(), O_RDONLY | O_CLOEXEC));
    return setns(space.get(), CLONE_NEWNET) == 0;
  };
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<Child> children;
  for (int32_t rank = 0; rank < 4; ++rank) {
    children.push_back(spawn([&, rank](const UniqueIdBytes& given) {
      if (!enter(rank)) return 9;
      Service service;
      UniqueIdBytes id = given;
      if (rank == 0) {
        id = service.makeId().value_or(UniqueIdBytes{});
        if (write(ends[1], id.data(), id.size()) != static_cast<ssize_t>(id.size())) return 8;
      }
      const Joined own = join(service, id, 4, rank);
      const auto outcome = wait(*own);
      if (!outcome) {
        std::fprintf(stderr, "rank %d: %s\n", rank, outcome.error().text().c_str());
        return 1;
      }
      const Roster& roster = **outcome;
      if (roster.hosts.size() != 2 || roster.ownHost != rank / 2) return 2;
      if (markOf(roster.shared) != rank / 2 * 2) return 3;
      const auto barrier = roster.mesh->barrier(milliseconds(10'000));
      return becomes([&] { return barrier->poll().has_value() && barrier->poll()->has_value(); }) ? 0 : 4;
    }));
  }
  children[0].tell({});
  UniqueIdBytes id{};
  ASSERT_EQ(read(ends[0], id.data(), id.size()), static_cast<ssize_t>(id.size()));
  for (size_t i = 1; i < 4; ++i) children[i].tell(id);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(children[i].exitCode(), 0) << i;
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tutti::bootstrap::process_test
