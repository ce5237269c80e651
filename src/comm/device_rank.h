// What a communicator of GPUs has beside that of a host device: its memory on the GPU, its plans, and the launches of its kernels.
//
// Owner: the communicator. Used by the thread that uses the communicator, but limitWaits(), lastingWait(), look(), lookForCircle() and
// isIdle(), which any thread may call.
// 1. Works of all launches run in the order of their launches, whatever streams they were issued on. A graph into which calls were captured
//    takes part in that order as one launch, each time it is launched (unless NCCL_GRAPH_MIXING_SUPPORT=0).
// 2. What a call needs beyond its launch (memory, mappings, programs) is there before the call is launched: prepare it with planFor(),
//    offer() and settle(). A repeated call needs none of it.
// 3. Collectives of a launch count on all ranks alike; messages are launches of their own, after the collectives of a group.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/captures.h"
#include "comm/device_circles.h"
#include "comm/device_verdict.h"
#include "comm/device_windows.h"
#include "comm/devices.h"
#include "comm/message_checks.h"
#include "exec/host/signature.h"
#include "observe/flight_recorder.h"
#include "plan/cache.h"
#include "plan/device_planner.h"
#include "transport/device/endpoint.h"

struct ncclComm;

namespace tutti::comm {

class Communicator;

/// A plan whose program is on the GPU.
struct LoadedPlan {
  std::shared_ptr<const plan::DevicePlan> plan;
  exec::cuda::ProgramView program;
  bool isOpen = false;   ///< its pipes and windows are
  bool mayLend = false;  ///< captured calls of it ask for the peers' buffers

  transport::device::Needs needs() const { return {plan->pipes, plan->needsWindow ? plan->window() : -1}; }
};

/// A checked and planned call for a GPU.
struct DeviceCall {
  Communicator* comm = nullptr;
  ncclComm* handle = nullptr;  ///< of `comm`, in a group
  exec::host::Call call;
  std::shared_ptr<LoadedPlan> plan;  ///< null: no data, or a message of a rank to itself, paired when it is launched
  /// Those of its buffers, where the call goes the way that they open (comm/device_windows.h); null: another one.
  std::shared_ptr<const transport::device::UserWindow> window;
  std::shared_ptr<const transport::device::UserWindow> inWindow;
  bool lends = false;        ///< it is captured, and its buffers are about to be lent
  DeviceWindows::Loan loan;  ///< once that has begun
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t factor = 0;
  const void* factorSource = nullptr;  ///< device memory
  driver::cuda::Stream stream = nullptr;
  observe::FlightEvent event;
  double estimatedUs = 0;   ///< of the way that it goes
  bool isNumbered = false;  ///< a message that MessageChecks has seen
  bool isCompared = false;  ///< and is about to compare
  bool isNoted = false;     ///< in the book of what its rank has issued

  bool isToSelf(Rank own) const { return call.isMessage() && call.root == own.value; }
  /// As windows know it: neither of them is set, nor what the plan says.
  WindowCall windowCall() const {
    WindowCall made;
    made.call = call;
    made.in = in;
    made.out = out;
    return made;
  }
  /// Whether nothing has to be opened for it.
  bool isOpen() const { return plan == nullptr || window != nullptr || (plan->isOpen && !lends); }
};

class DeviceRank {
 public:
  static Result<std::unique_ptr<DeviceRank>> open(std::shared_ptr<transport::local::Hub> hub, Rank rank, const connect::Layout& layout,
                                                  const plan::DeviceSettings& settings, bool checks, Devices& devices, Device& device);
  ~DeviceRank();
  DeviceRank(const DeviceRank&) = delete;
  DeviceRank& operator=(const DeviceRank&) = delete;

  /// Ready when all ranks see each other's memory. Never blocks.
  Poll connect();
  const Status& status() const { return endpoint_->status(); }
  Rank missing() const { return endpoint_->missing(); }

