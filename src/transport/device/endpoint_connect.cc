// How an endpoint connects: from the cards of all ranks to their boards and arrivals.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/format.h"
#include "transport/device/endpoint.h"

namespace tutti::transport::device {

using driver::cuda::DevicePtr;
using driver::cuda::SetUpScope;
using memory::Place;
using memory::Purpose;

Poll Endpoint::connect() {
  Poll poll = advance();
  if (poll != Poll::Pending) return poll;
  around_.connecting->drive(*this);
  return advance();
}

Poll Endpoint::advance() {
  const std::lock_guard lock(mutex_);
  if (connected_ == Poll::Pending) connected_ = step();
  return connected_;
}

Poll Endpoint::step() {
  if (survey_ != nullptr && survey_->isStill()) return Poll::Pending;
  const auto scope = SetUpScope::enter(around_.gpu->context());
  if (!scope) return fail(scope.error());
  for (; checked_ < ranks_; ++checked_) {
    if (page_.rank(checked_).state.load(std::memory_order_acquire) == CardState::Empty) {  // pairs with prepare()
      missing_ = Rank(checked_);
      return Poll::Pending;
    }
    if (Status status = check(checked_); !status.ok()) return fail(std::move(status));
  }
  if (page_.rank(rank_.value).shared.state.load(std::memory_order_relaxed) == CardState::Empty) {  // this rank's own
    const Poll surveyed = survey_->poll();
    missing_ = survey_->missing();
    if (surveyed == Poll::Failed) return fail(survey_->status());
    if (surveyed == Poll::Pending) return surveyed;
    if (Status status = announceShared(); !status.ok()) return fail(std::move(status));
  }
  for (; reached_ < ranks_; ++reached_)
    if (const Poll poll = connectTo(reached_); poll != Poll::Ready) return poll;
  survey_.reset();
  missing_ = Rank(-1);
  return Poll::Ready;
}

Status Endpoint::check(int32_t peer) const {
  if (peer == rank_.value) return {};
  const RankCard& card = page_.rank(peer);
  if (!(card.config == config_))
    return error(Code::InvalidUsage,
                 "ranks {} and {} have different settings for GPUs: TUTTI_SLOTS, TUTTI_SLICE_BYTES, NCCL_BUFFSIZE, TUTTI_CHECKS, "
                 "TUTTI_COPY_ENGINES, TUTTI_STREAM_STAGES, CUDA_DEVICE_MAX_CONNECTIONS, TUTTI_MAPPED, TUTTI_BULK, TUTTI_BLOCK_PRICE, "
                 "CTAPolicy, cgaClusterSize and the limits of CTAs and channels must be the same on all ranks, and so must the number of "
                 "multiprocessors and what their streams can do",
                 rank_.value, peer);
  if (!around_.sharesGpus && std::memcmp(card.gpu, &around_.gpu->info().uuid, sizeof card.gpu) == 0)
    return error(Code::InvalidUsage,
                 "duplicate GPU: ranks {} and {} are both on device {} ({}); kernels that wait for each other need a GPU each. "
                 "TUTTI_MULTI_RANK_GPU=1 allows it for tests",
                 std::min(rank_.value, peer), std::max(rank_.value, peer), around_.gpu->device(), around_.gpu->info().pciBusId);
  return {};
}

/// Where this rank's board and arrivals are, now that it is known who reaches this GPU.
Status Endpoint::announceShared() {
  for (int32_t peer = 0; peer < ranks_; ++peer) {
    const bool isDirect = survey_->isDirect(peer);
    peers_[static_cast<size_t>(peer)].isDirect = isDirect;
    isDirect_ = isDirect_ && isDirect;
  }
  const uint64_t bytes = ControlLayout(config_, ranks_).sharedBytes;
  if (!isDirect_) {
    auto shared = takeZeroed(Place::Host, Purpose::Boards, bytes);
    if (!shared) return std::move(shared).error();
    shared_ = std::move(*shared);
  }
  RankCard& card = page_.rank(rank_.value);
  card.usesHost = isDirect_ ? 0 : 1;
  announce(card.shared.place, isDirect_ ? control_ : shared_, 0, bytes);
  card.shared.state.store(CardState::Written, std::memory_order_release);  // pairs with connectTo()
  return {};
}

Poll Endpoint::connectTo(int32_t peer) {
  Peer& entry = peers_[static_cast<size_t>(peer)];
  const RankCard& card = page_.rank(peer);
  if (card.shared.state.load(std::memory_order_acquire) == CardState::Empty) {  // pairs with announceShared()
    missing_ = Rank(peer);
    return Poll::Pending;
  }
  anyHost_ = anyHost_ || card.usesHost != 0;
  const auto address = peer == rank_.value ? Result<DevicePtr>(isDirect_ ? control_.address() : shared_.address())
                                           : reach(peer, card.shared.place);
  if (!address) return fail(address.error());
  entry.shared = *address;
  return Poll::Ready;
}

void Connecting::add(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  endpoints_.push_back(&endpoint);
}

void Connecting::remove(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  std::erase(endpoints_, &endpoint);
}

void Connecting::drive(const Endpoint& except) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread drives them
  std::erase_if(endpoints_, [&](Endpoint* endpoint) { return endpoint != &except && endpoint->advance() != Poll::Pending; });
}

}  // namespace tutti::transport::device
