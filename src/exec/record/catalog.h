// The algorithms as run-time descriptors: found by collective and name, recorded on demand.
// Immutable tables built at load time; any thread may read them.
#pragma once

#include <span>
#include <string_view>

#include "algo/traits.h"
#include "exec/record/program.h"

namespace tutti::exec::record {

struct Algorithm {
  algo::Traits traits;
  int32_t (*chunks)(int32_t ranks);
  int32_t (*lanes)(int32_t ranks);
  Program (*record)(const algo::LayoutView& view);
};

/// All algorithms, in the order of algo/list.h.
std::span<const Algorithm> algorithms();

/// Null when there is none of that name for that collective.
const Algorithm* findAlgorithm(Collective collective, std::string_view algorithmName);

}  // namespace tutti::exec::record