  Result<std::shared_ptr<LoadedPlan>> planFor(const plan::Shape& shape);
  Result<plan::Summary> summarize(const plan::Shape& shape, std::vector<plan::Rejected>* rejected);
  /// Sends a planned call the way that windows of its buffers open, where that is the better one. One that is captured may open them.
  Status choose(DeviceCall& call) const;
  /// Windows of the user. Those of all ranks are settled by settleWindows(), which is Ready when all that have begun are.
  transport::device::UserWindows& windows() { return endpoint_->windows(); }
  Poll settleWindows();
  /// What graphs or kernels may still use stays mapped until later: the next window that begins or ends.
  void endWindow(transport::device::UserWindows::Ref window);
  const std::string& constants() const { return settings_.constants; }

  /// Says to the peers where this rank's part of what the calls need is. Messages that need anything are compared before anybody waits.
  Status offer(std::span<DeviceCall> calls);
  /// Ready when all that they need is there.
  Poll settle(std::span<DeviceCall> calls);
  /// Whether any of their streams is in a capture.
  Result<bool> isCaptured(std::span<const DeviceCall> calls) const;
  /// InvalidUsage when some of their streams are in a capture and others in another one or none.
  Status checkStreams(std::span<const DeviceCall> calls);
  /// Puts all calls, numbered, on their streams.
  Status launch(std::span<DeviceCall> calls);
  /// A wait of a kernel that lasts so long is told by lastingWait(). Before the first launch.
  void tellWaitsOf(uint64_t ns) const { endpoint_->tellWaitsOf(ns); }
  /// Such a wait, in words; each once.
  std::optional<std::string> lastingWait() const;
  /// How long kernels may wait, also those that run and those of graphs; 0: for ever.
  void limitWaits(uint64_t ns) const { endpoint_->limitWaits(ns); }

  /// Whether all kernels have ended.
  bool isIdle();
  /// Whether a kernel has given up, of whichever rank; if one has, this takes up to 50 ms (device_verdict.h).
  std::optional<GivenUp> look();
  /// Whether ranks wait for each other for ever. Any thread.
  std::optional<exec::host::Deadlock> lookForCircle();
  Device& device() const { return device_; }

 private:
  DeviceRank(Rank rank, const connect::Layout& layout, const plan::DeviceSettings& settings, Devices& devices, Device& device)
      : rank_(rank),
        ranks_(layout.ranks()),
        devices_(devices),
        device_(device),
        settings_(settings),
        planner_(layout, rank, settings),
        captures_(devices.driver()) {
    device_.ranks.fetch_add(1, std::memory_order_relaxed);
  }
  Result<exec::cuda::ProgramView> load(const exec::cuda::PackedProgram& program);
  void refreshViews();
  /// A call, and where it comes among the messages of its launch.
  struct Turn {
    DeviceCall* call;
    std::array<int32_t, 3> place;
  };
  /// Calls that are launched together: at most exec::cuda::kInlineWorks.
  struct Batch {
    /// Of the messages of a peer and direction.
    struct Blocks {
      int32_t peer;
      bool receives;
      int32_t most = 0;  // of a message
      int32_t first = 0;
    };
    std::vector<DeviceCall*> calls;
    std::vector<uint16_t> firstBlock;  // of each, when they are launched
    std::vector<Blocks> blocksOf;
    int32_t taken = 0;              // by messages: blocks that they may come to use
    std::optional<DataType> loops;  // of those calls that combine

