#include "gpu/torture.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "gpu/buffers.h"
#include "gpu/device.h"

namespace tutti::bench::gpu {
namespace {

constexpr int kMostCallsOfStep = 6;
constexpr int kStreams = 3;
constexpr int kMostLaunchesOfGraph = 3;
constexpr int kStepsOfSplit = 64;  // then communicators are made anew

/// The same on all ranks; no distribution of the standard library, whose numbers are nobody's promise.
class Chance {
 public:
  Chance(uint64_t seed, uint64_t step) : engine_(seed * 0x9e3779b97f4a7c15u + step) { engine_.discard(8); }

  uint64_t below(uint64_t end) { return engine_() % end; }
  bool oneIn(uint64_t n) { return below(n) == 0; }
  /// From 1 to `most`, every power of two alike.
  uint64_t size(uint64_t most) {
    const auto exponents = static_cast<uint64_t>(std::log2(static_cast<double>(most))) + 1;
    const uint64_t power = uint64_t{1} << below(exponents);
    return std::min(most, power + (oneIn(3) ? 0 : below(power)));
  }

 private:
  std::mt19937_64 engine_;
};

struct Member {
  ncclComm_t comm = nullptr;
  int rank = 0;
  int ranks = 1;
  std::vector<ncclWindow_t> windows = {};  ///< of all buffers, where they are to lie in some
};

struct Planned {
  CallKind kind;
  size_t member = 0;
  int stream = 0;
  uint64_t seed = 0;
};

class Torture {
 public:
  Torture(World& world, Device& device, const BenchOptions& options)
      : world_(world), device_(device), options_(options), library_(options.a.name, options.a.path, options.a.variables) {
    streams_ = {device.stream()};
    while (streams_.size() < kStreams) streams_.push_back(device.makeStream());
    // One element a rank is the least that every operation and type has.
    const uint64_t bytes = std::max(options.maxBytes, sizeof(uint64_t) * static_cast<uint64_t>(world.ranks()));
    bytes_ = options.buffers == Buffers::Plain ? bytes : (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
    for (int call = 0; call < kMostCallsOfStep; ++call) {
      for (std::vector<std::byte*>* side : {&sends_, &receives_}) side->push_back(allocate(device, library_, options.buffers, bytes_));
    }
  }

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t step = 0;
    uint64_t calls = 0;
    for (;; ++step) {
      double isOver = options_.steps != 0
                          ? step >= options_.steps
                          : std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > options_.seconds;
      world_.share(&isOver, sizeof(isOver));
      if (isOver != 0) break;
      if (step % kStepsOfSplit == 0) {
        disconnect();
        connect();
      }
      const uint64_t wrong = runStep(step);
      calls += planned_.size();
      const double all = world_.sum(static_cast<double>(wrong));
      if (all != 0) {
        if (world_.isLead()) std::printf("torture: seed %llu, step %llu: %.0f wrong elements\n", number(options_.seed), number(step), all);
        return kExitWrong;
      }
    }
    disconnect();
    if (world_.isLead())
      std::printf("torture: seed %llu: %llu steps, %llu calls, every element right\n", number(options_.seed), number(step), number(calls));
    return 0;
  }

 private:
  static unsigned long long number(uint64_t value) { return value; }

  void connect() {
    world_.step("connect and split");
    const int rank = world_.rank(), ranks = world_.ranks();
    const ncclComm_t comm = library_.connect(world_, 0);
    members_ = {{comm, rank, ranks}};
    members_.push_back({library_.split(comm, 0, -rank), ranks - 1 - rank, ranks});                     // the other way round
    members_.push_back({library_.split(comm, rank % 2, rank), rank / 2, (ranks + 1 - rank % 2) / 2});  // even and odd ranks
    if (options_.buffers != Buffers::Windows) return;
    for (Member& member : members_)
      for (const std::vector<std::byte*>* side : {&sends_, &receives_})
        for (std::byte* memory : *side) member.windows.push_back(library_.openWindow(member.comm, memory, bytes_));
  }
  void disconnect() {
    world_.step("destroy");
    for (auto member = members_.rbegin(); member != members_.rend(); ++member) {
      for (ncclWindow_t window : member->windows) library_.closeWindow(member->comm, window);
      library_.destroy(member->comm);
    }
    members_.clear();
  }

  void plan(Chance& chance, uint64_t step) {
    planned_.clear();
    const size_t calls = 1 + chance.below(kMostCallsOfStep);
    const size_t shared = chance.below(members_.size());
    for (size_t call = 0; call < calls; ++call) {
      Planned planned;
      planned.member = options_.isMixed ? chance.below(members_.size()) : shared;
      // The smallest communicator of that kind: all ranks draw the same, also where even and odd ranks are not equally many.
      const int ranks = planned.member == 2 ? world_.ranks() / 2 : world_.ranks();
      const Operation& operation = *options_.operations[chance.below(options_.operations.size())];
      planned.kind.operation = &operation;
      planned.kind.type = options_.types[chance.below(options_.types.size())];
      const RedOp redOp = options_.redOps[chance.below(options_.redOps.size())];
      if (operation.isReduction) planned.kind.redOp = redOp;
      planned.kind.root = static_cast<int>(chance.below(static_cast<uint64_t>(std::max(ranks, 1))));
      const uint64_t most = options_.maxBytes / sizeOf(planned.kind.type) / static_cast<uint64_t>(world_.ranks());
      planned.kind.count = chance.size(std::max<uint64_t>(most, 1));
      planned.kind.isInPlace = chance.oneIn(4) && operation.hasInPlace;
      planned.stream = static_cast<int>(chance.below(kStreams));
      planned.seed = (options_.seed << 32) + step * kMostCallsOfStep + call;
      planned_.push_back(planned);
    }
  }

