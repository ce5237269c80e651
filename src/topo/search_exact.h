// The most channels that fit at one speed, for few GPUs: all channels there are, and every useful multiset of them.
//
// Internal to the search of topo/; lives for one search; one thread.
// 1. That there are no such channels is a proof only when the steps have lasted (`complete`).
#pragma once

#include <map>
#include <vector>

#include "topo/search_bound.h"
#include "topo/search_problem.h"
#include "topo/search_speed.h"

namespace tutti::topo {

class Exact {
 public:
  Exact(const Problem& problem, const Mode& mode, const Cuts& cuts) : problem_(problem), mode_(mode), cuts_(cuts) {}

  /// Whether listing all channels of the mode is affordable.
  bool isSmall() const;

  /// The goal's channels at the goal's speed; empty where they were not found. `complete`: all was looked at, so that there are none.
  std::vector<Order> pack(const Goal& goal, int64_t& steps, bool& complete);

 private:
  struct Kind {  // channels that load everything alike; in pairs two, of which one uses the other's nets the other way round
    std::vector<Load> loads;  // by place, each once
    int64_t total = 0;
    int32_t order = 0;     // in orders_
    int32_t partner = -1;  // of a pair, the other one
  };

  void listAll();
  void listPairs(const std::vector<Kind>& singles);
  void listEnds(const std::vector<int16_t>& gpus);
  void list(const Order& order);
  void descend(size_t index, int chosen);
  void note();
  bool inPairs() const { return mode_.pattern == Pattern::Ring && mode_.crossNic == CrossNic::InPairs; }

  const Problem& problem_;
  Mode mode_;
  const Cuts& cuts_;
  bool listed_ = false;
  bool tooMany_ = false;  // pairs to look at
  std::vector<Order> orders_;
  std::map<std::vector<int32_t>, Kind> byLoads_;
  std::vector<Kind> kinds_;
  std::vector<Kind> pairs_;
  // Of the goal under way:
  int target_ = 0;
  int perKind_ = 1;  // channels
  int bestCount_ = 0;
  size_t tight_ = 0;  // the cut that said no last
  int64_t steps_ = 0;
  std::vector<int64_t> room_;
  std::vector<const Kind*> fitting_;
  std::vector<int> count_;
  std::vector<Order> best_;
};

}  // namespace tutti::topo
