// Real processes: forked before there is any thread, they speak over the loopback interface and hand a memfd over.
#include <sys/wait.h>

#include <csignal>

#include "play.h"

namespace tutti::bootstrap {
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

}  // namespace
}  // namespace tutti::bootstrap
