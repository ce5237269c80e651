#include "bootstrap/dialer.h"

#include <algorithm>
#include <utility>

#include "bootstrap/asio.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::milliseconds kStagger(150);

}  // namespace

Dialer::Dialer(Reactor& reactor, Plan plan, Done done)
    : reactor_(reactor), plan_(std::move(plan)), done_(std::move(done)), timer_(reactor.loop()) {}

std::shared_ptr<Dialer> Dialer::start(Reactor& reactor, Plan plan, Done done) {
  auto self = std::make_shared<Dialer>(reactor, std::move(plan), std::move(done));
  self->beginRound();
  return self;
}

void Dialer::beginRound() {
  attempts_.clear();
  failed_ = 0;
  problems_.assign(plan_.addresses.size(), Status());
  if (plan_.addresses.empty()) {
    reactor_.post([self = shared_from_this()] { self->finish(fail(Code::InvalidArgument, "{} has no address", self->plan_.whom)); });
    return;
  }
  tryNext();
}

/// Begins with the next address, and looks after the one behind it when this one keeps us waiting.
void Dialer::tryNext() {
  if (!done_ || attempts_.size() == plan_.addresses.size()) return;
  const size_t which = attempts_.size();
  const Address& address = plan_.addresses[which];
  Handshake::Target target{toSocketAddress(address), describe(address), plan_.purpose, plan_.topic, plan_.secret};
  attempts_.push_back(Handshake::connect(reactor_, target, plan_.roundLimit,
                                         [self = shared_from_this(), which, round = round_](Result<Established> outcome) {
                                           if (round == self->round_) self->onAttempt(which, std::move(outcome));
                                         }));
  timer_.expires_after(kStagger);
  timer_.async_wait([self = shared_from_this(), round = round_](const asio::error_code& why) {
    if (!why && round == self->round_) self->tryNext();
  });
}

void Dialer::onAttempt(size_t which, Result<Established> outcome) {
  if (!done_) return;
  if (outcome) {
    log(which);
    std::string peer = format("{} at {}", plan_.whom, describe(plan_.addresses[which]));
    return finish(std::make_shared<Link>(reactor_, std::move(outcome->socket), outcome->keys, std::move(peer)));
  }
  problems_[which] = std::move(outcome).error();
  if (++failed_ == plan_.addresses.size()) return endRound();
  tryNext();
}

void Dialer::log(size_t taken) const {
  if (plan_.table == nullptr || !plan_.table->isShown()) return;
  std::vector<observe::AddressTable::Row> rows;
  for (size_t a = 0; a < plan_.addresses.size(); ++a) {
    observe::AddressTable::Row row{describe(plan_.addresses[a]), problems_[a].text()};
    if (row.refusal.rfind(row.address + " ", 0) == 0) row.refusal.erase(0, row.address.size() + 1);
    if (a != taken && row.refusal.empty())
      row.refusal = a < attempts_.size() ? "had not answered when another one did" : "not tried: another one answered";
    rows.push_back(std::move(row));
  }
  plan_.table->add(plan_.whom, rows);
}

/// Nobody answered as he should.
void Dialer::endRound() {
  const auto stranger = std::find_if(problems_.begin(), problems_.end(), [](const Status& s) { return s.code() == Code::InvalidUsage; });
  const bool isSecretWrong = plan_.purpose == Purpose::Root && stranger != problems_.end();
  const auto now = std::chrono::steady_clock::now();
  if (isSecretWrong) stranger_ = stranger->text();
  if (!isSecretWrong) strangerCame_.reset();
  if (isSecretWrong && !strangerCame_) strangerCame_ = now;
  const bool isOwnFault = std::all_of(problems_.begin(), problems_.end(), [](const Status& s) { return s.code() == Code::SystemError; });
  if (round_ >= plan_.retries || (isHurried_ && isOwnFault) || (isSecretWrong && now - *strangerCame_ >= plan_.strangerLimit)) {
    std::string reasons;
    for (const Status& problem : problems_) reasons += (reasons.empty() ? "" : "; ") + problem.text();
    if (!isSecretWrong && !stranger_.empty()) reasons += format("; before that, {}", stranger_);
    const Code code = !stranger_.empty() ? Code::InvalidUsage : isOwnFault ? Code::SystemError : Code::RemoteError;
    return finish(fail(code, "cannot reach {} ({} {}): {}", plan_.whom, round_ + 1,
                       round_ == 0 ? "try" : "tries", reasons));
  }
  ++round_;
  beginRoundAfter(plan_.pause * round_);
}

void Dialer::beginRoundAfter(std::chrono::milliseconds pause) {
  timer_.expires_after(pause);
  timer_.async_wait([self = shared_from_this()](const asio::error_code& why) {
    if (!why && self->done_) self->beginRound();
  });
}

void Dialer::hurry() {
  isHurried_ = true;
  if (done_ && failed_ > 0 && failed_ == plan_.addresses.size()) beginRoundAfter(std::chrono::milliseconds(0));  // it is in a pause
}

void Dialer::finish(Result<std::shared_ptr<Link>> outcome) {
  const Done done = std::exchange(done_, nullptr);
  cancel();
  if (done) done(std::move(outcome));
}

void Dialer::cancel() {
  done_ = nullptr;
  timer_.cancel();
  for (const auto& weak : std::exchange(attempts_, {})) {
    if (const auto attempt = weak.lock()) attempt->cancel();
  }
}

}  // namespace tutti::bootstrap
