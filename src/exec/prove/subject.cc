#include "exec/prove/subject.h"

#include <vector>

#include "algo/list.h"

namespace tutti::exec::prove {

std::span<const Subject> subjects() {
  static const std::vector<Subject> all = [] {
    std::vector<Subject> list;
    algo::AllAlgorithms::forEach([&]<class A> { list.push_back(subjectOf<A>()); });
    return list;
  }();
  return all;
}

const Subject* findSubject(Collective collective, std::string_view algorithmName) {
  for (const Subject& s : subjects())
    if (s.traits.collective == collective && s.traits.name == algorithmName) return &s;
  return nullptr;
}

}  // namespace tutti::exec::prove
