#include "comm/distant.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/meeting.h"
#include "transport/local/waits_wire.h"

namespace tutti::comm {

using transport::local::Hub;
using transport::local::Pipe;
using transport::local::PipeKey;
using transport::local::PipeView;

namespace {

struct PipeEnd {
  std::array<int32_t, 4> key;
  transport::net::Handle handle;
};
struct PipeCount {
  std::array<int32_t, 4> key;
  uint64_t messages;
};
struct Departure {
  int32_t rank;
  uint64_t calls;
};

/// Where a rank stands; behind it its latest calls, and its wait as waits_wire.h writes it down.
struct Standing {
  static constexpr uint64_t kMostCalls = 16;
  int32_t rank;
  uint32_t calls;
  uint64_t episode;
  bool waits;
  bool wantsAnswer;
};
static_assert(std::is_trivially_copyable_v<Call>);

std::vector<std::byte> encode(Hub& hub, Rank rank, const transport::local::RankWait* wait, uint64_t episode, bool wantsAnswer) {
  std::vector<Call> calls;
  const uint64_t begun = hub.board(rank).begun();
  for (uint64_t s = begun - std::min(begun, Standing::kMostCalls); s < begun; ++s)
    if (const auto call = hub.board(rank).find(s)) calls.push_back(*call);
  const std::string words = wait != nullptr ? transport::local::encodeWait(*wait) : std::string();
  const Standing standing{rank.value, static_cast<uint32_t>(calls.size()), episode, wait != nullptr, wantsAnswer};
  std::vector<std::byte> body(sizeof standing + calls.size() * sizeof(Call) + words.size());
  std::memcpy(body.data(), &standing, sizeof standing);
  if (!calls.empty()) std::memcpy(body.data() + sizeof standing, calls.data(), calls.size() * sizeof(Call));
  if (!words.empty()) std::memcpy(body.data() + sizeof standing + calls.size() * sizeof(Call), words.data(), words.size());
  return body;
}

/// Why a communicator has failed; behind it the words, and the verdict if there is one.
struct Failure {
  Code code;
  uint32_t textBytes;
};

/// The verdict for another host, without where the ranks stand if that is much; empty when there is none.
std::string verdictFor(Hub& hub) {
  constexpr size_t kMostBytes = 64 << 10;
  return hub.waits().look([](const transport::local::Waits::State& state) -> std::string {
    if (!state.verdict) return {};
    std::string bytes = transport::local::encodeVerdict(*state.verdict);
    if (bytes.size() <= kMostBytes) return bytes;
    transport::local::Verdict brief = *state.verdict;
    for (auto& report : brief.ranks) report.wait.chains.clear();
    bytes = transport::local::encodeVerdict(brief);
    return bytes.size() <= kMostBytes ? bytes : std::string();
  });
}

/// Messages that a pipe has been given so far.
uint64_t countMessages(const PipeView& pipe) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < pipe.slots; ++s)
    most = std::max(most, pipe.heads[s].filled.load(std::memory_order_acquire));  // pairs with SendEnd::push, or the job's release
  return most;
}

bool isAmong(const std::vector<int32_t>& all, int32_t one) { return std::find(all.begin(), all.end(), one) != all.end(); }

int32_t countHere(const Hub& hub) {
  int32_t here = 0;
  for (int32_t r = 0; r < hub.ranks(); ++r) here += hub.isHere(Rank(r)) ? 1 : 0;
  return here;
}

template <class T>
std::span<const std::byte> bytesOfValue(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
bool read(std::span<const std::byte> body, T& value) {
  if (body.size() != sizeof value) return false;
  std::memcpy(&value, body.data(), sizeof value);
  return true;
}

}  // namespace

Distant::Distant(std::shared_ptr<Courier> courier, const std::shared_ptr<Hub>& hub)
    : courier_(std::move(courier)), hub_(hub), shared_(*hub), id_(hub->id()), ranksHere_(countHere(*hub)),
      heard_(static_cast<size_t>(hub->ranks())), jobs_(courier_->engine(), &latch_) {}

Distant::~Distant() {
  courier_->dismiss(id_, {});  // unless it took its leave
  // What was sent and not yet taken by the network must still go: its receivers count on it.
  constexpr std::chrono::seconds kPatience(2);
  if (!isOver_.exchange(true)) (void)jobs_.close(kPatience);
}

