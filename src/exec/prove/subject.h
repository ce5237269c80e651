// An algorithm as something to prove: what it does (recorded) and what it promises (its order()).
// Plain values; the list is built at load time and any thread may read it.
#pragma once

#include <span>
#include <string_view>

#include "algo/traits.h"
#include "exec/prove/expression.h"
#include "exec/record/program.h"

namespace tutti::exec::prove {

struct Subject {
  algo::Traits traits;
  int32_t (*chunks)(int32_t ranks) = nullptr;
  int32_t (*lanes)(int32_t ranks) = nullptr;
  record::Program (*record)(const algo::LayoutView& view) = nullptr;
  /// The promised order of what ends in `chunk`; null where nothing is reduced.
  Expr (*order)(OrderBuilder& sum, int32_t chunk, const algo::LayoutView* ranks) = nullptr;
};

/// Any algorithm struct, also one that is not in algo/list.h.
template <class A>
Subject subjectOf() {
  Subject subject;
  subject.traits = A::kTraits;
  subject.chunks = [](int32_t ranks) { return A::chunks(ranks); };
  subject.lanes = [](int32_t ranks) { return A::lanes(ranks); };
  subject.record = record::recordProgram<A>;
  if constexpr (requires(OrderBuilder & sum, const algo::LayoutView* ranks) { A::order(sum, 0, ranks); })
    subject.order = [](OrderBuilder& sum, int32_t chunk, const algo::LayoutView* ranks) -> Expr { return A::order(sum, chunk, ranks); };
  return subject;
}

/// All algorithms, in the order of algo/list.h.
std::span<const Subject> subjects();

/// Null when there is none of that name for that collective.
const Subject* findSubject(Collective collective, std::string_view algorithmName);

}  // namespace tutti::exec::prove
