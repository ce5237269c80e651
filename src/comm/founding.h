// How ranks that found each other by a unique id come to a hub: in one process, or in several that share memory.
//
// Owner: the process (Foundations); each join has an Encounter of its own. Any thread.
// 1. All ranks of a process get the same hub. What they need to make it is kept until the last of them has it, or has given up.
// 2. A process that dies fails every communicator that it had a part in, with words that name its ranks and what they did last.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "bootstrap/service.h"
#include "comm/encounter.h"
#include "comm/sites.h"
#include "progress/engine.h"

namespace tutti::comm {

using bootstrap::UniqueIdBytes;

/// What a rank says of itself, as the bootstrap carries it.
bootstrap::Note noteOf(const Arrival& arrival);
/// What all ranks of a new communicator have said. RemoteError: one of them says what no rank of this version says, or what would keep it
/// out of the communicator or from its place there; the same in all processes. Pure.
Result<std::vector<Arrival>> arrivalsOf(const bootstrap::Roster& roster);

class Foundations {
 public:
  /// The network that a communicator wants: its name, or empty for any, and for whom it is.
  struct Wish {
    std::string network;
    transport::net::Use use;
  };
  /// `engine`: moves what goes to other hosts over such a network; asked once there are some.
  using Engines = std::function<Result<std::shared_ptr<progress::Engine>>(const Wish& wish)>;
  /// `site`: what this machine is like, with the devices of a network, and with its GPUs or without.
  using SiteOf = std::function<Result<Site>(const transport::net::Network& network, bool onGpu)>;
  /// `exportsFd`: the descriptor of this process's table of memory that others may map, or -1; asked once processes share memory.
  Foundations(std::function<int()> exportsFd, Engines engine, SiteOf site)
      : exportsFd_(std::move(exportsFd)), engine_(std::move(engine)), site_(std::move(site)) {}

  /// Announces a rank by `ids`. Errors come out of the encounter.
  std::shared_ptr<Encounter> join(bootstrap::Service& service, std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank,
                                  const Arrival& arrival, const Wish& wish = {});

 private:
  class Join;
  struct Foundation;
  Result<std::shared_ptr<Foundation>> of(const std::shared_ptr<const bootstrap::Roster>& roster, const Wish& wish);
  void leave(const bootstrap::Roster* roster);
  Status share(Foundation& foundation, const Wish& wish) const;

  struct Entry {
    std::shared_ptr<Foundation> foundation;
    size_t awaited = 0;  // ranks of this process that have not taken it
  };
  const std::function<int()> exportsFd_;
  const Engines engine_;
  const SiteOf site_;
  std::mutex mutex_;
  std::map<const bootstrap::Roster*, Entry> entries_;
};

}  // namespace tutti::comm
