// The ranks of one communicator on other hosts, over sockets: halves of pipes, and news by the courier.
//
// Owner: the Hub. Any thread.
// 1. The receiving side of a pipe listens, and its address travels to the sender over the mesh; whoever asks first waits for the other.
// 2. What fails here fails the communicator, on all hosts.
// 3. When the last rank of this process departs, what they sent is delivered first: as long as its receivers are there, the
//    communicator has not failed, and more of it is taken within the longest wait of a call, or a minute. Each of these hears how many
//    messages there are, so that it knows when all have come.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/courier.h"
#include "progress/group.h"
#include "transport/local/remote.h"

namespace tutti::comm {

struct Standing;

class Distant final : public transport::local::Remote, public std::enable_shared_from_this<Distant> {
 public:
  Distant(std::shared_ptr<Courier> courier, const std::shared_ptr<transport::local::Hub>& hub);
  ~Distant() override;

  int32_t hostOf(Rank rank) const override;
  transport::local::Way wayTo(Rank rank) const override;
  Status use(Usage usage) override;
  Result<transport::local::PipeView> sendHalf(const transport::local::PipeKey& key, uint32_t slots, uint64_t slotBytes) override;
  Result<transport::local::PipeView> receiveHalf(const transport::local::PipeKey& key, uint32_t slots, uint64_t slotBytes) override;
  bool progress() override;
  void wait(std::chrono::nanoseconds most) override;
  void leave() override;
  void stands(Rank rank, const transport::local::RankWait* wait, uint64_t episode) override;
  bool gaveUp(Rank rank, const transport::local::RankWait& wait, uint64_t episode) override;
  void haveCome() override;
  uint64_t lastHeard(Rank rank) const override { return heard_[static_cast<size_t>(rank.value)].load(std::memory_order_relaxed); }
  bool owes(Rank rank) override;
  bool isSending(Rank rank) override;
  void failed(const Status& cause) override;
  void departed(Rank rank, uint64_t calls) override;
  void finalized(Rank rank, uint64_t calls) override;
  void tell(std::span<const std::byte> message, std::span<const int32_t> members, bool toAll) override;
  void adopt(const std::shared_ptr<transport::local::Hub>& child) override;
  void quiet() override;
  std::chrono::nanoseconds pause() const override;

  /// On the bootstrap's thread. False: the ranks of this process have all departed, and it has not been heard.
  bool hear(News news, std::span<const std::byte> body);
  bool hasFailed() const { return shared_.latch(Rank(0)).tripped(); }
  /// For one who asks for a pipe of a rank that is long gone; empty: it does not ask for one.
  static std::vector<std::byte> answerForNobody(std::span<const std::byte> pipeEnd);

 private:
  using Key = std::array<int32_t, 4>;  // channel, port, from, to
  static Key keyOf(const transport::local::PipeKey& key) { return {key.channel.value, key.port, key.from.value, key.to.value}; }
  struct Half {
    transport::local::Pipe pipe;
    std::vector<transport::local::Offer> offers;  ///< of a receiver
    progress::SendJob* sender = nullptr;

    transport::local::PipeView view() {
      transport::local::PipeView view = pipe.view();
      view.offers = offers.empty() ? nullptr : offers.data();
      return view;
    }
  };
  progress::Peer peerOf(Rank rank) const;
  bool isTaken(const Key& key, const Half* half, bool toAll) const;
  bool isDelivered(bool toAll = true) const;
  uint64_t countTaken() const;
  std::string giveUpRest();
  void deliver();
  void tellCount(const Key& key, uint64_t messages) const;
  void tellCounts(Rank rank);
  void hearPipeCount(std::span<const std::byte> body);
  Result<transport::local::PipeView> makeReceiveHalf(const transport::local::PipeKey& key, uint32_t slots, uint64_t slotBytes);
  void lookAtBreak();
  Status failForLack(const Status& cause);
  std::optional<progress::JobGroup::Failure> breakOf();
  void takeLeave();
  /// Whether these are a rank of this process and one of another host.
  bool isBetween(int32_t here, int32_t there) const;
  void hearPipeEnd(std::span<const std::byte> body);
  void hearFailure(std::span<const std::byte> body);
  void hearStanding(transport::local::Hub& hub, std::span<const std::byte> body);
  void sayWhereAllStand(transport::local::Hub& hub);
  void sayLastStanding(Standing&& standing);

  const std::shared_ptr<Courier> courier_;
  const std::weak_ptr<transport::local::Hub> hub_;  // it owns this
  transport::local::Hub& shared_;                   // the same: used only by calls that the hub makes
  const uint64_t id_;
  const Circle circle_;
  ErrorLatch latch_;  // of the jobs
  std::atomic<int64_t> brokenSince_{0};  // steady clock; by whoever sees it first
  std::atomic<bool> isOver_{false};  // nothing moves any more; exchanged by whoever ends it
  std::atomic<bool> isFailureTold_{false};  // or was heard; orders nothing
  std::atomic<int32_t> ranksToDepart_;      // of this process: that have not begun to
  std::atomic<int32_t> ranksHere_;          // that have not departed
  std::mutex hearing_;               // while a message is handled
  bool isDeaf_ = false;              // under it
  mutable std::mutex mutex_;
  std::optional<Usage> usage_;  // nothing yet: the first device carries all
  std::map<Key, std::unique_ptr<Half>> halves_;
  std::map<Key, transport::net::Handle> handles_;  // of receivers whose senders have not asked yet
  std::set<int32_t> departedHere_;      // ranks of this process that send no more
  std::map<Key, uint64_t> counts_;  // of receiving halves whose senders have departed: how many messages there are in all
  std::map<Key, std::chrono::steady_clock::time_point> owedUntil_;  // senders that have not said it yet are believed to owe
  // On the bootstrap's thread: which wait of each distant rank is published, and when this process has last said where its ranks stand.
  std::map<int32_t, uint64_t> episodes_;
  std::chrono::steady_clock::time_point lastAnswer_;
  std::vector<std::atomic<uint64_t>> heard_;  // by rank: the latest signature that came from it, by the jobs
  progress::JobGroup jobs_;  // last: gone before what they work on
};

}  // namespace tutti::comm
