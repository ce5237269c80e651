#include "comm/distant.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/meeting.h"
#include "core/format.h"

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
struct Departure {
  int32_t rank;
  uint64_t calls;
};

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
    : courier_(std::move(courier)), hub_(hub), shared_(*hub), id_(hub->id()), jobs_(courier_->engine(), &latch_) {}

Distant::~Distant() {
  courier_->dismiss(id_);
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
  const auto job = jobs_.addReceive(spec, &end.handle);
  if (!job) return tl::unexpected(job.error());
  if (Status status = courier_->send(shared_.processOf(key.from), id_, News::PipeEnd, bytesOfValue(end)); !status.ok())
    return tl::unexpected(std::move(status));
  half = std::move(made);
  return half->pipe.view();
}

bool Distant::progress() {
  if (latch_.tripped() && !isOver_.load(std::memory_order_relaxed)) shared_.failAll(latch_.status());
  return courier_->engine().progress();
}

void Distant::wait(std::chrono::nanoseconds most) { (void)courier_->engine().progressOrWait(most); }

void Distant::leave() {
  (void)courier_->engine().progress();
  if (!isDelivered()) courier_->engine().kick();
}

/// Whether the network has taken all that was sent.
bool Distant::isDelivered() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(halves_.begin(), halves_.end(), [](const auto& entry) {
    if (entry.second == nullptr || entry.second->sender == nullptr) return true;
    const PipeView& pipe = entry.second->pipe.view();
    const uint64_t freed = pipe.freed->value.load(std::memory_order_acquire);  // pairs with the job's release
    return pipe.heads[freed % pipe.slots].filled.load(std::memory_order_acquire) != freed + 1;
  });
}

void Distant::failed(const Status& cause) {
  const std::string text = cause.text();
  std::vector<std::byte> body(sizeof(Code) + text.size());
  const Code code = cause.code();
  std::memcpy(body.data(), &code, sizeof code);
  std::memcpy(body.data() + sizeof code, text.data(), text.size());
  courier_->sendToHosts(shared_, News::Failed, body);
}

void Distant::departed(Rank rank, uint64_t calls) {
  courier_->sendToHosts(shared_, News::Departed, bytesOfValue(Departure{rank.value, calls}));
}

void Distant::tell(std::span<const std::byte> message) { courier_->sendToHosts(shared_, News::Meeting, message); }

void Distant::adopt(const std::shared_ptr<Hub>& child) { courier_->introduce(child); }

void Distant::quiet() {
  isOver_.store(true, std::memory_order_relaxed);
  jobs_.abort();
}

void Distant::hear(News news, std::span<const std::byte> body) {
  const auto hub = hub_.lock();
  if (hub == nullptr) return;
  switch (news) {
    case News::PipeEnd: return hearPipeEnd(body);
    case News::Failed: return hearFailure(body);
    case News::Departed: {
      Departure departure{};
      if (read(body, departure) && departure.rank >= 0 && departure.rank < hub->ranks())
        hub->depart(Rank(departure.rank), departure.calls, false);
      return;
    }
    case News::Meeting: return Meeting::hear(hub, body);
  }
}

void Distant::hearPipeEnd(std::span<const std::byte> body) {
  PipeEnd end{};
  if (!read(body, end)) return;
  {
    const std::lock_guard lock(mutex_);
    const auto found = halves_.find(end.key);
    if (found == halves_.end() || found->second == nullptr) {
      handles_[end.key] = end.handle;
      return;
    }
    if (found->second->sender == nullptr) return;
    found->second->sender->setHandle(end.handle);
  }
  courier_->engine().kick();
}

void Distant::hearFailure(std::span<const std::byte> body) {
  Code code = Code::RemoteError;
  if (body.size() < sizeof code) return;
  std::memcpy(&code, body.data(), sizeof code);
  const auto text = body.subspan(sizeof code);
  if (code == Code::Ok) return;
  shared_.failAll(Status(code, std::string(reinterpret_cast<const char*>(text.data()), text.size())), false);
}

}  // namespace tutti::comm
