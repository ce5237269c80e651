#include "bootstrap/mesh_core.h"

#include <algorithm>
#include <utility>

#include "bootstrap/core.h"
#include "bootstrap/tree.h"
#include "bootstrap/wire.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

constexpr int64_t kRetries = 3;
constexpr int64_t kRetriesOfNews = 1;  // who does not answer has left in peace as a rule, and nobody is to wait for it at its own end

class Handle : public Mesh {
 public:
  explicit Handle(std::shared_ptr<MeshCore> core) : core_(std::move(core)) {}
  ~Handle() override {                      // NOLINT(bugprone-exception-escape): without memory for the last word, the process may end
    if (!core_->isOfThisProcess()) return;  // in a forked child: locks may be held by threads that are not here
    core_->silence();
    core_->close();
    core_->settle();  // a process that ends right away has said goodbye, and what it had to say before
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status send(int32_t process, std::span<const std::byte> message) override { return core_->send(process, message); }
  Status tell(int32_t process, std::span<const std::byte> message) override { return core_->tell(process, message); }
  bool isReachable(int32_t process) const override { return core_->isReachable(process); }
  void after(std::chrono::milliseconds time, std::function<void()> call) override { core_->after(time, std::move(call)); }
  void setHandlers(OnMessage onMessage, OnLost onLost) override { core_->setHandlers(std::move(onMessage), std::move(onLost)); }
  std::shared_ptr<Exchange> allGather(std::span<const std::byte> own, std::chrono::milliseconds limit) override {
    return core_->allGather(own, limit);
  }
  std::shared_ptr<Exchange> barrier(std::chrono::milliseconds limit) override { return core_->allGather({}, limit); }
  Counters counters() const override { return core_->counters(); }

 private:
  const std::shared_ptr<MeshCore> core_;
};

std::vector<std::byte> encodeIndex(int32_t process) {
  Writer writer;
  writer.number(process);
  return std::move(writer).take();
}

}  // namespace

MeshCore::MeshCore(std::shared_ptr<Core> core, const Membership& membership, const Secret& key, std::shared_ptr<Lease> lease,
                   size_t mostEarlyBytes)
    : core_(std::move(core)),
      membership_(membership),
      key_(key),
      mostEarlyBytes_(mostEarlyBytes),
      lease_(std::move(lease)),
      exchanges_(membership_, waysOfExchanges()) {}

std::shared_ptr<MeshCore> MeshCore::make(const std::shared_ptr<Core>& core, const Membership& membership, const Secret& key,
                                         std::shared_ptr<Lease> lease) {
  auto self = std::make_shared<MeshCore>(core, membership, key, std::move(lease));
  core->addMesh(membership.number, self);
  return self;
}

bool MeshCore::isOfThisProcess() const { return core_->isOfThisProcess(); }

std::shared_ptr<Mesh> MeshCore::makeHandle(std::shared_ptr<MeshCore> core) { return std::make_shared<Handle>(std::move(core)); }

void MeshCore::post(std::function<void()> task) { core_->reactor.post(std::move(task)); }

Status MeshCore::queue(int32_t process, std::span<const std::byte> message, bool isNeeded) {
  const auto processes = static_cast<int32_t>(membership_.processes.size());
  if (process < 0 || process >= processes || process == membership_.ownProcess)
    return error(Code::InvalidArgument, "there is no process {} to send to: there are {}, and this is number {}", process, processes,
                 membership_.ownProcess);
  if (message.size() > Mesh::kMostMessageBytes)
    return error(Code::InvalidArgument, "a message of {} bytes is longer than {}", message.size(), Mesh::kMostMessageBytes);
  {
    const std::lock_guard lock(mutex_);
    if (const auto gone = gone_.find(process); gone != gone_.end()) return gone->second;
    if (const auto none = unreachable_.find(process); !isNeeded && none != unreachable_.end()) return none->second;
  }
  post([self = shared_from_this(), process, isNeeded, bytes = std::vector(message.begin(), message.end())]() mutable {
    self->transmit(process, Kind::Data, std::move(bytes), isNeeded);
  });
  return {};
}

bool MeshCore::isReachable(int32_t process) const {
  const std::lock_guard lock(mutex_);
  return gone_.count(process) == 0 && unreachable_.count(process) == 0;
}

