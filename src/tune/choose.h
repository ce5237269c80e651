// Which algorithms a call may get. Pure functions of the call and the filters: the same on every rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "exec/record/catalog.h"
#include "tune/filter.h"
#include "tune/link_constants.h"

namespace tutti::tune {

/// What the user allows. TUTTI_ALGO wins where it speaks of a collective.
struct Restrictions {
  Filter nccl;   ///< NCCL_ALGO
  Filter tutti;  ///< TUTTI_ALGO
  bool forbidsPat = false;  ///< NCCL_PAT_ENABLE=0, but where TUTTI_ALGO speaks of the collective
};

/// Whether NCCL_ALGO and tuners speak of it.
bool isGoverned(Collective collective);

/// The names that NCCL_ALGO may hold, and those of this library's algorithms, for TUTTI_ALGO.
std::vector<std::string_view> ncclAlgorithmNames();
std::vector<std::string_view> tuttiAlgorithmNames();
/// The names that NCCL_PROTO may hold.
std::vector<std::string_view> ncclProtocolNames();

/// The algorithms that a collective may run with, in the order of algo/list.h. `deterministic`: of those that reduce only the ones in rank
/// order, all of one kind, so that the bits of a result depend on inputs, type and rank count alone; without memory that all ranks see, of
/// those that need none. InvalidUsage when nothing is left; the text names what there is.
Result<std::vector<const exec::record::Algorithm*>> candidates(Collective collective, const Restrictions& restrictions, bool deterministic,
                                                                  bool sharesMemory = true);

/// Why an algorithm is not among the candidates of its collective.
std::string whyNot(const exec::record::Algorithm& algorithm, const Restrictions& restrictions);

/// NCCL's name for what an algorithm does; none for what NCCL does not have.
std::optional<NcclAlgorithm> familyOf(const exec::record::Algorithm& algorithm);

}  // namespace tutti::tune
