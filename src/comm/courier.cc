#include "comm/courier.h"

#include <cstring>
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
  Envelope envelope;
  std::memset(&envelope, 0, sizeof envelope);  // what lies between its parts, too
  envelope.hub = hub;
  envelope.news = news;
  std::vector<std::byte> message(sizeof envelope + body.size());
  std::memcpy(message.data(), &envelope, sizeof envelope);
  if (!body.empty()) std::memcpy(message.data() + sizeof envelope, body.data(), body.size());
  return message;
}

/// What spreads begins with its kind.
bool isSpreadKind(News news) {
  return news == News::Failed || news == News::Departed || news == News::Meeting || news == News::Standing || news == News::Finalized;
}

}  // namespace

Courier::Courier(const bootstrap::Roster& roster, std::shared_ptr<progress::Engine> engine)
    : roster_(roster), engine_(std::move(engine)), spread_(std::make_shared<Spread>(roster, seal(0, News::Spread, {}), realClock())) {}

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
    for (const Waiting& late : waiting) waitingBytes_ -= late.body.size();
  }
  for (const Waiting& late : waiting) (void)distant->hear(late.news, late.body);
}

void Courier::dismiss(uint64_t hub) {
  {
    const std::lock_guard lock(mutex_);
    hubs_.erase(hub);
    if (!gone_.insert(hub).second) return;
  }
  spread_->end(hub);
  spread_->flush();
}

Status Courier::send(int32_t process, uint64_t hub, News news, std::span<const std::byte> body) {
  return roster_.mesh->send(process, seal(hub, news, body));
}

void Courier::sendToHosts(uint64_t hub, const Circle& circle, News news, std::span<const std::byte> body, Spread::Way way) {
  std::vector<std::byte> piece(1 + body.size());
  piece.front() = static_cast<std::byte>(news);
  if (!body.empty()) std::memcpy(piece.data() + 1, body.data(), body.size());
  spread_->say(hub, circle, piece, way);
}

void Courier::hear(int32_t from, std::span<const std::byte> message) {
  Envelope envelope{};
  if (message.size() < sizeof envelope) return;
  std::memcpy(&envelope, message.data(), sizeof envelope);
  const auto body = message.subspan(sizeof envelope);
  if (envelope.news == News::Spread) return spread_->hear(from, body, *this);
  if (envelope.news != News::PipeEnd && envelope.news != News::PipeCount) return;
  if (hearFor(envelope.hub, from, envelope.news, body) || envelope.news != News::PipeEnd) return;
  // Who asks for a pipe of ranks that have left hears that nothing will come.
  if (const auto answer = Distant::answerForNobody(body); !answer.empty()) (void)send(from, envelope.hub, News::PipeCount, answer);
}

/// Who has failed has said so, or heard it from somebody who did, or of a loss, which everybody hears of.
bool Courier::isWorthPassingOn(const Spread::Piece& piece) {
  if (piece.body.empty() || static_cast<News>(piece.body.front()) != News::Failed) return true;
  std::shared_ptr<Distant> distant;
  const std::lock_guard lock(mutex_);
  if (const auto found = hubs_.find(piece.topic); found != hubs_.end()) distant = found->second.lock();
  return distant == nullptr || !distant->hasFailed();
}

bool Courier::take(const Spread::Piece& piece) {
  if (piece.body.empty() || !isSpreadKind(static_cast<News>(piece.body.front()))) return true;
  return hearFor(piece.topic, piece.origin, static_cast<News>(piece.body.front()), piece.body.subspan(1));
}

bool Courier::hearFor(uint64_t hub, int32_t from, News news, std::span<const std::byte> body) {
  std::shared_ptr<Distant> distant;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = hubs_.find(hub); found != hubs_.end()) {
      distant = found->second.lock();
    } else if (gone_.count(hub) == 0) {
      if (waitingBytes_ + body.size() > kMostWaiting) {
        observe::warn("{} send more to communicators that are not there than can be kept: messages are lost",
                      bootstrap::describeProcess(roster_, from));
        return true;
      }
      waitingBytes_ += body.size();
      waiting_[hub].push_back({news, {body.begin(), body.end()}});
      return true;
    }
  }
  return distant != nullptr && distant->hear(news, body);
}

}  // namespace tutti::comm
