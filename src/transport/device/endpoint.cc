#include "transport/device/endpoint.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/format.h"
#include "transport/device/near_pages.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using driver::cuda::SetUpScope;
using exec::cuda::Protocol;
using memory::Bank;
using memory::Place;
using memory::Purpose;

Result<std::unique_ptr<Endpoint>> Endpoint::open(std::shared_ptr<local::Hub> hub, Rank rank, const EndpointConfig& config,
                                                 const Surroundings& around) {
  const int32_t ranks = hub->ranks();
  const auto page = hub->devicePage(Bytes(Page::bytesFor(ranks)));
  if (!page) return tl::unexpected(page.error());
  std::unique_ptr<Endpoint> endpoint(new Endpoint);
  endpoint->hub_ = std::move(hub);
  endpoint->rank_ = rank;
  endpoint->ranks_ = ranks;
  endpoint->config_ = config;
  endpoint->around_ = around;
  around.parking->arrive();
  endpoint->page_ = Page(*page, ranks);
  {
    const auto outside = driver::cuda::OutsideCaptures::enter(around.gpu->driver());
    if (!outside) return tl::unexpected(outside.error());
    (void)around.parking->sweep();
  }
  endpoint->peers_.resize(static_cast<size_t>(ranks));
  for (auto& used : endpoint->ends_) used.resize(static_cast<size_t>(config.channels));
  if (Status status = endpoint->prepare(); !status.ok()) return tl::unexpected(std::move(status));
  return endpoint;
}

void Endpoint::forgo(local::Hub& hub, Rank rank) {
  const int32_t ranks = hub.ranks();
  if (const auto page = hub.devicePage(Bytes(Page::bytesFor(ranks))))
    Page(*page, ranks).rank(rank.value).left.store(1, std::memory_order_release);  // pairs with Parking
}

Endpoint::~Endpoint() {
  around_.connecting->remove(*this);
  survey_.reset();
  const auto outside = driver::cuda::OutsideCaptures::enter(around_.gpu->driver());  // freeing is no part of anybody's capture
  if (!outside) around_.gpu->driver().tellLost(outside.error());
  Parking::Car car{hub_, page_, {}, std::move(registered_), rank_, {}, {}};
  if (kept_) {
    for (Peer& peer : peers_) std::move(peer.reached.begin(), peer.reached.end(), std::back_inserter(car.reached));
    if (userWindows_ != nullptr) std::ranges::move(userWindows_->takeReached(), std::back_inserter(car.reached));
    car.kept = std::move(*kept_);
    car.kept.seat = std::move(seat_);
  }
  userWindows_.reset();
  messageLoans_.reset();
  peers_.clear();  // else nothing of others is mapped for this rank any more
  if (!kept_) page_.rank(rank_.value).left.store(1, std::memory_order_release);  // pairs with Parking
  std::move(pipeBanks_.begin(), pipeBanks_.end(), std::back_inserter(car.banks));
  for (Bank& window : windows_)
    if (window) car.banks.push_back(std::move(window));
  for (Bank* bank : {&shared_, &control_})
    if (*bank) car.banks.push_back(std::move(*bank));
  around_.parking->leave(std::move(car));
}

void Endpoint::keepMemory(Kept kept) { kept_ = std::move(kept); }

Poll Endpoint::fail(Status status) {
  status_ = std::move(status);
  return Poll::Failed;
}

Status Endpoint::synchronize() { return around_.gpu->driver().synchronize(around_.stream); }

Result<Bank> Endpoint::takeZeroed(Place place, Purpose purpose, uint64_t bytes) {
  memory::ScratchPool& pool = place == Place::Host ? *around_.hostPool : *around_.pool;
  auto bank = pool.take(purpose, Bytes(bytes));
  if (!bank && around_.parking->sweep() > 0) bank = pool.take(purpose, Bytes(bytes));  // others may have left meanwhile
  if (!bank) return bank;
  if (place == Place::Host) {
    std::memset(bank->hostData(), 0, bank->size().value);
    return bank;
  }
  if (Status status = around_.gpu->driver().fill(bank->address(), 0, bank->size(), around_.stream); !status.ok())
    return tl::unexpected(std::move(status));
  return bank;
}

Poll Endpoint::settleWindows() {
  const auto scope = SetUpScope::enter(around_.gpu->context());  // another thread may have a capture under way
  if (!scope) return fail(scope.error());
  const Poll poll = userWindows_->advance(!anyHost_);
  missing_ = userWindows_->missing();
  return poll;
}

