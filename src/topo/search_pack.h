// As many channels as fit at one speed: builds them one by one, takes some away again when stuck, and starts over elsewhere.
//
// Internal to the search of topo/; lives for one speed; one thread; the same input gives the same channels.
// 1. `room` is what the links still hold, in 1/kUnit of a channel; it is never negative.
// 2. Every channel in `chosen` is charged to `room`.
#pragma once

#include <vector>

#include "topo/search_bound.h"
#include "topo/search_problem.h"

namespace tutti::topo {

class Packer {
 public:
  /// `steps` counts down with the work done; the packer stops when it is spent.
  Packer(const Problem& problem, const Mode& mode, const Cuts& cuts, int64_t speedMBps, int64_t& steps);

  /// Up to `target` channels.
  std::vector<Order> pack(int target);

 private:
  static constexpr size_t kEndsTried = 48;
  /// What a channel has at its ends, and must still reach.
  struct Ends {
    int first = 0;
    int second = -1;  ///< Of a balanced or split tree, that GPU must come second; −1: any.
    int last = -1;    ///< Of a ring with nets, that GPU must come last; −1: any.
    int netIn = -1;
    int netOut = -1;
    int64_t cost = 0;
  };
  struct WayOut {
    int64_t cost;
    int gpu;
    int net;
  };
  struct Choice {
    int64_t cost;
    int32_t number;
  };

  std::vector<Order> packSame(int target);
  bool findChannel(int remaining);
  bool findFrom(const Ends& ends, int remaining);
  bool walk(const Ends& ends, int remaining);
  bool finish(const Ends& ends, int remaining);
  bool reverseOfLast(int remaining);
  bool turnOfLast(const Ends& ends, int remaining);
  bool replay(const std::vector<int16_t>& gpus, const Ends& ends, int remaining);

  static bool isCostlier(const Ends& a, const Ends& b);
  void endsToTry();
  void addRingEnds(const Ends& start, std::vector<Ends>& found);
  void addTreeEnds(const Ends& start, std::vector<Ends>& found);
  void priceWaysOut(int parts);
  void keepCheapest(std::vector<Ends>& ends, size_t most);
  bool findAmong(std::vector<Ends>& tried, int remaining);
  bool chargeEnds(const Ends& ends, bool giveBack);
  bool deadEnd(const Ends& ends, int at) const;
  void candidates(const Ends& ends, int at, std::vector<Choice>& found);

  void spend(int looks) { steps_ -= 1 + looks / 8; }  ///< A step is about eight hops looked at.
  bool fits(const Hop& hop, int parts) const;
  int64_t cost(const Hop& hop, int parts) const;      ///< Of what is left, the share that the hop takes; −1 when it does not fit.
  int64_t noisy(int64_t value, int a, int b) const;
  bool take(const Hop& hop, int parts);
  void give(const Hop& hop, int parts);
  void giveBack(const Order& order);
  void ruin(uint32_t round);
  bool inPairs() const { return mode_.pattern == Pattern::Ring && mode_.crossNic == CrossNic::InPairs; }
  void refreshReach();

  const Problem& problem_;
  Mode mode_;
  const Cuts& cuts_;
  int64_t& steps_;
  std::vector<int64_t> room_;
  std::vector<Order> chosen_;
  std::vector<uint64_t> reachFrom_;  // GPU → the GPUs that it still reaches; all ones where there are more than 64
  uint64_t left_ = 0;                // GPUs that the channel under way has not passed, of the first 64
  std::vector<bool> passed_;
  std::vector<WayOut> waysOut_;
  std::vector<Ends> starts_;
  std::vector<Ends> ends_;  // of the channel under way
  std::vector<int16_t> path_;
  std::vector<std::vector<Choice>> choices_;  // by depth, to spare allocations
  int64_t channelSteps_ = 0;  // of the channel under way
  size_t tight_ = 0;          // the cut that said no last
  uint32_t seed_ = 0;         // 0: no noise
};

}  // namespace tutti::topo
