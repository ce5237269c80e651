#include "comm/courier.h"

#include <cstring>
#include <set>
#include <utility>

#include "comm/distant.h"
#include "observe/log.h"

namespace tutti::comm {

using transport::local::Hub;

namespace {

struct Envelope {
  uint64_t hub;
  News news;
};

std::vector<std::byte> seal(uint64_t hub, News news, std::span<const std::byte> body) {
  const Envelope envelope{hub, news};
  std::vector<std::byte> message(sizeof envelope + body.size());
  std::memcpy(message.data(), &envelope, sizeof envelope);
  if (!body.empty()) std::memcpy(message.data() + sizeof envelope, body.data(), body.size());
  return message;
}

}  // namespace

void Courier::introduce(const std::shared_ptr<Hub>& hub) {
  std::deque<Waiting> waiting;
  std::shared_ptr<Distant> distant;
  {
    const std::lock_guard lock(mutex_);
    if (hub->remote() != nullptr) return;
    distant = std::make_shared<Distant>(shared_from_this(), hub);
    hub->setRemote(distant);
    hubs_[hub->id()] = distant;
    if (const auto found = waiting_.find(hub->id()); found != waiting_.end()) {
      waiting = std::move(found->second);
      waiting_.erase(found);
    }
    for (const Waiting& late : waiting) waitingBytes_ -= late.message.size();
  }
  for (const Waiting& late : waiting) hear(late.from, late.message);
}

void Courier::dismiss(uint64_t hub, const std::vector<int32_t>& successors) {
  const std::lock_guard lock(mutex_);
  hubs_.erase(hub);
  gone_.try_emplace(hub, successors);
}

/// A message for a hub that this process has left. Who asks for a pipe hears that nothing will come.
void Courier::hearForGone(int32_t from, uint64_t hub, News news, std::span<const std::byte> message) {
  if (news == News::PipeEnd) {
    if (const auto answer = Distant::answerForNobody(message.subspan(sizeof(Envelope))); !answer.empty())
      (void)send(from, hub, News::PipeCount, answer);
    return;
  }
  if (news == News::PipeCount) return;
  std::vector<int32_t> successors;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = gone_.find(hub); found != gone_.end()) successors = found->second;
  }
  for (const int32_t process : successors)
    if (roster_.mesh->send(process, message).ok()) return;
}

Status Courier::send(int32_t process, uint64_t hub, News news, std::span<const std::byte> body) {
  return roster_.mesh->send(process, seal(hub, news, body));
}

void Courier::sendToHosts(const Hub& hub, News news, std::span<const std::byte> body) {
  std::set<int32_t> reached = {roster_.ownHost};
  for (int32_t r = 0; r < hub.ranks(); ++r) {
    const int32_t process = hub.processOf(Rank(r));
    const int32_t host = roster_.process(process).host;
    // A process that has left cannot be reached: the next of its host then gets it.
    if (reached.count(host) == 0 && send(process, hub.id(), news, body).ok()) reached.insert(host);
  }
}

void Courier::hear(int32_t from, std::span<const std::byte> message) {
  Envelope envelope{};
  if (message.size() < sizeof envelope) return;
  std::memcpy(&envelope, message.data(), sizeof envelope);
  std::shared_ptr<Distant> distant;
  {
    const std::lock_guard lock(mutex_);
    const auto found = hubs_.find(envelope.hub);
    if (found != hubs_.end()) {
      distant = found->second.lock();
    } else if (gone_.count(envelope.hub) == 0) {
      if (waitingBytes_ + message.size() > kMostWaiting) {
        observe::warn("{} send more to communicators that are not there than can be kept: messages are lost",
                      bootstrap::describeProcess(roster_, from));
        return;
      }
      waitingBytes_ += message.size();
      waiting_[envelope.hub].push_back({from, {message.begin(), message.end()}});
      return;
    }
  }
  if (distant == nullptr || !distant->hear(envelope.news, message.subspan(sizeof envelope)))
    hearForGone(from, envelope.hub, envelope.news, message);
}

}  // namespace tutti::comm
