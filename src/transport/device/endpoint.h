// One rank's GPU memory in a communicator: its pipes, windows, board and counters, and those of its peers as its GPU sees them.
//
// Owner: the communicator. Used by the thread that uses the communicator, but for advance(); nothing here blocks on another rank, but
// reaching memory of another process asks that process, which answers at once or not at all.
// 1. open() says where this rank's memory is; connect() looks whether all others have said so too, finds out who reaches whose memory
//    (survey.h), and opens what every two ranks share.
// 2. Pipes and windows are opened when a plan first needs them: offer() says where this rank's part is, settle() looks for the others'. All
//    ranks of a call offer before any waits for it to settle, so no order of ranks can hang.
// 3. All memory is zero, and all counters begin at zero, before a peer can see it.
// 4. Memory that a peer touches lies on the GPU of its owner if the two reach each other, else on the host, which all GPUs address: slots
// and
//    counters of a pipe by the pair, windows, board and arrivals if all peers reach the owner.
// 5. When it goes, no kernel of this rank runs any more. Its memory stays until no peer can touch it: Parking.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "exec/cuda/work.h"
#include "transport/device/message_loans.h"
#include "transport/device/stages.h"
#include "transport/device/surroundings.h"
#include "transport/device/survey.h"
#include "transport/device/user_windows.h"
#include "transport/local/hub.h"

namespace tutti::transport::device {

using exec::cuda::PipeNeed;

/// What a plan needs of the endpoint.
struct Needs {
  std::span<const PipeNeed> pipes;
  int32_t window = -1;  ///< which; -1: none
};

class Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> open(std::shared_ptr<local::Hub> hub, Rank rank, const EndpointConfig& config,
                                                const Surroundings& around);
  /// Says to the others that this rank will have no endpoint: they need not wait for it to leave. Nothing where there is no page.
  static void forgo(local::Hub& hub, Rank rank);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// Failed: status() says why.
  Poll connect();
  /// One step of that, for whoever waits for this rank; any thread. Pending: not all ranks have come as far.
  Poll advance();
  Status offer(const Needs& needs);
  /// The same for whoever has found out late what is needed. Failed: status().
  Poll offerLate(const Needs& needs);
  Poll settle(const Needs& needs);
  bool isOpen(const Needs& needs) const;
  const Status& status() const { return status_; }
  /// The first rank whose news connect() or settle() lack; -1: nobody's.
  Rank missing() const {
    const std::lock_guard lock(mutex_);
    return missing_;
  }

  /// Whether any two ranks exchange data through the host's memory; once connect() is Ready.
  bool usesHostMemory() const { return anyHost_; }
  /// Whether any two ranks are of one process; once connect() is Ready.
  bool sharesProcesses() const;

  /// What kernels of a protocol see; window and pipes are those that are open. All but the signature of `wait`.
  exec::cuda::CommView view(exec::cuda::Protocol protocol) const;
  /// What both stages of a call by copies see of this rank (exec/cuda/copies.h): all but the call itself.
  exec::cuda::CopyLaunch copyLaunch() const;
  /// Whether calls are compared, or places alone.
  bool comparesCalls() const { return config_.checks != 0; }
  /// What streams that carry out stages themselves have words in. From the first time on it is looked after.
  Result<StageRoom> stages();
  /// Windows of the user; once connect() is Ready.
  UserWindows& windows() { return *userWindows_; }
  Poll settleWindows();
  /// Buffers of captured messages; once connect() is Ready, where no more ranks than map each other's windows.
  MessageLoans& messageLoans() { return *messageLoans_; }
  Poll settleMessageLoans();
  const Page& page() const { return page_; }
  KernelPage& kernelPage() const { return page_.kernel(); }
  /// How long kernels of this rank may wait, also those that run; 0: for ever. Any thread.
  void limitWaits(uint64_t ns) const { std::atomic_ref(page_.waits(rank_.value).limitNs).store(ns, std::memory_order_relaxed); }
  /// A wait of this rank's kernels that lasts so long is on its desk afterwards. Before the first launch.
  void tellWaitsOf(uint64_t ns) const;
  /// Takes one from there. Any thread.
  std::optional<exec::cuda::Verdict> takeLastingWait() const;
  /// Kernels of this rank have not ended, or may be launched again: what they may touch is given back later, or never, as `kept` says.
  void keepMemory(Kept kept);