progress::Peer Distant::peerOf(Rank rank) const {
  const auto& process = courier_->roster().process(shared_.processOf(rank));
  return {rank, courier_->roster().host(process.host).name};
}

Result<PipeView> Distant::sendHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Half>& half = halves_[keyOf(key)];
  if (half != nullptr) return half->pipe.view();
  auto pipe = Pipe::create(slots, slotBytes);
  if (!pipe) return tl::unexpected(std::move(pipe).error());
  half = std::make_unique<Half>();
  half->pipe = std::move(*pipe);
  half->sender = jobs_.addSend({half->pipe.view(), peerOf(key.to), 0});
  if (const auto known = handles_.find(keyOf(key)); known != handles_.end()) {
    half->sender->setHandle(known->second);
    handles_.erase(known);
  }
  return half->pipe.view();
}

Result<PipeView> Distant::receiveHalf(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Half>& half = halves_[keyOf(key)];
  if (half != nullptr) return half->pipe.view();
  auto pipe = Pipe::create(slots, slotBytes);
  if (!pipe) return tl::unexpected(std::move(pipe).error());
  auto made = std::make_unique<Half>();
  made->pipe = std::move(*pipe);
  PipeEnd end{keyOf(key), {}};
  progress::RecvSpec spec;
  spec.pipe = made->pipe.view();
  spec.peer = peerOf(key.from);
  spec.mostBytes = slotBytes;
  spec.heard = &heard_[static_cast<size_t>(key.from.value)];
  const auto job = jobs_.addReceive(spec, &end.handle);
  if (!job) return tl::unexpected(job.error());
  if (Status status = courier_->send(shared_.processOf(key.from), id_, News::PipeEnd, bytesOfValue(end)); !status.ok())
    return tl::unexpected(std::move(status));
  half = std::move(made);
  return half->pipe.view();
}

/// A connection broke. Why is often on its way by the mesh: the peer has failed, departed or died. So the words of the network come last.
void Distant::lookAtBreak() {
  constexpr std::chrono::milliseconds kForTheReason(300);
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t since = 0;
  if (brokenSince_.compare_exchange_strong(since, now, std::memory_order_relaxed)) return;
  if (now - since > std::chrono::nanoseconds(kForTheReason).count()) shared_.failAll(latch_.status());
}

bool Distant::progress() {
  if (latch_.tripped() && !isOver_.load(std::memory_order_relaxed)) [[unlikely]]
    lookAtBreak();
  return courier_->engine().progress();
}

void Distant::wait(std::chrono::nanoseconds most) { (void)courier_->engine().progressOrWait(most); }

void Distant::leave() {
  (void)courier_->engine().progress();
  if (!isDelivered()) courier_->engine().kick();
}

/// Whether the network has taken all that was sent; what ranks did not want that have departed since counts only if `toAll`.
bool Distant::isDelivered(bool toAll) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(halves_.begin(), halves_.end(), [&](const auto& entry) {
    if (entry.second == nullptr || entry.second->sender == nullptr) return true;
    if (!toAll && shared_.departed(Rank(entry.first[3]))) return true;
    const PipeView& pipe = entry.second->pipe.view();
    const uint64_t freed = pipe.freed->value.load(std::memory_order_acquire);  // pairs with the job's release
    return pipe.heads[freed % pipe.slots].filled.load(std::memory_order_acquire) != freed + 1;
  });
}

void Distant::stands(Rank rank, const transport::local::RankWait* wait, uint64_t episode) {
  courier_->sendToHosts(shared_, News::Standing, encode(shared_, rank, wait, episode, wait != nullptr));
}

/// Somebody waits: a verdict, and the comparison of calls, need to know how far the ranks here have come.
void Distant::sayWhereAllStand(Hub& hub) {
  constexpr std::chrono::milliseconds kPause(50);
  const auto now = std::chrono::steady_clock::now();
  if (now - lastAnswer_ < kPause) return;
  lastAnswer_ = now;
  for (int32_t r = 0; r < hub.ranks(); ++r)
    if (hub.isOnHost(Rank(r))) courier_->sendToHosts(hub, News::Standing, encode(hub, Rank(r), nullptr, 0, false));
}

