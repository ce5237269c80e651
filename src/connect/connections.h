// A rank's ends of its pipes and windows, opened when a plan first needs them.
//
// Owner: the communicator. Called by the thread that plans; the ends are then used by the thread that runs the plan.
// 1. An end, once opened, keeps its address until the Connections are destroyed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "transport/local/hub.h"

namespace tutti::connect {

/// How large the pipes of one port are.
struct PipeSize {
  uint32_t slots = 8;
  uint64_t slotBytes = 0;
};

class Connections {
 public:
  Connections(transport::local::Hub& hub, Rank rank) : hub_(hub), rank_(rank) {}
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  Result<transport::local::SendEnd*> sendEnd(ChannelId channel, uint8_t port, Rank to, const PipeSize& size);
  Result<transport::local::RecvEnd*> recvEnd(ChannelId channel, uint8_t port, Rank from, const PipeSize& size);
  /// A pipe between two others that carries what this rank gets from the sender as well (kInLead), opened as they open it; the view keeps
  /// its address.
  Result<const transport::local::PipeView*> lead(ChannelId channel, uint8_t port, Rank from, Rank to, const PipeSize& size);
  /// The window of `rank`; the view keeps its address.
  Result<const transport::local::WindowView*> window(Rank rank, uint64_t cellBytes);
  /// The process of a rank that lives in another one of this host; null for the own one.
  transport::local::Neighbour* neighbour(Rank rank) { return hub_.neighbour(rank); }
  /// How to store what `reader` reads from slots and cells.
  transport::local::StoreChoice* stores(Rank reader) { return &stores_[reader.value]; }
  /// How to store what is combined and written to the outputs of others.
  transport::local::StoreChoice* results() { return &results_; }

 private:
  transport::local::Hub& hub_;
  Rank rank_;
  std::map<transport::local::PipeKey, std::unique_ptr<transport::local::SendEnd>> sends_;
  std::map<transport::local::PipeKey, std::unique_ptr<transport::local::RecvEnd>> receives_;
  std::map<transport::local::PipeKey, transport::local::PipeView> leads_;
  std::map<int32_t, transport::local::WindowView> windows_;
  std::map<int32_t, transport::local::StoreChoice> stores_;
  transport::local::StoreChoice results_{transport::local::StoreChoice::kWorthOfResults};
};

}  // namespace tutti::connect