void MeshCore::after(std::chrono::milliseconds time, std::function<void()> call) {
  post([self = shared_from_this(), time, call = std::move(call)]() mutable {
    if (self->isClosed_) return;
    const uint64_t number = ++self->alarmsSet_;
    self->alarms_.emplace(number, Alarm(self->core_->reactor, time, [weak = self->weak_from_this(), number, call = std::move(call)] {
      const auto here = weak.lock();
      if (!here) return;
      const auto done = here->alarms_.extract(number);
      const std::lock_guard lock(here->handlerMutex_);
      if (!here->isSilent_) call();
    }));
  });
}

std::shared_ptr<Exchange> MeshCore::allGather(std::span<const std::byte> own, std::chrono::milliseconds limit) {
  auto state = std::make_shared<Exchanges::State>(own, limit);
  if (own.size() > Mesh::kMostMessageBytes / membership_.processes.size()) {
    state->conclude(fail(Code::InvalidArgument, "{} bytes of each of {} processes are more than {} in all", own.size(),
                         membership_.processes.size(), Mesh::kMostMessageBytes));
    return state;  // for all processes, if they are to give as much
  }
  const std::lock_guard lock(mutex_);
  post([self = shared_from_this(), state] {
    if (self->isClosed_) return state->conclude(fail(Code::InvalidUsage, "the communicator has ended here"));
    self->exchanges_.start(state);
  });
  return state;
}

/// Everything here runs on the thread while the mesh lives: the exchanges are part of it.
Exchanges::Ways MeshCore::waysOfExchanges() {
  return {[this](int32_t process, std::vector<std::byte> message) { transmit(process, Kind::Round, std::move(message)); },
          [this](int32_t except, std::vector<std::byte> message) { passAlong(except, Kind::Round, message); },
          [this](std::chrono::milliseconds after, uint64_t number) {
            return Alarm(core_->reactor, after, [weak = weak_from_this(), number] {
              if (const auto self = weak.lock()) self->exchanges_.remind(number);
            });
          }};
}

void MeshCore::setHandlers(Mesh::OnMessage onMessage, Mesh::OnLost onLost) {
  {
    const std::lock_guard lock(handlerMutex_);
    onMessage_ = std::move(onMessage);
    onLost_ = std::move(onLost);
  }
  post([self = shared_from_this()] {
    {
      const std::lock_guard lock(self->handlerMutex_);
      self->hasHandlers_ = true;
      for (const Message& message : std::exchange(self->early_, {})) {
        if (const auto handler = self->onMessage_) handler(message.process, message.bytes);
      }
      self->tellLosses();
    }
    self->earlyBytes_ = 0;
    self->setReading(true);
  });
}

void MeshCore::silence() {
  const std::lock_guard lock(handlerMutex_);
  onMessage_ = nullptr;
  onLost_ = nullptr;
  isSilent_ = true;
}

void MeshCore::adoptParent(const std::shared_ptr<Link>& link) {
  post([self = shared_from_this(), link] { self->adopt(treeParent(self->membership_, self->membership_.ownProcess), link, false); });
}

void MeshCore::spread(std::shared_ptr<const std::vector<std::byte>> table, const UniqueId& id, OnTrouble onTrouble) {
  post([self = shared_from_this(), table = std::move(table), id, onTrouble = std::move(onTrouble)] {
    for (const int32_t child : treeChildren(self->membership_, self->membership_.ownProcess)) {
      if (!self->isClosed_) self->dial(child, Purpose::Tree, id.hash, id.secret, *table, Kind::Table, onTrouble);
    }
  });
}

void MeshCore::transmit(int32_t process, Kind kind, std::vector<std::byte> payload, bool isNeeded) {
  Peer& to = peer(process);
  if (isClosed_ || to.hasLeft) return;
  to.isNeeded = to.isNeeded || isNeeded;
  if (!to.out && !to.isDialing())
    dial(process, Purpose::Mesh, membership_.number, key_, encodeIndex(membership_.ownProcess), Kind::Intro, nullptr);
  if (!to.out) return to.waiting.emplace_back(kind, std::move(payload)), void();
  sent_.fetch_add(1, std::memory_order_relaxed);
  to.out->send(kind, std::move(payload));
}