void Distant::hearStanding(Hub& hub, std::span<const std::byte> body) {
  Standing standing{};
  if (body.size() < sizeof standing) return;
  std::memcpy(&standing, body.data(), sizeof standing);
  body = body.subspan(sizeof standing);
  if (standing.rank < 0 || standing.rank >= hub.ranks() || hub.isOnHost(Rank(standing.rank)) || standing.calls > Standing::kMostCalls ||
      standing.calls * sizeof(Call) > body.size())
    return;
  const Rank rank(standing.rank);
  for (uint32_t i = 0; i < standing.calls; ++i) {
    Call call;
    std::memcpy(&call, body.data() + i * sizeof call, sizeof call);
    const bool isOne = static_cast<int>(call.collective) < kNumCollectives + 2 && static_cast<int>(call.type) < kNumDataTypes;
    if (isOne && !hub.board(rank).find(call.sequence)) hub.board(rank).post(call);
  }
  if (standing.waits) {
    const auto words = body.subspan(standing.calls * sizeof(Call));
    const auto wait = transport::local::decodeWait({reinterpret_cast<const char*>(words.data()), words.size()});
    uint64_t& known = episodes_[standing.rank];
    if (wait && known != standing.episode) hub.waits().publish(rank, *wait);
    if (wait) hub.waits().confirm(rank);
    known = standing.episode;
  } else if (!standing.wantsAnswer && standing.episode != 0) {
    hub.waits().withdraw(rank);
    episodes_[standing.rank] = 0;
  }
  if (standing.wantsAnswer) sayWhereAllStand(hub);
}

void Distant::failed(const Status& cause) {
  const std::string text = cause.text();
  const std::string verdict = verdictFor(shared_);
  const Failure failure{cause.code(), static_cast<uint32_t>(text.size())};
  std::vector<std::byte> body(sizeof failure + text.size() + verdict.size());
  std::memcpy(body.data(), &failure, sizeof failure);
  if (!text.empty()) std::memcpy(body.data() + sizeof failure, text.data(), text.size());
  if (!verdict.empty()) std::memcpy(body.data() + sizeof failure + text.size(), verdict.data(), verdict.size());
  courier_->sendToHosts(shared_, News::Failed, body);
}

/// A rank that ends because the communicator has failed may be heard of before whoever noticed the failure: it says why it goes.
void Distant::departed(Rank rank, uint64_t calls) {
  if (shared_.latch(rank).tripped()) {
    failed(shared_.latch(rank).status());
  } else {
    tellCounts(rank);
  }
  courier_->sendToHosts(shared_, News::Departed, bytesOfValue(Departure{rank.value, calls}));
  if (ranksHere_.fetch_sub(1, std::memory_order_relaxed) == 1) takeLeave();
}

void Distant::tellCount(const Key& key, uint64_t messages) const {
  (void)courier_->send(shared_.processOf(Rank(key[3])), id_, News::PipeCount, bytesOfValue(PipeCount{key, messages}));
}

/// To the receivers of a rank that departs; those that ask for a pipe later hear it then.
void Distant::tellCounts(Rank rank) {
  const std::lock_guard lock(mutex_);
  departedHere_.insert(rank.value);
  for (const auto& [key, half] : halves_)
    if (key[2] == rank.value && half != nullptr && half->sender != nullptr) tellCount(key, countMessages(half->pipe.view()));
  for (const auto& [key, handle] : handles_)
    if (key[2] == rank.value) tellCount(key, 0);
}

void Distant::hearPipeCount(std::span<const std::byte> body) {
  PipeCount count{};
  if (!read(body, count)) return;
  const std::lock_guard lock(mutex_);
  counts_[count.key] = count.messages;
}

std::vector<std::byte> Distant::answerForNobody(std::span<const std::byte> pipeEnd) {
  PipeEnd end{};
  if (!read(pipeEnd, end)) return {};
  const PipeCount none{end.key, 0};
  const auto bytes = bytesOfValue(none);
  return {bytes.begin(), bytes.end()};
}

bool Distant::owes(Rank rank) {
  constexpr std::chrono::seconds kForAnAnswer(2);  // the process may have ended before it was asked
  const std::lock_guard lock(mutex_);
  for (const auto& [key, half] : halves_) {
    if (key[2] != rank.value || half == nullptr || half->sender != nullptr) continue;
    if (const auto count = counts_.find(key); count != counts_.end()) {
      if (countMessages(half->pipe.view()) < count->second) return true;
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now < owedUntil_.try_emplace(rank.value, now + kForAnAnswer).first->second) return true;
  }
  return false;
}