Poll Endpoint::settleMessageLoans() {
  const auto scope = SetUpScope::enter(around_.gpu->context());  // as above
  if (!scope) return fail(scope.error());
  // A capture may not wait until its deadline: who does not come need not.
  const std::chrono::nanoseconds limit(std::atomic_ref(page_.waits(rank_.value).limitNs).load(std::memory_order_relaxed));
  const MessageLoans::Clock::duration most = MessageLoans::kMostPatience;
  const Poll poll = messageLoans_->advance(!anyHost_, MessageLoans::Clock::now(), limit.count() == 0 ? most : std::min(most, limit / 2));
  missing_ = messageLoans_->missing();
  return poll;
}

Status Endpoint::prepare() {
  const auto scope = SetUpScope::enter(around_.gpu->context());
  if (!scope) return scope.error();
  const auto key = around_.segments->key();
  if (!key) return key.error();
  key_ = *key;
  userWindows_ = std::make_unique<UserWindows>(around_, ranks_, UserWindows::allOf(page_), key_, rank_);
  messageLoans_ = std::make_unique<MessageLoans>(around_, page_, key_, rank_);
  auto registered = around_.pages->use(*around_.gpu, &page_.kernel(), Bytes(Page::kernelBytes(ranks_)), hub_);
  if (!registered) return std::move(registered).error();
  registered_ = std::move(*registered);
  const auto seen = registered_->memory.addressFor(*around_.gpu);
  if (!seen) return seen.error();
  kernelPage_ = *seen;

  const ControlLayout layout(config_, ranks_);
  auto control = takeZeroed(Place::Device, Purpose::Boards, layout.bytes);
  if (!control) return std::move(control).error();
  control_ = std::move(*control);
  // No end is used yet: their peers are -1.
  const uint64_t ends = layout.bytes - layout.ends[0];
  TUTTI_TRY(around_.gpu->driver().fill(control_.address() + layout.ends[0], 0xff, Bytes(ends), around_.stream));
  TUTTI_TRY(synchronize());

  RankCard& card = page_.rank(rank_.value);
  if (card.state.load(std::memory_order_acquire) != CardState::Empty)  // pairs with the release below
    return error(Code::InternalError, "rank {} has said before where its memory is", rank_.value);
  card.config = config_;
  const driver::cuda::DeviceInfo& info = around_.gpu->info();
  std::memcpy(card.gpu, &info.uuid, sizeof card.gpu);
  std::memcpy(card.busId, info.pciBusId.data(), std::min(sizeof card.busId, info.pciBusId.size()));
  announce(card.control, control_, 0, layout.bytes);
  card.state.store(CardState::Written, std::memory_order_release);  // pairs with connect()
  survey_ = std::make_unique<Survey>(around_, page_, key_, rank_, kernelPage_, control_.address(), layout);
  around_.connecting->add(*this);
  return {};
}

void Endpoint::announce(BankPlace& place, const Bank& bank, uint64_t offset, uint64_t bytes) const {
  place.segment.process = key_;
  place.segment.device = around_.gpu->device();
  place.segment.place = bank.place();
  place.segment.number = bank.segmentNumber();
  place.offset = bank.offset() + offset;
  place.bytes = bytes;
}

/// Where this rank's GPU sees a bank of a peer. What it lies in stays mapped as long as the endpoint.
Result<DevicePtr> Endpoint::reach(int32_t peer, const BankPlace& place) {
  auto reached = around_.segments->reach(*around_.gpu, place.segment);
  if (!reached) return tl::unexpected(std::move(reached).error().at(format("memory of rank {} for rank {}", peer, rank_.value)));
  const DevicePtr address = reached->address() + place.offset;
  peers_[static_cast<size_t>(peer)].reached.push_back(std::move(*reached));
  return address;
}

Status Endpoint::offer(const Needs& needs) {
  std::vector<PipeNeed> missing;
  for (const PipeNeed& need : needs.pipes)
    if (!pipes_.contains(need)) missing.push_back(need);
  const bool needsWindow = needs.window >= 0 && !windows_[static_cast<size_t>(needs.window)];
  if (!needsWindow && missing.empty()) return {};
  const auto scope = SetUpScope::enter(around_.gpu->context());
  if (!scope) return scope.error();
  if (needsWindow) TUTTI_TRY(offerWindow(needs.window));
  const auto onHost = std::stable_partition(missing.begin(), missing.end(),
                                            [this](const PipeNeed& need) { return peers_[static_cast<size_t>(need.peer.value)].isDirect; });
  TUTTI_TRY(offerPipes(Place::Device, {missing.begin(), onHost}));
  return offerPipes(Place::Host, {onHost, missing.end()});
}

