// The two makers of ports (root.h): for those who register in the root's own process, and for those who have connected to it.
#include <mutex>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

class LocalPort : public RootPort {
 public:
  LocalPort(std::shared_ptr<Root> root, const std::shared_ptr<PartyPort>& party) : root_(std::move(root)), party_(party) {}

  Status enroll(const Enroll& message) override {
    const auto party = party_.lock();
    return party ? root_->enroll(party, message) : Status();
  }
  Status bring(const Part& message) override {
    const auto party = party_.lock();
    return party ? root_->bring(party, message) : Status();
  }
  void ready() override {
    if (const auto party = party_.lock()) root_->ready(*party);
  }
  void giveUp(const Status& cause) override {
    if (const auto party = party_.lock()) root_->giveUp(*party, cause);
  }
  std::string describe() const override { return root_->describeMissing(); }

 private:
  const std::shared_ptr<Root> root_;
  const std::weak_ptr<PartyPort> party_;
};

/// Somebody at the other end of a connection. The connection's handlers own it; it does not own the connection, which lives until it is
/// closed, by this side, the other, or the end of the service.
class RemoteParty : public PartyPort, public std::enable_shared_from_this<RemoteParty> {
 public:
  RemoteParty(std::shared_ptr<Core> core, uint64_t topic, const std::shared_ptr<Root>& root, const std::shared_ptr<Link>& link)
      : core_(std::move(core)), topic_(topic), root_(root), link_(link) {}

  void start(const std::shared_ptr<Link>& link) {
    link->start([self = shared_from_this()](Kind kind, std::span<const std::byte> payload) { self->onFrame(kind, payload); },
                [self = shared_from_this()](const Status& cause) {
                  const std::lock_guard lock(self->core_->mutex);
                  if (const auto root = self->root_.lock()) root->lose(*self, cause);
                });
  }

  void onWelcome(const Welcome& who) override { say(Kind::Welcome, encode(who)); }
  void onTable(const Table& table) override { say(Kind::Table, encode(table)); }
  void onMissing(const std::string& text) override {
    Writer writer;
    writer.text(std::string_view(text).substr(0, kMostErrorBytes));  // more is not read
    say(Kind::Missing, std::move(writer).take());
  }
  void onGo() override {
    say(Kind::Go, {});
    finish();
  }
  void onTrouble(const Status& cause) override {
    say(Kind::Trouble, encode(cause));
    finish();
  }

 private:
  void say(Kind kind, std::vector<std::byte> payload) {
    if (const auto link = link_.lock()) link->send(kind, std::move(payload));
  }
  void finish() {
    if (const auto link = link_.lock()) link->finish();
  }

  void onFrame(Kind kind, std::span<const std::byte> payload) {
    const std::lock_guard lock(core_->mutex);
    const auto root = root_.lock();
    if (!root || root->isOver()) return onTrouble(core_->fateOf(topic_));
    const Status status = handle(*root, kind, payload);
    if (!status.ok()) onTrouble(status);
  }

  Status handle(Root& root, Kind kind, std::span<const std::byte> payload) {
    if (kind == Kind::Enroll) {
      if (const auto message = decodeEnroll(payload)) return root.enroll(shared_from_this(), *message);
    } else if (kind == Kind::Part) {
      if (const auto message = decodePart(payload)) return root.bring(shared_from_this(), *message);
    } else if (kind == Kind::Ready) {
      root.ready(*this);
      return {};
    } else if (kind == Kind::Trouble) {
      root.giveUp(*this, decodeTrouble(payload));
      finish();
      return {};
    }
    Status status = error(Code::InternalError, "a process that had connected here sent a message that makes no sense (kind {})",
                          static_cast<int>(kind));
    root.fail(status, this);
    return status;
  }

  const std::shared_ptr<Core> core_;
  const uint64_t topic_;
  const std::weak_ptr<Root> root_;
  const std::weak_ptr<Link> link_;
};

}  // namespace

std::shared_ptr<RootPort> makeLocalPort(std::shared_ptr<Root> root, const std::shared_ptr<PartyPort>& party) {
  return std::make_shared<LocalPort>(std::move(root), party);
}

void serveParty(std::shared_ptr<Core> core, uint64_t topic, const std::shared_ptr<Root>& root, const std::shared_ptr<Link>& link) {
  std::make_shared<RemoteParty>(std::move(core), topic, root, link)->start(link);
}

}  // namespace tutti::bootstrap
