// What the hosts of a communicator are like, nets included: known to every process of it before its ranks lay out their rings.
//
// Owner: Sites are shared by the communicator and its children, constant, any thread. A SitesExchange belongs to what is founded
// (comm/founding.cc); one thread at a time, nothing blocks.
// 1. Processes exchange hashes, in one all-gather of 24 bytes each. Only where two of them differ is there a second one, in which the first
//    process of each hash gives its XML: each is sent once, and hosts that are alike send nothing whole. Rounds: O(log processes).
// 2. All processes come to the same, failures included: they decide by what all of them have gathered.
// 3. What other processes send is text of strangers: it is parsed with the limits of topo/xml.h, and has to have the hash that was said.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"
#include "core/status.h"
#include "topo/xml.h"

namespace tutti::comm {

/// This process's machine.
struct Site {
  std::string xml;
  uint64_t hash = 0;      ///< hashText of the XML; 0: it cannot be found out
  uint64_t settings = 0;  ///< of all that decides over layouts beside it
};
/// With the hash of it; an XML that is too long to be sent counts as not known.
Site siteOf(std::string xml, uint64_t settings);
inline constexpr size_t kMostSiteBytes = size_t{1} << 20;

struct Sites {
  std::vector<uint64_t> hashOf;               ///< by process
  std::map<uint64_t, topo::Document> machines;  ///< by hash; all that there are, unless `whyNot` says something
  std::string whyNot;                         ///< why layouts cannot follow them; empty: they can

  const topo::Document* machineOf(int32_t process) const;
};

class SitesExchange {
 public:
  /// Begins. `roster` and its mesh outlive it; every process of the roster makes one.
  SitesExchange(const bootstrap::Roster& roster, Site own);

  /// Nothing while it is under way. Error: a process that has gone.
  std::optional<Result<std::shared_ptr<const Sites>>> poll();
  /// Processes that it waits for.
  std::vector<int32_t> missing() const { return (xmls_ != nullptr ? xmls_ : hashes_)->missing(); }

 private:
  Result<std::shared_ptr<const Sites>> finish(std::span<const std::vector<std::byte>> xmls);
  bool differs() const;
  int32_t firstWith(uint64_t hash) const;
  std::string whyNot() const;

  const bootstrap::Roster& roster_;
  const Site own_;
  std::shared_ptr<bootstrap::Exchange> hashes_;
  std::shared_ptr<bootstrap::Exchange> xmls_;
  std::vector<uint64_t> hashOf_;      // once the first has ended
  std::vector<uint64_t> settingsOf_;  // likewise
  std::vector<uint64_t> bytesOf_;     // of their XMLs, likewise
  std::optional<Result<std::shared_ptr<const Sites>>> outcome_;
};

}  // namespace tutti::comm
