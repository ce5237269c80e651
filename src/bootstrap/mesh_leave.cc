// How a process leaves a mesh, and what it hears of others that do.
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/mesh_core.h"

namespace tutti::bootstrap {
namespace {

/// For connections that are still being made when the communicator ends.
constexpr std::chrono::seconds kLastTries(2);

}  // namespace

/// The peer says nothing more on this connection; on the last, nothing more at all.
void MeshCore::onBye(int32_t process, const std::shared_ptr<Link>& link, bool isLast) {
  Peer& from = peer(process);
  if (!isLast) {
    if (from.out == link) from.out.reset();  // it will answer nothing that is sent now
    std::erase(from.others, link);
    if (link) link->finish();
    return;
  }
  const Status cause = error(Code::RemoteError, "{} has ended its part of the communicator", describeProcess(membership_, process));
  from.hasLeft = true;
  from.waiting.clear();
  if (const auto dialer = std::exchange(from.dialer, {}).lock()) dialer->cancel();
  if (from.out) std::exchange(from.out, nullptr)->finish();
  for (const auto& other : std::exchange(from.others, {})) other->finish();
  {
    const std::lock_guard lock(mutex_);
    gone_.emplace(process, cause);
  }
  exchanges_.leave(process, cause);
}

/// Trouble first: it may still be on its way along the tree, and of who has said goodbye nobody hears it any more.
void MeshCore::sayGoodbye(const std::shared_ptr<Link>& link, bool isLast) {
  if (!trouble_.ok()) link->send(Kind::Loss, encodeLoss(membership_.ownProcess, trouble_));
  link->send(Kind::Bye, {static_cast<std::byte>(isLast)});
}

/// Also for connections that are still being made: what is to be said on them goes with the process.
void MeshCore::settle() {
  constexpr std::chrono::milliseconds kPatience(500);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  if (core_->reactor.settle(kPatience)) (void)allSaid_.wait_until(end);
}

void MeshCore::close() {
  post([self = shared_from_this()] { self->end(); });
}

void MeshCore::end() {
  if (std::exchange(isClosed_, true)) return;
  for (auto& [process, with] : peers_) {
    // What was sent is on one of them: only there it is the last word.
    const auto bye = [&](const std::shared_ptr<Link>& link, bool isLast) {
      sayGoodbye(link, isLast);
      link->finish(unsaid_);
    };
    for (const auto& link : with.others) bye(link, !with.out && !with.isDialing());
    if (with.out) bye(with.out, true);
  }
  std::erase_if(peers_, [](const auto& entry) { return !entry.second.isDialing(); });  // what was sent to those is on its way
  exchanges_.lose(error(Code::InvalidUsage, "the communicator has ended here"));
  alarms_.clear();
  if (!peers_.empty())
    alarms_.emplace(0, Alarm(core_->reactor, kLastTries, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->giveUpDialing();
    }));
  const std::lock_guard lock(core_->mutex);
  core_->removeMesh(membership_.number);
  if (peers_.empty()) release();
}

/// Who has not answered by now may be stopped, or cannot be reached: a thread would wait for all tries in vain.
void MeshCore::giveUpDialing() {
  for (const auto& [process, with] : std::exchange(peers_, {}))
    if (const auto dialer = with.dialer.lock()) dialer->cancel();
  const std::lock_guard lock(core_->mutex);
  release();
}

void MeshCore::release() {
  lease_.reset();
  unsaid_.reset();
}

/// Closed already when the connection came that messages wait for. Of two that were on their way to a process, the table's and one for
/// messages, the first takes what waits; and who came too late for giveUpDialing() has nothing to say but his first words.
void MeshCore::sayLast(int32_t process, const std::shared_ptr<Link>& link, Kind firstKind, std::vector<std::byte> first) {
  auto last = peers_.extract(process);
  if (link) {
    link->send(firstKind, std::move(first));
    if (!last.empty())
      for (auto& [kind, payload] : last.mapped().waiting) link->send(kind, std::move(payload));
    sayGoodbye(link, true);
    link->start(nullptr, nullptr);
    link->finish(unsaid_);
  }
  const std::lock_guard lock(core_->mutex);
  if (peers_.empty()) release();
}

}  // namespace tutti::bootstrap