bool Distant::isSending(Rank rank) {
  std::vector<const progress::SendJob*> senders;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, half] : halves_)
      if (key[2] == rank.value && half != nullptr && half->sender != nullptr) senders.push_back(half->sender);
  }
  return jobs_.isUnderWay(senders);
}

/// Waits until the network has all that was sent to ranks that may still want it.
void Distant::deliver() {
  constexpr std::chrono::minutes kPatience(1);
  constexpr std::chrono::milliseconds kLook(1);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto isOver = [&] { return isOver_.load(std::memory_order_relaxed) || latch_.tripped() || shared_.latch(Rank(0)).tripped(); };
  while (!isDelivered(false) && !isOver() && std::chrono::steady_clock::now() < end) (void)courier_->engine().progressOrWait(kLook);
  if (!isDelivered()) quiet();  // nobody wants it
}

/// The last rank of this process has departed. Afterwards no handler holds the hub, so that whoever lets go of it ends it, and not the
/// bootstrap's thread, behind the back of a process that then exits.
void Distant::takeLeave() {
  deliver();
  // Those behind this one in the order in which others look for somebody who can be reached: so nothing goes round and round.
  std::vector<int32_t> successors;
  bool isBehind = false;
  for (int32_t r = 0; r < shared_.ranks(); ++r) {
    const int32_t process = shared_.processOf(Rank(r));
    if (isBehind && shared_.isOnHost(Rank(r)) && !shared_.isHere(Rank(r)) && !isAmong(successors, process)) successors.push_back(process);
    isBehind = isBehind || shared_.isHere(Rank(r));
  }
  courier_->dismiss(id_, std::move(successors));
  const std::lock_guard lock(hearing_);
  isDeaf_ = true;
}

void Distant::tell(std::span<const std::byte> message) { courier_->sendToHosts(shared_, News::Meeting, message); }

void Distant::adopt(const std::shared_ptr<Hub>& child) { courier_->introduce(child); }

void Distant::quiet() {
  isOver_.store(true, std::memory_order_relaxed);
  jobs_.abort();
}

bool Distant::hear(News news, std::span<const std::byte> body) {
  const std::lock_guard lock(hearing_);
  const auto hub = isDeaf_ ? nullptr : hub_.lock();
  if (hub == nullptr) return false;
  switch (news) {
    case News::PipeEnd: hearPipeEnd(body); break;
    case News::PipeCount: hearPipeCount(body); break;
    case News::Failed: hearFailure(body); break;
    case News::Departed: {
      Departure departure{};
      if (read(body, departure) && departure.rank >= 0 && departure.rank < hub->ranks())
        hub->depart(Rank(departure.rank), departure.calls, false);
      break;
    }
    case News::Meeting: Meeting::hear(hub, body); break;
    case News::Standing: hearStanding(*hub, body); break;
  }
  return true;
}

void Distant::hearPipeEnd(std::span<const std::byte> body) {
  PipeEnd end{};
  if (!read(body, end)) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = halves_.find(end.key);
    const bool isThere = found != halves_.end() && found->second != nullptr;
    if (departedHere_.count(end.key[2]) != 0) tellCount(end.key, isThere ? countMessages(found->second->pipe.view()) : 0);
    if (!isThere) {
      handles_[end.key] = end.handle;
      return;
    }
    if (found->second->sender == nullptr) return;
    found->second->sender->setHandle(end.handle);
  }
  courier_->engine().kick();
}

void Distant::hearFailure(std::span<const std::byte> body) {
  Failure failure{};
  if (body.size() < sizeof failure) return;
  std::memcpy(&failure, body.data(), sizeof failure);
  body = body.subspan(sizeof failure);
  if (failure.code == Code::Ok || failure.textBytes > body.size()) return;
  const char* const words = reinterpret_cast<const char*>(body.data());
  auto verdict = transport::local::decodeVerdict({words + failure.textBytes, body.size() - failure.textBytes});
  const auto isOfHub = [this](Rank rank) { return rank.value >= 0 && rank.value < shared_.ranks(); };
  if (verdict && isOfHub(verdict->rank) && verdict->ranks.size() == static_cast<size_t>(shared_.ranks())) {
    shared_.waits().conclude([&](transport::local::Waits::State& state) {  // before the ranks here add where they stood
      if (!state.verdict) state.verdict = std::move(*verdict);
      return 0;
    });
  }
  shared_.failAll(Status(failure.code, std::string(words, failure.textBytes)), false);
}

}  // namespace tutti::comm