    Blocks* find(const DeviceCall& call);
    void clear();
  };
  /// What a launch is put together in: kept, so that repeated groups allocate nothing.
  struct Scratch {
    struct Way {
      exec::cuda::KernelId kernel;
      int32_t distance;
      bool receives;
      bool operator==(const Way&) const = default;
    };
    std::vector<Turn> ordered;
    std::vector<std::pair<Way, int32_t>> counts;  // of messages
    std::vector<driver::cuda::Stream> streams;
    std::vector<DeviceCall*> together;  // messages
    std::vector<WindowCall> onWindows;
    Batch batch;
    exec::cuda::Launch launch;
  };
  void order(std::span<DeviceCall> calls, Scratch& scratch) const;
  int32_t messageBlocks(const DeviceCall& call) const;
  Status launchBatch(Batch& batch, driver::cuda::Stream stream);
  bool endsBefore(Batch& batch, const std::vector<Turn>& ordered, size_t next) const;
  void add(Batch& batch, DeviceCall& call) const;
  Status launchBatches(const std::vector<Turn>& ordered, driver::cuda::Stream stream);
  Status launchOnWindows(std::span<DeviceCall* const> calls, driver::cuda::Stream stream);
  Status launchWorks(std::span<DeviceCall* const> calls, std::span<const uint16_t> firstBlock, int32_t blocks, driver::cuda::Stream stream);
  /// What the kernels of the calls are told, and whoever has to tell of them.
  uint64_t nameLaunch(std::span<DeviceCall* const> calls);
  /// For whoever compares messages, or looks for circles: the calls of a group are issued now. Those that have been said are not said
  /// again.
  Status say(std::span<DeviceCall> calls, bool isCaptured);
  void dropEnded();
  void lend(std::span<DeviceCall> calls);
  Poll settleLoans(std::span<DeviceCall> calls);
  Poll settleLoan(DeviceCall& call);
  /// The graph that is captured keeps what its calls were lent.
  void keepLoans(std::span<DeviceCall> calls, const driver::cuda::CaptureInfo& capture);
  /// What graphs that are gone were lent, but while kernels run. `mayWait`: also what goes slowly.
  void dropLoans(bool mayWait);
  template <class LaunchThem>
  Status inTurn(std::span<DeviceCall> calls, std::span<const driver::cuda::Stream> streams, LaunchThem&& launchThem);
  /// Behind what other communicators have launched on the GPU, where there is an order of them.
  Status enterOrder(driver::cuda::Stream stream, const driver::cuda::CaptureInfo& capture);
  Status leaveOrder(driver::cuda::Stream stream, const driver::cuda::CaptureInfo& capture);
  Status enter(std::span<const driver::cuda::Stream> streams, const driver::cuda::CaptureInfo& capture);
  Status leave(std::span<const driver::cuda::Stream> streams, const driver::cuda::CaptureInfo& capture);

  const Rank rank_;
  const int32_t ranks_;
  Devices& devices_;
  Device& device_;
  const plan::DeviceSettings settings_;
  plan::DevicePlanner planner_;
  plan::PlanCache<LoadedPlan> plans_{256};
  std::unique_ptr<transport::device::Endpoint> endpoint_;
  std::unique_ptr<DeviceWindows> windows_;
  std::unique_ptr<MessageChecks> messages_;
  std::unique_ptr<DeviceCircles> circles_;
  std::vector<transport::device::UserWindows::Ref> endedWindows_;  // which may still be in use
  /// What the calls of a graph were lent.
  struct Loans {
    std::shared_ptr<transport::device::GraphMark> graph;
    std::vector<DeviceWindows::Loan> of;
  };
  std::vector<Loans> loans_;
  bool hasGoneLoans_ = false;  ///< of graphs that are gone, some are still here
  std::map<std::vector<uint64_t>, memory::Bank> programs_;  // by their words
  exec::cuda::CommView views_[transport::device::kNumProtocols];
  driver::cuda::OwnedEvent ended_;  // recorded behind the latest launch, or the latest graph
  driver::cuda::OwnedEvent joined_;
  Captures captures_;
  bool mixesGraphs_ = true;                             // graphs are ordered among launches and other graphs
  std::atomic<driver::cuda::Stream> latest_ = nullptr;  // where that was, or will be
  std::atomic<bool> isUnmarked_ = false;                // kernels are on latest_ of which ended_ does not know
  std::atomic<bool> hasLaunched_ = false;
  bool isCaptured_ = false;  // the launch that is made
  uint64_t messageLaunches_ = 0;
  uint64_t groups_ = 0;      // noted
  bool isOffering_ = false;  // the latest of them is, and may be held up
  Scratch scratch_;
};

}  // namespace tutti::comm
