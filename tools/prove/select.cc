#include "prove/select.h"

#include <algorithm>

#include "core/format.h"

namespace tutti::tool {
namespace {

using exec::prove::Case;
using exec::prove::Extent;
using exec::prove::Subject;

/// Small letters and digits only: AllReduce, all_reduce and all-reduce are the same.
std::string fold(std::string_view text) {
  std::string folded;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') folded += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) folded += c;
  }
  return folded;
}

std::string fullName(const Subject& subject) { return format("{}:{}", name(subject.traits.collective), subject.traits.name); }

bool isWanted(const std::vector<int>& wanted, int32_t value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

bool matches(const Case& c, const ProveOptions& options) {
  const bool isWantedAlgorithm = isNamed(*c.algorithm, options.algorithm) || (c.then && isNamed(*c.then, options.algorithm));
  return isWantedAlgorithm && isWanted(options.ranks, c.ranks) && isWanted(options.slots, c.slots);
}

std::vector<Case> filter(Extent extent, const ProveOptions& options) {
  std::vector<Case> all = exec::prove::standardCases(extent);
  std::erase_if(all, [&](const Case& c) { return !matches(c, options); });
  return all;
}

/// Those of `wanted` that no case has; `valueOf` reads the number from a case.
template <class ValueOf>
std::vector<int> missing(const std::vector<int>& wanted, const std::vector<Case>& cases, ValueOf valueOf) {
  std::vector<int> left;
  for (const int value : wanted) {
    if (std::none_of(cases.begin(), cases.end(), [&](const Case& c) { return valueOf(c) == value; })) left.push_back(value);
  }
  return left;
}

}  // namespace

bool isNamed(const Subject& subject, std::string_view wanted) {
  if (wanted.empty()) return true;
  const std::string folded = fold(wanted);
  return folded == fold(subject.traits.name) || folded == fold(fullName(subject)) || folded == fold(name(subject.traits.collective));
}

Result<std::vector<Case>> selectCases(const ProveOptions& options) {
  const auto subjects = exec::prove::subjects();
  if (std::none_of(subjects.begin(), subjects.end(), [&](const Subject& s) { return isNamed(s, options.algorithm); })) {
    return fail(Code::InvalidArgument, "'{}' is not an algorithm; there are\n{}", options.algorithm, listAlgorithms());
  }
  const auto ranksOf = [](const Case& c) { return c.ranks; };
  const auto slotsOf = [](const Case& c) { return c.slots; };
  std::vector<Case> cases = filter(options.isFull ? Extent::Full : Extent::Quick, options);
  if (options.isFull || (!options.ranks.empty() && !missing(options.ranks, cases, ranksOf).empty()) ||
      (!options.slots.empty() && !missing(options.slots, cases, slotsOf).empty())) {
    cases = filter(Extent::Full, options);
  }
  for (const int ranks : missing(options.ranks, cases, ranksOf)) {
    return fail(Code::InvalidArgument, "no standard case of these algorithms has {} ranks{}", ranks,
                options.slots.empty() ? "" : " and these slots");
  }
  for (const int slots : missing(options.slots, cases, slotsOf)) {
    return fail(Code::InvalidArgument, "no standard case of these algorithms has {} slots", slots);
  }
  return cases;
}

std::string listAlgorithms() {
  std::string text;
  for (const Subject& subject : exec::prove::subjects()) {
    const bool usesPipes = subject.traits.needs == algo::Needs::Pipe;
    text += format("  {:<28} {}\n", fullName(subject), usesPipes ? "over pipes" : "over memory that the ranks map from each other");
  }
  return text;
}

}  // namespace tutti::tool