Poll Endpoint::offerLate(const Needs& needs) {
  Status offered = offer(needs);
  return offered.ok() ? Poll::Ready : fail(std::move(offered));
}

bool Endpoint::sharesProcesses() const {
  std::vector<ProcessKey> keys;
  for (int32_t r = 0; r < ranks_; ++r) keys.push_back(page_.rank(r).control.segment.process);
  std::ranges::sort(keys);
  return std::ranges::adjacent_find(keys) != keys.end();
}

Status Endpoint::offerWindow(int32_t which) {
  const auto w = static_cast<size_t>(which);
  auto bank =
      takeZeroed(placeOf(isDirect_), Purpose::Windows, exec::cuda::windowBytes(ranks_, config_.windowChannels[w], config_.shareBytes[w]));
  if (!bank) return std::move(bank).error();
  TUTTI_TRY(synchronize());
  windows_[w] = std::move(*bank);
  if (which == exec::cuda::windowOf(Protocol::Cells) && isDirect_)
    TUTTI_TRY(findNearPages(around_, windows_[w].address(), control_.address(), config_, page_, rank_));
  Card& card = page_.rank(rank_.value).window[w];
  announce(card.place, windows_[w], 0, windows_[w].size().value);
  card.state.store(CardState::Written, std::memory_order_release);  // pairs with settleWindow()
  return {};
}

bool Endpoint::isOpen(const Needs& needs) const {
  if (needs.window >= 0 && windowOf_[static_cast<size_t>(needs.window)].empty()) return false;
  return std::all_of(needs.pipes.begin(), needs.pipes.end(), [this](const PipeNeed& need) {
    const auto found = pipes_.find(need);
    return found != pipes_.end() && found->second.isOpen;
  });
}

Poll Endpoint::settle(const Needs& needs) {
  if (isOpen(needs)) return Poll::Ready;
  const auto scope = SetUpScope::enter(around_.gpu->context());
  if (!scope) return fail(scope.error());
  missing_ = Rank(-1);
  Poll all = needs.window >= 0 ? settleWindow(needs.window) : Poll::Ready;
  for (const PipeNeed& need : needs.pipes) {
    if (all == Poll::Failed) return all;
    const Poll one = settlePipes(need, pipes_.at(need));
    if (one != Poll::Ready) all = one;
  }
  return all;
}

Poll Endpoint::settleWindow(int32_t which) {
  const auto w = static_cast<size_t>(which);
  if (!windowOf_[w].empty()) return Poll::Ready;
  std::vector<DevicePtr> addresses;
  for (int32_t r = 0; r < ranks_; ++r) {
    if (page_.rank(r).window[w].state.load(std::memory_order_acquire) == CardState::Empty) {  // pairs with offerWindow()
      missing_ = Rank(r);
      return Poll::Pending;
    }
  }
  for (int32_t r = 0; r < ranks_; ++r) {
    const auto address = r == rank_.value ? Result<DevicePtr>(windows_[w].address()) : reach(r, page_.rank(r).window[w].place);
    if (!address) return fail(address.error());
    addresses.push_back(*address);
  }
  windowOf_[w] = std::move(addresses);
  return Poll::Ready;
}

exec::cuda::WaitControl Endpoint::waitControl() const {
  const ControlLayout layout(config_, ranks_);
  exec::cuda::WaitControl wait;
  wait.abort = asPointer<uint32_t>(kernelPage_ + offsetof(KernelPage, abort));
  wait.verdict = asPointer<exec::cuda::Verdict>(kernelPage_ + page_.offsetOf(&page_.waits(rank_.value).givenUp));
  wait.desk = asPointer<exec::cuda::WaitDesk>(kernelPage_ + page_.offsetOf(&page_.waits(rank_.value)));
  wait.relay = asPointer<exec::cuda::AbortRelay>(control_.address() + layout.relay);
  if (config_.checks == 0 || ranks_ > exec::cuda::kBoardPeers) return wait;
  wait.board = asPointer<exec::cuda::BoardEntry>(peers_[static_cast<size_t>(rank_.value)].shared + layout.board);
  wait.own = asPointer<exec::cuda::BoardEntry>(peers_[static_cast<size_t>(rank_.value)].shared + layout.board) + rank_.value;
  for (int32_t r = 0; r < ranks_; ++r)
    if (r != rank_.value)
      wait.post[r] = asPointer<exec::cuda::BoardEntry>(peers_[static_cast<size_t>(r)].shared + layout.board) + rank_.value;
  return wait;
}

