// Someone outside the library who may overrule the choice of an algorithm: what it is asked, and what its answer means.
//
// Owner: the communicator, which hands it to its planners; one thread at a time. All ranks must get the same answers, as NCCL demands of
// tuner plugins: pure functions of the call.
// 1. It is asked about broadcast, reduce, all-gather, reduce-scatter and all-reduce, once for every call that is planned anew.
// 2. Its table has microseconds by NCCL's algorithm × protocol. What has no row here (familyOf) keeps its own estimate beside it.
// 3. An answer that makes no sense, or an error, is one warning that names the tuner; the call is then chosen as if nobody had been asked.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/status.h"
#include "core/types.h"
#include "tune/link_constants.h"

namespace tutti::tune {

using CostTable = std::array<std::array<float, kNcclProtocols>, kNcclAlgorithms>;
/// An entry of what cannot be had; a tuner leaves it alone.
inline constexpr float kNotThere = -1;
inline constexpr int32_t kMostTunedChannels = 64;

class Tuner {
 public:
  virtual ~Tuner() = default;
  virtual const std::string& name() const = 0;
  /// May change entries of `table`; returns the number of blocks that it wants, 0 for no wish. `bytes`: of the larger buffer.
  virtual Result<int32_t> ask(Collective collective, uint64_t bytes, CostTable& table) = 0;
};

/// A row of the table.
struct Row {
  NcclAlgorithm algorithm = NcclAlgorithm::Ring;
  NcclProtocol protocol = NcclProtocol::Simple;
};

/// What a tuner said, checked. The planner's drafts have an estimatedUs; `rowOf` says which row a draft belongs to, if any.
struct Advice {
  bool isChanged = false;  ///< some entry is not as it was
  int32_t channels = 0;    ///< 0: no wish
  CostTable table{};
  std::string said;  ///< "Example: Ring LL128, 4 channels"; empty: nobody was asked, or the answer makes no sense

  /// What the tuner reckons with for a draft: its row's entry, or its own estimate. Only where isChanged.
  template <class Draft, class RowOf>
  double scoreUs(const Draft& draft, RowOf&& rowOf) const {
    const std::optional<Row> row = rowOf(draft);
    return row ? table[static_cast<size_t>(row->algorithm)][static_cast<size_t>(row->protocol)] : draft.estimatedUs;
  }
  /// The draft of the least score, of equals that of the least estimate, and then the first; null when there is none.
  template <class Draft, class RowOf>
  const Draft* pick(std::span<const Draft> drafts, RowOf&& rowOf) const {
    const Draft* best = nullptr;
    const auto key = [&](const Draft& d) { return std::pair(isChanged ? scoreUs(d, rowOf) : 0, d.estimatedUs); };
    for (const Draft& draft : drafts)
      if (best == nullptr || key(draft) < key(*best)) best = &draft;
    return best;
  }
};

/// A table in which nothing is there.
CostTable emptyTable();
/// Puts an estimate into its row, where it is the least.
void offer(CostTable& table, Row row, double us);

/// Asks about one call, and makes sure of the answer: entries of what is not there stay so, none is NaN or below 0, channels are 0 to
/// kMostTunedChannels.
class Adviser {
 public:
  Adviser() = default;
  explicit Adviser(std::shared_ptr<Tuner> tuner) : tuner_(std::move(tuner)) {}

  bool isAsked(Collective collective) const;
  Advice ask(Collective collective, uint64_t bytes, const CostTable& table);
  /// The same about drafts; no advice where nobody is asked.
  template <class Draft, class RowOf>
  Advice about(Collective collective, uint64_t bytes, std::span<const Draft> drafts, RowOf&& rowOf) {
    if (!isAsked(collective)) return {};
    CostTable table = emptyTable();
    for (const Draft& draft : drafts)
      if (const std::optional<Row> row = rowOf(draft)) offer(table, *row, draft.estimatedUs);
    return ask(collective, bytes, table);
  }
  /// After an error it is asked no more.
  bool hasFailed() const { return hasFailed_; }

 private:
  void warnOnce(const std::string& what);

  std::shared_ptr<Tuner> tuner_;
  bool hasWarned_ = false;
  bool hasFailed_ = false;
};

}  // namespace tutti::tune
