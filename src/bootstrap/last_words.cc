#include "bootstrap/last_words.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#endif

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bootstrap/reactor.h"
#include "bootstrap/uplink.h"
#include "core/children.h"
#include "core/thread.h"

#if !defined(RSEQ_SIG)
#define RSEQ_SIG 0  // NOLINT(cppcoreguidelines-macro-usage): a C library without restartable sequences
#endif

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kMost(3000);  // longer than a root without descriptors takes to let somebody in
/// A loop's three, and a socket for each address that an id can have; standard input and output stay what they are.
constexpr int kFirst = 3, kRoom = 12;

#if defined(__SANITIZE_THREAD__)
constexpr bool kHasOwnTable = false;  // the sanitizer takes equal numbers in two tables for one descriptor
#else
constexpr bool kHasOwnTable = true;
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kMayShareMemory = false;  // sanitizers do not expect a process of one stack on another's memory
#else
constexpr bool kMayShareMemory = true;
#endif

void dial(Reactor& reactor, const UniqueId& root, const Status& cause) {
  Dialer::Plan plan = planFor(root);
  plan.retries = root.isFixed ? 10 : 0;  // NCCL_COMM_ID: it may come later
  plan.roundLimit = kMost;
  // The last who has something to say ends the loop.
  std::shared_ptr<void> unsaid(nullptr, [&reactor](void*) { reactor.leave(); });
  Dialer::start(reactor, std::move(plan), [cause, unsaid = std::move(unsaid)](const Result<std::shared_ptr<Link>>& link) {
    if (!link) return;
    (*link)->send(Kind::Trouble, encode(cause));
    (*link)->finish(unsaid);
  });
}

/// One after the other: each has all the room, and an equal part of the time that those before it have left.
void sayFromHere(std::span<const UniqueId> roots, const Status& cause) {
  const auto until = std::chrono::steady_clock::now() + kMost;
  for (size_t r = 0; r < roots.size(); ++r) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    Reactor reactor;
    (void)reactor.runHere([&] { dial(reactor, roots[r], cause); }, left / static_cast<int64_t>(roots.size() - r));
  }
}

void closeCopies() {
  for (int fd = kFirst; fd < kFirst + kRoom; ++fd) (void)::close(fd);
}

/// Where descriptors are copies, or the process is another one.
void sayFromOtherTable(std::span<const UniqueId> roots, const Status& cause) {
  closeCopies();
  const OtherDescriptors others;  // of the thread: one that lends its memory to another process stands still
  sayFromHere(roots, cause);
}

struct Words {
  std::span<const UniqueId> roots;
  const Status& cause;
  std::byte* restarts = nullptr;  ///< the thread's area of restartable sequences (rseq(2))
  pid_t program = 0;
};

/// Null: the C library has none, and whoever else may have one for the thread is unknown.
std::byte* restartsOfThread() {
  const auto* const offset = static_cast<const std::ptrdiff_t*>(dlsym(RTLD_DEFAULT, "__rseq_offset"));
  const auto* const size = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__rseq_size"));
  if (offset == nullptr || size == nullptr || *size == 0) return nullptr;
  return static_cast<std::byte*>(__builtin_thread_pointer()) + *offset;
}

/// In a process of its own, on this one's memory. Allocators may count on restartable sequences, which a new process has to ask for anew:
/// before it allocates. The thread whose area it is stands still.
int sayAside(void* given) {
  constexpr unsigned kAreaBytes = 32;
  const Words& words = *static_cast<const Words*>(given);
  if (syscall(SYS_rseq, words.restarts, kAreaBytes, 0, RSEQ_SIG) != 0) return 1;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != words.program) return 1;
  try {
    sayFromOtherTable(words.roots, words.cause);
  } catch (const std::exception&) {
    return 1;  // without memory nothing is said
  }
  return 0;
}

/// The calling thread stands still until it is said. False: it was not.
bool sayFromAProcess(std::span<const UniqueId> roots, const Status& cause) {
  constexpr size_t kStack = size_t{1} << 20;
  constexpr size_t kGuard = size_t{1} << 16;
  Words words{roots, cause, restartsOfThread(), getpid()};
  if (!kMayShareMemory || words.restarts == nullptr) return false;
  void* const stack = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) return false;
  (void)mprotect(stack, kGuard, PROT_NONE);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's handlers do not run there
  const pid_t process = clone(sayAside, static_cast<std::byte*>(stack) + kStack, CLONE_VM | CLONE_VFORK, &words);
  int status = 0;
  pid_t ended = -1;
  do {
    ended = process > 0 ? waitpid(process, &status, __WCLONE) : -1;
  } while (process > 0 && ended < 0 && errno == EINTR);
  (void)pthread_sigmask(SIG_SETMASK, &before, nullptr);
  (void)munmap(stack, kStack);
  if (ended < 0) return process > 0;
  // What it held is held for good, as by a thread that was in the middle of something.
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGABRT)) std::abort();
  return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

}  // namespace

void sayLastWords(std::span<const UniqueId> roots, const Status& cause) {
  if (roots.empty()) return;
  auto thread = startThread(nullptr, "that tells others why this process cannot take part", [&] {
    if (kHasOwnTable && unshare(CLONE_FILES) == 0) return sayFromOtherTable(roots, cause);
    if (!sayFromAProcess(roots, cause)) sayFromHere(roots, cause);
  });
  if (thread) return thread->join();
  sayFromHere(roots, cause);  // threads are what is lacking
}

}  // namespace tutti::bootstrap
