// The ranks of one communicator, planned by the real planner over one hub, for tests that move operations by hand.
// Owner: the test. One thread plans; the plans may then run on any.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "exec/host/operation.h"
#include "exec/host/signature.h"
#include "exec/host/work.h"
#include "plan/planner.h"
#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Only `algorithm`, for the collectives that have a choice.
inline tune::Restrictions only(std::string_view algorithm) {
  tune::Restrictions restrictions;
  auto filter = tune::Filter::parse("TUTTI_ALGO", algorithm, tune::tuttiAlgorithmNames());
  if (!filter) ADD_FAILURE() << filter.error().text();
  restrictions.tutti = std::move(*filter);
  return restrictions;
}

inline plan::Settings settingsOf(uint32_t slots, uint64_t sliceBytes, std::string_view algorithm = "") {
  plan::Settings settings;
  settings.slots = slots;
  settings.sliceBytes = sliceBytes;
  settings.messageBytes = sliceBytes;
  settings.restrictions = only(algorithm);
  return settings;
}

inline plan::Shape shapeOf(Collective collective, DataType type, uint64_t count, int32_t root = 0) {
  plan::Shape shape;
  shape.collective = collective;
  shape.type = type;
  shape.count = count;
  shape.root = Rank(root);
  return shape;
}

/// A message of `bytes` to or from `peer`.
inline plan::Shape messageShape(uint64_t bytes, int32_t peer, bool receives) {
  plan::Shape shape = shapeOf(Collective::SendRecv, DataType::I8, bytes, peer);
  shape.receives = receives;
  return shape;
}

class PlannedRanks {
 public:
  explicit PlannedRanks(int32_t ranks, const plan::Settings& settings = {})
      : hub_(*transport::local::Hub::make(ranks)),
        layout_(connect::Layout::natural(ranks)),
        epochs_(static_cast<size_t>(ranks), 1),
        sequences_(static_cast<size_t>(ranks)) {
    for (int32_t r = 0; r < ranks; ++r) {
      connections_.push_back(std::make_unique<connect::Connections>(*hub_, Rank(r)));
      planners_.push_back(std::make_unique<plan::Planner>(layout_, *connections_.back(), Rank(r), settings));
    }
  }

  transport::local::Hub& hub() { return *hub_; }
  /// What the works of one rank share.
  std::shared_ptr<Turn> makeTurn(int32_t rank) const {
    auto turn = std::make_shared<Turn>();
    turn->hub = hub_;
    turn->rank = Rank(rank);
    return turn;
  }
  int32_t ranks() const { return layout_.ranks(); }

  /// The rank's next call: planned, numbered and bound to buffers.
  PlannedCall call(int32_t rank, const plan::Shape& shape, const void* in, void* out) {
    const auto r = static_cast<size_t>(rank);
    PlannedCall call;
    auto plan = planners_[r]->makePlan(shape);
    if (!plan) {
      ADD_FAILURE() << plan.error().text();
      return call;
    }
    call.plan = std::move(*plan);
    call.in = in;
    call.out = out;
    const bool message = shape.collective == Collective::SendRecv;
    const uint64_t sequence = message ? 0 : sequences_[r]++;
    call.call = {shape.collective, shape.type, static_cast<uint8_t>(shape.op), shape.root.value, shape.count, sequence, shape.receives};
    call.signature = packSignature(call.call);
    call.event.sequence = sequence;
    if (call.plan->usesWindow) {
      call.windowEpoch = epochs_[r];
      epochs_[r] += static_cast<uint64_t>(call.plan->geometry.slices) * static_cast<uint64_t>(call.plan->rounds);
    }
    call.event.collective = shape.collective;
    call.event.count = shape.count;
    return call;
  }

 private:
  std::shared_ptr<transport::local::Hub> hub_;
  connect::Layout layout_;
  std::vector<std::unique_ptr<connect::Connections>> connections_;
  std::vector<std::unique_ptr<plan::Planner>> planners_;
  std::vector<uint64_t> epochs_;
  std::vector<uint64_t> sequences_;
};

/// `count` numbers that depend on the rank and the place.
inline std::vector<int32_t> numbers(int32_t rank, size_t count) {
  std::vector<int32_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = rank * 1000003 + static_cast<int32_t>(i) * 7 + 1;
  return values;
}

inline std::vector<int32_t> sumOfNumbers(int32_t ranks, size_t count) {
  std::vector<int32_t> sum(count);
  for (int32_t r = 0; r < ranks; ++r) {
    const auto values = numbers(r, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

}  // namespace tutti::exec::host