void MeshCore::dial(int32_t process, Purpose purpose, uint64_t topic, const Secret& secret, std::vector<std::byte> first, Kind firstKind,
                    OnTrouble onTrouble) {
  Dialer::Plan plan;
  plan.table = &core_->dialled;
  plan.addresses = membership_.process(process).addresses;
  plan.purpose = purpose;
  plan.topic = topic;
  plan.secret = secretOf(membership_.process(process).token, secret);
  plan.whom = describeProcess(membership_, process);
  peer(process).isNeeded = peer(process).isNeeded || onTrouble != nullptr;
  plan.retries = peer(process).isNeeded ? kRetries : kRetriesOfNews;
  peer(process).dialer = Dialer::start(
      core_->reactor, std::move(plan),
      [self = shared_from_this(), process, first = std::move(first), firstKind, onTrouble = std::move(onTrouble)](auto outcome) mutable {
        if (self->isClosed_) return self->sayLast(process, outcome ? *outcome : nullptr, firstKind, std::move(first));
        self->peer(process).dialer.reset();
        if (!outcome) {
          if (onTrouble) onTrouble(outcome.error());
          if (!self->peer(process).isNeeded) return self->giveUp(process, outcome.error());
          return self->lose(process, outcome.error(), process);
        }
        self->opened_.fetch_add(1, std::memory_order_relaxed);
        self->sent_.fetch_add(1, std::memory_order_relaxed);
        (*outcome)->send(firstKind, std::move(first));
        self->adopt(process, *outcome, true);
      });
}

/// Nothing but what others may bring was to go there.
void MeshCore::giveUp(int32_t process, const Status& cause) {
  peer(process).waiting.clear();
  if (const auto link = std::exchange(peer(process).out, nullptr)) link->close();
  const std::lock_guard lock(mutex_);
  unreachable_.emplace(process, cause);
}

/// A connection with a peer is there. The first, if this side has not spoken on another yet, takes what is sent from now on.
void MeshCore::adopt(int32_t process, const std::shared_ptr<Link>& link, bool isOpenedHere) {
  if (isClosed_ || process < 0) return link->close();
  Peer& with = peer(process);
  if (with.hasLeft) return link->close();
  {
    const std::lock_guard lock(mutex_);
    unreachable_.erase(process);
  }
  if (!isOpenedHere) accepted_.fetch_add(1, std::memory_order_relaxed);
  const bool takesOver = isOpenedHere || (!with.out && !with.isDialing());
  if (takesOver && !with.out) {
    with.out = link;
  } else {
    with.others.push_back(link);
  }
  listenTo(process, link, !isOpenedHere);
  for (auto& [kind, payload] : takesOver ? std::exchange(with.waiting, {}) : std::vector<std::pair<Kind, std::vector<std::byte>>>()) {
    sent_.fetch_add(1, std::memory_order_relaxed);
    with.out->send(kind, std::move(payload));
  }
}

/// `hasSpoken`: the peer has said something on this connection. It leaves with a goodbye from then on; before, it may not know of it.
void MeshCore::listenTo(int32_t process, const std::shared_ptr<Link>& link, bool hasSpoken) {
  const auto spoken = std::make_shared<bool>(hasSpoken);
  link->start(
      [self = shared_from_this(), process, spoken, weak = std::weak_ptr(link)](Kind kind, std::span<const std::byte> payload) {
        *spoken = true;
        self->onFrame(process, weak.lock(), kind, payload);
      },
      [self = shared_from_this(), process, spoken](const Status& cause) {
        const Status loss = error(Code::RemoteError, "{} is gone: {}", describeProcess(self->membership_, process), cause.text());
        if (*spoken || self->peer(process).isNeeded) return self->lose(process, loss, process);
        self->giveUp(process, loss);
      });
}

/// The first frame says who it is.
void MeshCore::welcome(const std::shared_ptr<Link>& link) {
  link->start(
      [self = shared_from_this(), weak = std::weak_ptr(link)](Kind kind, std::span<const std::byte> payload) {
        const auto from = weak.lock();
        if (!from) return;
        Reader reader(payload);
        const auto process = reader.number<int32_t>();
        const auto processes = static_cast<int32_t>(self->membership_.processes.size());
        if (kind != Kind::Intro || !reader.atEnd() || process < 0 || process >= processes || process == self->membership_.ownProcess)
          return from->start({}, {}), from->close();  // what has come with it counts for nothing
        self->adopt(process, from, false);
        from->send(Kind::Intro, {});
      },
      [](const Status&) {});
}

