#include "transport/socket/connector.h"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/socket/send_comm.h"

namespace tutti::transport::socket {

Dial::Dial(const Invitation& invitation, const Address& address, uint16_t stream, const ConnectionId& connection)
    : invitation_(&invitation), address_(address), began_(std::chrono::steady_clock::now()) {
  hello_.listenId = invitation.listenId;
  hello_.connection = connection;
  hello_.stream = stream;
  hello_.streams = static_cast<uint16_t>(1 + invitation.streams.data());
  fillRandom(hello_.nonce);
}

Poll Dial::giveUp(std::string why) {
  problem_ = std::move(why);
  fd_.reset();
  state_ = State::Failed;
  return Poll::Failed;
}

Poll Dial::advance(int epoll, const Settings& settings) {
  if (state_ == State::Proved) return Poll::Ready;
  if (state_ == State::Failed) return Poll::Failed;
  Poll poll = Poll::Pending;
  if (state_ == State::Start) {
    if (poll = start(epoll, settings); poll == Poll::Failed) return poll;
  }
  if (state_ == State::Connecting) {
    if (poll = finishConnect(); poll == Poll::Failed) return poll;
  }
  if (state_ == State::AwaitChallenge) poll = readChallenge();
  if (poll == Poll::Pending && std::chrono::steady_clock::now() - began_ > std::chrono::milliseconds(settings.attemptTimeoutMs)) {
    return giveUp(state_ == State::Connecting ? "no answer" : "accepts, and then does not answer");
  }
  return poll;
}

Poll Dial::start(int epoll, const Settings& settings) {
  errno = 0;
  auto fd = openStream(address_.family(), settings);
  helpless_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (!fd) return giveUp(fd.error().text());
  fd_ = std::move(*fd);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd_.get(), &event) != 0) {
    helpless_ = true;
    return giveUp(errorText(errno));
  }
  int code = 0;
  do {
    code = ::connect(fd_.get(), address_.raw(), address_.length());
  } while (code != 0 && errno == EINTR);
  if (code != 0 && errno != EINPROGRESS) return giveUp(errorText(errno));
  state_ = State::Connecting;
  return Poll::Pending;
}

Poll Dial::finishConnect() {
  pollfd ready{fd_.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return Poll::Pending;
  int problem = 0;
  socklen_t length = sizeof problem;
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &problem, &length) != 0) problem = errno;
  if (problem != 0) return giveUp(errorText(problem));
  const iovec part{&hello_, sizeof hello_};
  const Transfer sent = sendSome(fd_.get(), &part, 1);
  if (sent.bytes != sizeof hello_) return giveUp(sent.error != 0 ? errorText(sent.error) : "takes no data");
  state_ = State::AwaitChallenge;
  return Poll::Pending;
}

Poll Dial::readChallenge() {
  while (size_ < received_.size()) {
    const iovec part{received_.data() + size_, received_.size() - size_};
    const Transfer got = receiveSome(fd_.get(), &part, 1);
    if (got.wouldBlock) return Poll::Pending;
    if (got.ended) return giveUp("closed the connection before it had proved to be the peer");
    if (got.error != 0) return giveUp(errorText(got.error));
    size_ += got.bytes;
  }
  Challenge challenge;
  std::memcpy(&challenge, received_.data(), sizeof challenge);
  if (!equal(challenge.proof, proveListener(invitation_->key, hello_, challenge.nonce))) return giveUp("somebody else answers there");
  state_ = State::Proved;
  return Poll::Ready;
}

UniqueFd Dial::commit() {
  Challenge challenge;
  std::memcpy(&challenge, received_.data(), sizeof challenge);
  const Proof proof = proveConnector(invitation_->key, hello_, challenge.nonce);
  const iovec part{const_cast<uint8_t*>(proof.data()), proof.size()};
  const Transfer sent = sendSome(fd_.get(), &part, 1);
  if (sent.bytes != proof.size()) (void)giveUp(errorText(sent.error));
  return std::move(fd_);
}

Result<std::unique_ptr<Connector>> Connector::create(const Invitation& invitation, uint32_t scope, const Settings& settings,
                                                     std::shared_ptr<Outcomes> outcomes) {
  std::unique_ptr<Connector> connector(new Connector(invitation, settings, std::move(outcomes)));
  for (Address& address : connector->invitation_.addresses) {
    if (address.isLinkLocal()) address.setScope(scope);
  }
  connector->outcomes_->order(connector->invitation_.addresses);
  connector->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!connector->epoll_) return fail(Code::SystemError, "make an epoll set: {}", errorText(errno));
  connector->descriptor_ = connector->epoll_.get();
  connector->streams_.resize(1 + static_cast<size_t>(invitation.streams.data()));
  connector->startRound();
  return connector;
}

Connector::~Connector() { forget(invitation_.key); }

void Connector::startRound() {
  fillRandom(connection_);
  dials_.clear();
  nextAddress_ = 0;
  present_ = 0;
  welcomed_ = 0;
}