  Place place(size_t call) const {
    return placeIn(planned_[call].kind, sends_[call], receives_[call], members_[planned_[call].member].rank);
  }

  void issue(size_t call, cudaStream_t stream) {
    const Planned& planned = planned_[call];
    const Member& member = members_[planned.member];
    const Place at = place(call);
    library_.call(planned.kind, at.send, at.receive, member.rank, member.ranks, member.comm, stream);
  }
  /// As one group, or one by one; all on `stream`, or each on its own.
  void issueAll(bool isGroup, cudaStream_t stream) {
    if (isGroup) library_.beginGroup();
    for (size_t call = 0; call < planned_.size(); ++call) issue(call, stream);
    if (isGroup) library_.endGroup();
  }

  void holdBack(Chance& chance) {
    const bool isSelf = static_cast<int>(chance.below(static_cast<uint64_t>(world_.ranks()))) == world_.rank();
    const double us = options_.slowUs * static_cast<double>(chance.below(1000)) / 1000;
    const bool isDevice = chance.oneIn(2);
    const size_t stream = chance.below(kStreams);
    if (chance.oneIn(3) || !isSelf) return;
    if (isDevice) return device_.delay(streams_[stream], us);
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
  }

  uint64_t runStep(uint64_t step) {
    Chance chance(options_.seed, step);
    plan(chance, step);
    const bool isGroup = chance.oneIn(3);
    const bool isGraph = chance.oneIn(3) && device_.hasGraphs();
    const int launches = 1 + static_cast<int>(chance.below(kMostLaunchesOfGraph));
    if (isGraph && launches > 1)  // the second launch would find the results of the first as its input
      for (Planned& planned : planned_) planned.kind.isInPlace = false;
    world_.step(format("seed {}, {} calls{}{}, the first {}", options_.seed, planned_.size(), isGroup ? " in a group" : "",
                       isGraph ? " in a graph" : "", describe(planned_[0].kind, members_[planned_[0].member].ranks)));
    for (size_t call = 0; call < planned_.size(); ++call) {
      const Planned& planned = planned_[call];
      const Member& member = members_[planned.member];
      device_.setCodes(makeCodes(planned.kind.type, planned.kind.redOp, member.ranks));
      const Place at = place(call);
      device_.spoil(at.receive, planned.kind.receiveBytes(member.ranks));  // first: in place, the input lies there
      device_.fill(at.send, planned.kind.operation->sendCount(planned.kind.count, member.ranks), planned.seed, member.rank);
    }
    holdBack(chance);
    if (isGraph) {
      const std::unique_ptr<Graph> graph = device_.capture([&] { issueAll(isGroup, device_.stream()); });
      for (int launch = 0; launch < launches; ++launch) graph->launch();
      device_.wait();
    } else if (isGroup) {
      issueAll(true, streams_[planned_[0].stream]);
    } else {
      for (size_t call = 0; call < planned_.size(); ++call) issue(call, streams_[planned_[call].stream]);
    }
    device_.wait();
    for (const Member& member : members_) library_.checkAsync(member.comm);
    return countWrong(step);
  }

  uint64_t countWrong(uint64_t step) {
    uint64_t wrong = 0;
    for (size_t call = 0; call < planned_.size(); ++call) {
      const Planned& planned = planned_[call];
      const Member& member = members_[planned.member];
      const Operation& operation = *planned.kind.operation;
      if (!operation.receives(member.rank, planned.kind.root)) continue;
      device_.setCodes(makeCodes(planned.kind.type, planned.kind.redOp, member.ranks));
      const Expectation expectation = expectationOf(operation, planned.kind.count, member.rank, member.ranks, planned.kind.root);
      const uint64_t count = operation.receiveCount(planned.kind.count, member.ranks);
      const Difference difference = device_.compare(place(call).receive, count, planned.seed, expectation);
      wrong += difference.wrong;
      if (difference.wrong == 0) continue;
      std::fprintf(stderr,
                   "wrong: seed %llu, step %llu, call %zu, %s, root %d, communicator %zu, rank %d of %d: %llu of %llu elements, the "
                   "first is %llu\n",
                   number(options_.seed), number(step), call, describe(planned.kind, member.ranks).c_str(), planned.kind.root,
                   planned.member, member.rank, member.ranks, number(difference.wrong), number(count), number(difference.first));
    }
    return wrong;
  }

  World& world_;
  Device& device_;
  const BenchOptions& options_;
  Library library_;
  std::vector<Member> members_;
  std::vector<cudaStream_t> streams_;
  uint64_t bytes_ = 0;             // of each buffer
  std::vector<std::byte*> sends_;  // one of each for a call of a step
  std::vector<std::byte*> receives_;
  std::vector<Planned> planned_;
};

}  // namespace

int runTorture(World& world, const BenchOptions& options) {
  const std::unique_ptr<Device> device = options.isHost ? makeHostDevice() : makeCudaDevice(world.rank());
  return Torture(world, *device, options).run();
}

}  // namespace tutti::bench::gpu
