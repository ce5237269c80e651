#include "exec/record/catalog.h"

#include <vector>

#include "algo/list.h"

namespace tutti::exec::record {
namespace {

std::vector<Algorithm> buildCatalog() {
  std::vector<Algorithm> catalog;
  algo::AllAlgorithms::forEach([&]<class A> {
    catalog.push_back({A::kTraits, [](int32_t ranks) { return A::chunks(ranks); }, [](int32_t ranks) { return A::lanes(ranks); },
                       recordProgram<A>});
  });
  return catalog;
}

}  // namespace

std::span<const Algorithm> algorithms() {
  // Never destroyed: threads may still make calls while the process exits.
  static const std::vector<Algorithm>& catalog = *new std::vector<Algorithm>(buildCatalog());
  return catalog;
}

const Algorithm* findAlgorithm(Collective collective, std::string_view algorithmName) {
  for (const Algorithm& a : algorithms())
    if (a.traits.collective == collective && a.traits.name == algorithmName) return &a;
  return nullptr;
}

}  // namespace tutti::exec::record
