// Which algorithm a call gets. Pure functions of the call, the rank count and the filters: the same on every rank.
#pragma once

#include "exec/record/catalog.h"
#include "tune/filter.h"

namespace tutti::tune {

/// What the user allows. TUTTI_ALGO wins where it speaks of a collective.
struct Restrictions {
  Filter nccl;   ///< NCCL_ALGO
  Filter tutti;  ///< TUTTI_ALGO
};

/// The names that NCCL_ALGO may hold, and those of this library's algorithms, for TUTTI_ALGO.
std::vector<std::string_view> ncclAlgorithmNames();
std::vector<std::string_view> tuttiAlgorithmNames();

/// The algorithm for a collective that moves `bytes` per rank (the larger buffer). InvalidUsage when the user's restrictions leave
/// none that tutti has for it; the text names them.
Result<const exec::record::Algorithm*> choose(Collective collective, uint64_t bytes, int32_t ranks, const Restrictions& restrictions);

}  // namespace tutti::tune
