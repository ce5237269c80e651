#include "topo/search_field.h"

#include <algorithm>

namespace tutti::topo {

Field::Field(const System& system, const Paths& paths, bool trees, bool collnet)
    : system_(system), paths_(paths), problem_(system, paths, trees, collnet) {}

Cuts& Field::cuts(const Mode& mode) {
  const auto found = std::find_if(cuts_.begin(), cuts_.end(), [&](const auto& one) { return Cuts::areAlike(one.mode, mode); });
  if (found != cuts_.end()) return *found->value;
  return *cuts_.emplace_back(Made<Cuts>{mode, std::make_unique<Cuts>(problem_, mode)}).value;
}

Exact& Field::exact(const Mode& mode) {
  const auto found = std::find_if(exact_.begin(), exact_.end(), [&](const auto& one) { return one.mode == mode; });
  if (found != exact_.end()) return *found->value;
  return *exact_.emplace_back(Made<Exact>{mode, std::make_unique<Exact>(problem_, mode, cuts(mode))}).value;
}

void Field::addGroups(Cuts& cuts) {
  if (std::none_of(cuts_.begin(), cuts_.end(), [&](const auto& other) { return cuts.addGroupsOf(*other.value); })) cuts.addGroups();
}

}  // namespace tutti::topo
