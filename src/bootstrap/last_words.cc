#include "bootstrap/last_words.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>

#include "bootstrap/reactor.h"
#include "bootstrap/uplink.h"
#include "core/thread.h"

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

void makeRoom() {
  if (!kHasOwnTable || unshare(CLONE_FILES) != 0) return;
  for (int fd = kFirst; fd < kFirst + kRoom; ++fd) (void)::close(fd);
}

}  // namespace

void sayLastWords(std::span<const UniqueId> roots, const Status& cause) {
  if (roots.empty()) return;
  auto thread = startThread(nullptr, "that tells others why this process cannot take part", [&] {
    makeRoom();
    sayFromHere(roots, cause);
  });
  if (thread) return thread->join();
  sayFromHere(roots, cause);  // threads are what is lacking
}

}  // namespace tutti::bootstrap