void Endpoint::tellWaitsOf(uint64_t ns) const {
  constexpr uint64_t kMost = uint64_t{1} << 31;
  const uint64_t ticks = ns >> exec::cuda::kTickShift;
  page_.waits(rank_.value).silence = ticks > kMost ? 0 : static_cast<uint32_t>(std::max<uint64_t>(ticks, exec::cuda::kLeastSilence));
}

std::optional<exec::cuda::Verdict> Endpoint::takeLastingWait() const {
  exec::cuda::Verdict& lasting = page_.waits(rank_.value).lasting;
  const std::atomic_ref<uint32_t> state(lasting.state);
  uint32_t complete = exec::cuda::Verdict::Complete;
  if (state.load(std::memory_order_relaxed) != complete) return std::nullopt;
  if (!state.compare_exchange_strong(complete, exec::cuda::Verdict::Claimed, std::memory_order_acquire)) return std::nullopt;
  const exec::cuda::Verdict taken = lasting;
  state.store(exec::cuda::Verdict::Empty, std::memory_order_release);
  return taken;
}

Result<StageRoom> Endpoint::stages() {
  const StageRoom room(page_, kernelPage_, rank_);
  if (seat_ != nullptr) return room;
  auto seat = around_.watch->add(room);
  if (!seat) return tl::unexpected(std::move(seat).error());
  seat_ = std::move(*seat);
  return room;
}

exec::cuda::CopyLaunch Endpoint::copyLaunch() const {
  const ControlLayout layout(config_, ranks_);
  exec::cuda::CopyLaunch launch;
  launch.wait = waitControl();
  launch.rank = rank_.value;
  launch.ranks = ranks_;
  launch.state = asPointer<exec::cuda::CopyState>(control_.address() + layout.copyState);
  launch.own = asPointer<exec::cuda::CopyFlag>(peers_[static_cast<size_t>(rank_.value)].shared + layout.copyFlags);
  for (int32_t r = 0; r < std::min(ranks_, exec::cuda::kMaxLocalRanks); ++r)
    launch.theirs[r] = asPointer<exec::cuda::CopyFlag>(peers_[static_cast<size_t>(r)].shared + layout.copyFlags) + rank_.value;
  return launch;
}

exec::cuda::CommView Endpoint::view(Protocol protocol) const {
  const auto p = static_cast<size_t>(protocol);
  const auto w = static_cast<size_t>(exec::cuda::windowOf(protocol));
  const ControlLayout layout(config_, ranks_);
  const DevicePtr control = control_.address();
  exec::cuda::CommView v;
  v.rank = rank_.value;
  v.ranks = ranks_;
  v.pipes.ends = asPointer<exec::cuda::PipeEnd>(control + layout.ends[p]);
  v.pipes.handOver = asPointer<exec::cuda::HandOver>(control + layout.handOver);
  v.pipes.slotBytes = config_.slotBytes[p];
  v.pipes.slots = config_.slots[p];
  for (int32_t r = 0; r < std::min(ranks_, exec::cuda::kMaxLocalRanks); ++r) {
    const DevicePtr theirs = peers_[static_cast<size_t>(r)].shared;
    if (!windowOf_[w].empty()) v.window.base[r] = asPointer<std::byte>(windowOf_[w][static_cast<size_t>(r)]);
    v.window.arrivals[r] = asPointer<uint64_t>(theirs + layout.arrivals);
    if (protocol != Protocol::Cells || windowOf_[w].empty()) continue;
    v.window.storedPages[r] = page_.rank(r).cellPages[rank_.value];
    v.window.takenPages[r] = page_.rank(rank_.value).cellPages[r];
  }
  v.window.epochs = asPointer<uint64_t>(control + layout.epochs[w]);
  v.window.shareBytes = config_.shareBytes[w];
  v.window.channels = config_.windowChannels[w];
  v.wait = waitControl();
  return v;
}

}  // namespace tutti::transport::device
