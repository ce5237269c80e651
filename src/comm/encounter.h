// One rank's way to meet those that it is to make a communicator with, whoever they are: what a set-up asks.
//
// Owner: the set-up. One thread at a time; nothing blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/local/hub.h"

namespace tutti::comm {

/// The colour of a rank that comes to a meeting without becoming a member of anything.
inline constexpr int32_t kNoColor = -1;

/// What a rank brings: ranks of one colour make a communicator, in the order of their keys, then of their ranks.
struct Arrival {
  int32_t color = 0;
  int32_t key = 0;
  int32_t minCtas = 1;
  int32_t maxCtas = 64;
  int32_t cores = 1;            ///< that the rank's thread may use: part of what an algorithm is chosen by
  int32_t multiprocessors = 0;  ///< of the rank's GPU; 0: it computes with a host device
  int32_t keepsLines = 0;       ///< 1: stores of 128 bytes between its GPU and those that it reaches arrive whole and in order
  int32_t streams = 0;          ///< 1: its GPU runs the kernel of the bulk copy engine
  int32_t copies = 0;           ///< 1: it would have processes copy out of each other's memory by system call (wantsCopies())
  int32_t gpu = -1;             ///< the dev of its GPU in the machine's topology; -1: a host device, or a GPU that is not there
  int32_t numa = -1;            ///< where its thread may run (machine/place.h)
  int32_t cache = -1;
  int32_t caches = 0;           ///< last-level caches that its thread may be below
  uint64_t machine = 0;         ///< of the machine's topology, and, with a GPU, of the settings for it; 0: not known
  uint64_t cacheBytes = 0;      ///< of one of those caches; 0: not known
  uint64_t pastCacheBytes = 0;  ///< from which its user wants results stored past the caches (readPastCacheBytes()); 0: automatic
  uint64_t coreSet = 0;         ///< which cores those are (availableCoreSet()); 0: not known
  uint32_t constants = 0;       ///< a digest of those that were measured on its machine; 0: the built-in ones
  int32_t hasFailed = 0;        ///< 1: it comes to say why it will not take part; at the hub, once all are there
};
/// Whether a rank may say so of itself: what comes from another process is not believed before.
bool isPossible(const Arrival& arrival);

/// What a rank gets besides its hub: its place in the new communicator and what its ranks agreed on: enough channels for everybody, not
/// more than anybody allows, and the cores that they have together.
struct Place {
  int32_t group = -1;  ///< of the colours that there are, in their order; -1: none
  Rank rank;
  int32_t ranks = 0;
  int32_t minCtas = 1;
  int32_t maxCtas = 64;
  int32_t cores = 1;
  bool sharesCores = false;      ///< more ranks have the set of cores that this one has than there are in it
  int32_t multiprocessors = 0;   ///< of the smallest GPU; 0: host devices
  bool isMixed = false;          ///< GPUs and host devices
  bool keepsLines = false;       ///< of all
  bool streams = false;          ///< of all
  bool copies = false;           ///< of all
  bool hasFailed = false;        ///< one of them has
  int32_t caches = 0;            ///< last-level caches of a machine that they are below
  uint64_t cacheBytes = 0;       ///< of the largest
  uint64_t pastCacheBytes = 0;   ///< the most that any of them said
  uint32_t constants = 0;        ///< of all; 0: the built-in ones
  bool constantsDiffer = false;  ///< then all take the built-in ones
};

/// The place of each rank, and the members of each group in the order of their new ranks.
struct Grouping {
  std::vector<Place> places;
  std::vector<std::vector<int32_t>> members;
};
Grouping formGroups(std::span<const Arrival> arrivals);
/// The arrivals of a group's members, by their new ranks.
std::shared_ptr<const std::vector<Arrival>> membersOf(std::span<const Arrival> arrivals, const std::vector<int32_t>& members);

struct Sites;

/// Without a hub for a rank of no colour.
struct Outcome {
  std::shared_ptr<transport::local::Hub> hub;
  Place place;
  std::shared_ptr<const std::vector<Arrival>> members;  ///< of its communicator, by their new ranks; null: nobody has said
  std::shared_ptr<const Sites> sites = nullptr;         ///< what its hosts are like (comm/sites.h); null: there is one host

  std::span<const Arrival> membersOrNone() const { return members == nullptr ? std::span<const Arrival>() : std::span(*members); }
};

class Encounter {
 public:
  virtual ~Encounter() = default;
  /// Nothing while ranks are missing; afterwards what this rank gets, or the first error.
  virtual std::optional<Result<Outcome>> poll() = 0;
  /// This rank will not take part: everybody else gets `cause`; if all are there already, whether this rank has seen that or not, their
  /// calls will.
  virtual void end(const Status& cause) = 0;
  /// Why there will be no outcome, where that is known before poll() says it; otherwise Ok.
  virtual Status failure() const { return {}; }
  /// "ranks 1, 4 of 8": who has not come yet, and in brackets whom those may wait for, where that is seen; `names` are the ranks of the
  /// places, if they are others.
  virtual std::string describeMissing(std::span<const int32_t> names) const = 0;
};

}  // namespace tutti::comm
