#include "bootstrap/last_words.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "bootstrap/reactor.h"
#include "bootstrap/uplink.h"
#include "core/thread.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kMost(2000);
/// A loop's three and a socket for each address that an id can have, for two roots; standard input and output stay what they are.
constexpr unsigned kFirst = 3, kRoom = 24;

#if defined(__SANITIZE_THREAD__)
constexpr bool kHasOwnTable = false;  // the sanitizer takes equal numbers in two tables for one descriptor
#else
constexpr bool kHasOwnTable = true;
#endif

/// Becomes ready, broken, when the last who has to say something lets go of its promise.
using Unsaid = std::shared_ptr<std::promise<void>>;

void dial(Reactor& reactor, const UniqueId& root, const Status& cause, Unsaid unsaid) {
  Dialer::Plan plan = planFor(root);
  plan.retries = root.isFixed ? 10 : 0;  // NCCL_COMM_ID: it may come later
  plan.roundLimit = kMost;
  Dialer::start(reactor, std::move(plan), [cause, unsaid = std::move(unsaid)](const Result<std::shared_ptr<Link>>& link) {
    if (!link) return;
    (*link)->send(Kind::Trouble, encode(cause));
    (*link)->finish(unsaid);
  });
}

void sayFromHere(std::span<const UniqueId> roots, const Status& cause) {
  if (kHasOwnTable && unshare(CLONE_FILES) == 0) (void)syscall(SYS_close_range, kFirst, kFirst + kRoom - 1, 0u);
  Reactor reactor;  // its thread shares the table of the one that starts it
  if (!reactor.hold().ok()) return;
  ReactorHold hold(reactor);
  auto unsaid = std::make_shared<std::promise<void>>();
  const std::future<void> said = unsaid->get_future();
  for (const UniqueId& root : roots)
    reactor.post([&reactor, root, cause, unsaid] { dial(reactor, root, cause, unsaid); });
  unsaid.reset();
  (void)said.wait_for(kMost);
  hold.reset();
  reactor.stop();
}

}  // namespace

void sayLastWords(std::span<const UniqueId> roots, const Status& cause) {
  if (roots.empty()) return;
  auto thread = startThread(nullptr, "that tells others why this process cannot take part", [&] { sayFromHere(roots, cause); });
  if (thread) thread->join();
}

}  // namespace tutti::bootstrap