Poll Connector::findAddress() {
  const Clock::time_point now = Clock::now();
  if (now < resumeAt_) return Poll::Pending;
  if (dials_.empty()) problems_.clear();
  bool alive = false;
  for (Dial& dial : dials_) {
    if (!dial.problem().empty()) continue;
    const Poll poll = dial.advance(epoll_.get(), settings_);
    alive = alive || poll == Poll::Pending;
    if (poll == Poll::Ready) {
      if (UniqueFd fd = dial.commit(); fd) {
        peer_ = dial.address();
        streams_[0] = std::move(fd);
        present_ = 1;
        noteOutcome(static_cast<size_t>(&dial - dials_.data()));
        return Poll::Ready;
      }
    }
    if (!dial.problem().empty()) problems_ += (problems_.empty() ? "" : "; ") + dial.problemText();
    if (dial.helpless()) return stop();
  }
  const bool patient = alive && now - dials_.back().began() < std::chrono::milliseconds(settings_.staggerMs);
  if (nextAddress_ < invitation_.addresses.size()) {
    if (patient) return Poll::Pending;
    dials_.emplace_back(invitation_, invitation_.addresses[nextAddress_++], uint16_t{0}, connection_);
    return findAddress();
  }
  return alive ? Poll::Pending : retry();
}

/// Address `taken` has won this round.
void Connector::noteOutcome(size_t taken) const {
  using Kind = Outcomes::Kind;
  std::vector<Outcomes::Outcome> all;
  for (size_t a = 0; a < invitation_.addresses.size(); ++a) {
    const std::string problem = a < dials_.size() ? dials_[a].problem() : std::string();
    const Kind kind = a == taken ? Kind::Taken : a >= dials_.size() ? Kind::Untried : problem.empty() ? Kind::Silent : Kind::Failed;
    all.push_back({invitation_.addresses[a], kind, problem});
  }
  outcomes_->note(all);
}

Poll Connector::stop() {
  helpless_ = true;
  ++round_;
  return Poll::Failed;
}

Poll Connector::retry() {
  if (++round_ > settings_.retryCount) return Poll::Failed;
  for (UniqueFd& stream : streams_) stream.reset();
  startRound();
  resumeAt_ = Clock::now() + std::chrono::milliseconds(int64_t{settings_.retrySleepMs} * round_);
  return Poll::Pending;
}

Poll Connector::openOthers() {
  while (!dials_.empty()) {
    Dial& dial = dials_.front();
    const Poll poll = dial.advance(epoll_.get(), settings_);
    if (poll == Poll::Pending) return poll;  // the others go on meanwhile in the kernel
    UniqueFd fd = poll == Poll::Ready ? dial.commit() : UniqueFd();
    if (!fd) {
      problems_ = dial.problemText();
      return dial.helpless() ? stop() : retry();
    }
    streams_[present_++] = std::move(fd);
    dials_.erase(dials_.begin());
  }
  return Poll::Ready;
}

Poll Connector::awaitWelcome() {
  while (welcomed_ < sizeof welcome_) {
    const iovec part{reinterpret_cast<std::byte*>(&welcome_) + welcomed_, sizeof welcome_ - welcomed_};
    const Transfer got = receiveSome(streams_[0].get(), &part, 1);
    if (got.wouldBlock) return Poll::Pending;
    welcomed_ += got.bytes;
    if (got.bytes > 0) continue;
    problems_ = format("{}: {}", peer_.text(), got.ended ? "closed the connection before it had accepted it" : errorText(got.error));
    return retry();
  }
  if (welcome_.bytes == kWelcome) return Poll::Ready;
  problems_ = format("{}: does not welcome, but says something else", peer_.text());
  ++round_;
  return Poll::Failed;
}

Status Connector::failure() const {
  return error(helpless_ ? Code::SystemError : Code::RemoteError, "cannot connect, tried {} times: {}", round_, problems_);
}

Result<std::unique_ptr<net::SendComm>> Connector::poll() {
  if (present_ == 0) {
    const Poll found = findAddress();
    if (found == Poll::Failed) return tl::unexpected(failure());
    if (found == Poll::Pending) return std::unique_ptr<net::SendComm>();
    dials_.clear();
    for (size_t i = 1; i < streams_.size(); ++i) dials_.emplace_back(invitation_, peer_, static_cast<uint16_t>(i), connection_);
    for (Dial& dial : dials_) (void)dial.advance(epoll_.get(), settings_);  // all at once
  }
  Poll rest = openOthers();
  if (rest == Poll::Ready && present_ == streams_.size()) rest = awaitWelcome();
  if (rest == Poll::Failed) return tl::unexpected(failure());
  if (rest == Poll::Pending) return std::unique_ptr<net::SendComm>();
  auto comm = SendComm::create(std::move(streams_), peer_, invitation_.streams, settings_);
  if (!comm) return tl::unexpected(std::move(comm).error());
  return std::unique_ptr<net::SendComm>(std::move(*comm));
}

}  // namespace tutti::transport::socket