 private:
  /// This rank's part of the pipes of a port.
  struct Pipes {
    driver::cuda::DevicePtr slots = 0;     ///< 0: the peer has them
    driver::cuda::DevicePtr counters = 0;  ///< what this rank waits for
    bool isOpen = false;
  };
  struct Peer {
    std::vector<Reached> reached;
    bool isDirect = true;
    driver::cuda::DevicePtr shared = 0;  ///< its board and arrivals
  };
  Endpoint() = default;
  Status prepare();
  void announce(BankPlace& place, const memory::Bank& bank, uint64_t offset, uint64_t bytes) const;
  Poll fail(Status status);
  Result<driver::cuda::DevicePtr> reach(int32_t peer, const BankPlace& place);
  Poll step();
  Status check(int32_t peer) const;
  Status announceShared();
  Poll connectTo(int32_t peer);
  PipeCards& cardsOf(const PipeNeed& need) const;
  std::vector<uint64_t> channelsOf(const PipeNeed& need) const;
  uint64_t slotBytesOf(const PipeNeed& need) const;
  uint64_t counterBytesOf(const PipeNeed& need) const;
  Status keepPipes(memory::Place place, uint64_t bytes);
  Status offerPipes(memory::Place place, std::span<const PipeNeed> needs);
  Status offerWindow(int32_t which);
  Poll settlePipes(const PipeNeed& need, Pipes& pipes);
  Poll settleWindow(int32_t which);
  Result<Pipes> reachPipes(const PipeNeed& need, const PipeCards& cards);
  Status writeEnds(const PipeNeed& need, const Pipes& own, const Pipes& theirs);
  Result<memory::Bank> takeZeroed(memory::Place place, memory::Purpose purpose, uint64_t bytes);
  memory::Place placeOf(bool isDirect) const { return isDirect ? memory::Place::Device : memory::Place::Host; }
  Status synchronize();
  exec::cuda::WaitControl waitControl() const;

  std::shared_ptr<local::Hub> hub_;
  Rank rank_;
  int32_t ranks_ = 0;
  EndpointConfig config_;
  Surroundings around_;
  Page page_;
  ProcessKey key_;
  std::shared_ptr<HostPages::Registered> registered_;
  driver::cuda::DevicePtr kernelPage_ = 0;  // for this rank's GPU
  memory::Bank control_;
  memory::Bank shared_;              // on the host; empty where control_ holds it
  std::unique_ptr<Survey> survey_;   // until connected
  bool isDirect_ = true;             // to all peers
  bool anyHost_ = false;
  std::vector<Peer> peers_;
  int32_t checked_ = 0;    // cards that have been looked at
  int32_t reached_ = 0;    // peers whose shared part is there
  Poll connected_ = Poll::Pending;
  mutable std::mutex mutex_;  // protects all that connecting needs, and missing_, until it is connected
  std::map<PipeNeed, Pipes> pipes_;
  std::vector<memory::Bank> pipeBanks_;  // one of slots and one of counters for all pipes that are offered together
  std::array<memory::Bank, kNumWindows> windows_;
  std::array<std::vector<driver::cuda::DevicePtr>, kNumWindows> windowOf_;  // by rank; empty until settled
  std::array<std::vector<int32_t>, kNumProtocols> ends_;                    // used ones, by channel
  std::unique_ptr<UserWindows> userWindows_;
  std::unique_ptr<MessageLoans> messageLoans_;
  std::unique_ptr<StageWatch::Seat> seat_;  // of the first call whose stages streams carry out
  Rank missing_{-1};
  std::optional<Kept> kept_;
  Status status_;
};

}  // namespace tutti::transport::device