void MeshCore::onFrame(int32_t process, const std::shared_ptr<Link>& link, Kind kind, std::span<const std::byte> payload) {
  if (isClosed_ || peer(process).hasLeft) return;
  if (kind == Kind::Intro && payload.empty()) return;  // the answer
  received_.fetch_add(1, std::memory_order_relaxed);
  bool makesSense = true;
  Reader reader(payload);
  if (kind == Kind::Data) {
    deliver(process, payload);
  } else if (kind == Kind::Round) {
    makesSense = exchanges_.take(process, payload);
  } else if (kind == Kind::Bye) {
    onBye(process, link, reader.number<uint8_t>() != 0);
  } else if (kind == Kind::Loss) {
    const auto lost = reader.number<int32_t>();
    makesSense = reader.ok() && lost >= 0 && static_cast<size_t>(lost) < membership_.processes.size() && lost != membership_.ownProcess;
    if (makesSense) lose(lost, decodeTrouble(payload.subspan(sizeof lost)), process);
  } else {
    makesSense = false;
  }
  if (!makesSense)
    observe::warn("bootstrap: {} sent a message that makes no sense (kind {}); it is passed over", describeProcess(membership_, process),
                  static_cast<int>(kind));
}

void MeshCore::deliver(int32_t process, std::span<const std::byte> message) {
  const std::lock_guard lock(handlerMutex_);
  if (hasHandlers_) {
    if (const auto handler = onMessage_) handler(process, message);
    return;
  }
  early_.push_back({process, {message.begin(), message.end()}});
  earlyBytes_ += sizeof(Message) + message.size();
  if (earlyBytes_ > mostEarlyBytes_) setReading(false);
}

/// What a connection has read already is handled here and now, and may end connections: they are looked at beforehand.
void MeshCore::setReading(bool isReading) {
  std::vector<std::shared_ptr<Link>> all;
  for (const auto& [process, from] : peers_) {
    if (from.out) all.push_back(from.out);
    all.insert(all.end(), from.others.begin(), from.others.end());
  }
  for (const auto& link : all) link->setReading(isReading);
}

void MeshCore::lose(int32_t process, const Status& cause, int32_t heardFrom) {
  Peer& lost = peer(process);
  // Who has told of its own trouble is left by the others: that is no news.
  if (isClosed_ || lost.hasLeft || peer(membership_.ownProcess).hasLeft) return;
  lost.hasLeft = true;
  lost.waiting.clear();
  exchanges_.lose(cause);
  if (process != membership_.ownProcess) {
    if (const auto dialer = std::exchange(lost.dialer, {}).lock()) dialer->cancel();
    if (lost.out) std::exchange(lost.out, nullptr)->close();
    for (const auto& link : std::exchange(lost.others, {})) link->close();
    losses_.emplace_back(process, cause);
    {
      const std::lock_guard lock(mutex_);
      gone_.emplace(process, cause);
    }
  }
  passOn(process, cause, heardFrom);
  // Behind what was posted to be sent just now: who is told here may end the process right away.
  if (process != membership_.ownProcess) post([self = shared_from_this()] { self->tellLosses(); });
}

void MeshCore::tellLosses() {
  const std::lock_guard lock(handlerMutex_);
  while (hasHandlers_ && lossesTold_ < losses_.size()) {
    const auto [process, cause] = losses_[lossesTold_++];
    if (const auto handler = onLost_) handler(process, cause);
  }
}

std::vector<int32_t> MeshCore::treeNeighbours() const {
  std::vector<int32_t> all = treeChildren(membership_, membership_.ownProcess);
  if (const int32_t parent = treeParent(membership_, membership_.ownProcess); parent >= 0) all.push_back(parent);
  return all;
}

std::vector<std::byte> MeshCore::encodeLoss(int32_t process, const Status& cause) {
  Writer writer;
  writer.number(process);
  writer.raw(encode(cause));
  return std::move(writer).take();
}

void MeshCore::passOn(int32_t process, const Status& cause, int32_t heardFrom) {
  passAlong(heardFrom, Kind::Loss, encodeLoss(process, cause));
}

void MeshCore::passAlong(int32_t except, Kind kind, std::span<const std::byte> payload) {
  for (const int32_t neighbour : treeNeighbours()) {
    if (neighbour != except) transmit(neighbour, kind, {payload.begin(), payload.end()});
  }
}

void MeshCore::announceTrouble(const Status& cause) {
  post([self = shared_from_this(), cause] {
    self->trouble_ = cause;
    self->lose(self->membership_.ownProcess, cause, -1);
  });
}

Mesh::Counters MeshCore::counters() const {
  return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed), opened_.load(std::memory_order_relaxed),
          accepted_.load(std::memory_order_relaxed)};
}

}  // namespace tutti::bootstrap
