#include "exec/prove/cases.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "core/format.h"
#include "exec/prove/collective.h"

namespace tutti::exec::prove {
namespace {

constexpr int32_t kMostRanks = 64;
constexpr int32_t kMostSlots = 8;
constexpr int32_t kGridRanks = 8;  ///< to here every combination, above a sample of them

struct Variant {
  int32_t slots;
  int32_t slices;
  int32_t channels;
  bool inPlace;
  int32_t operations;
  uint64_t layoutSeed;
  int32_t localRanks = 0;
  int32_t track = 0;

  bool operator==(const Variant&) const = default;
};

std::vector<Variant> grid(int32_t least, Extent extent) {
  std::vector<Variant> all;
  for (int32_t slots = least; slots <= kMostSlots; ++slots) {
    if (extent == Extent::Quick && slots > least + 1 && slots != 4 && slots != kMostSlots) continue;
    for (const int32_t slices : {1, 2, 3, 7})
      for (const int32_t channels : {1, 2})
        for (const bool inPlace : {false, true}) all.push_back({slots, slices, channels, inPlace, 1, 0});
  }
  for (const int32_t operations : {2, 3})
    for (const int32_t slices : {1, 2, 3})
      for (const bool inPlace : {false, true}) all.push_back({least, slices, 1, inPlace, operations, 0});
  for (const uint64_t seed : {1u, 2u}) all.push_back({least, 3, 1, seed == 1, 2, seed});
  for (const uint64_t seed : {1u, 6u, 11u})
    for (int32_t track = 0; track < kTracks; ++track) all.push_back({least, 3, kTracks, seed == 1, 2, kChannelLayouts + seed, 0, track});
  return all;
}

/// Every number of slots once, the other sizes in turn.
std::vector<Variant> sample(int32_t least, Extent extent) {
  constexpr int32_t kSlices[] = {1, 7, 3, 2};
  std::vector<Variant> all{{least, 3, 1, true, 2, 1}, {least, 1, 1, false, 3, 2}, {least, 2, 1, false, 2, kChannelLayouts + 2},
                           {least, 2, 2, true, 1, kChannelLayouts + 7, 0, 1}};
  for (int32_t slots = least; slots <= kMostSlots; ++slots) {
    const int32_t i = slots - least;
    if (extent == Extent::Quick && i > 2 && slots != kMostSlots) continue;
    all.push_back({slots, kSlices[i % 4], 1 + i / 2 % 2, i % 2 == 1, 1, 0});
    if (extent == Extent::Full) all.push_back({slots, kSlices[(i + 1) % 4], 2 - i / 2 % 2, i % 2 == 0, 1, 0});
  }
  return all;
}

/// Ranks a node: all divisors of few ranks, some of many.
std::vector<int32_t> nodeSizes(const Subject& s, int32_t ranks) {
  if (!s.traits.usesNodes) return s.traits.runsOn(1, ranks) ? std::vector<int32_t>{0} : std::vector<int32_t>();
  std::vector<int32_t> all;
  for (int32_t d = 1; d <= ranks; ++d)
    if (ranks % d == 0 && s.traits.runsOn(ranks / d, d)) all.push_back(d);
  if (ranks <= kGridRanks || all.size() <= 3) return all;
  return {all.front(), all[all.size() / 2], all.back()};
}

/// Rank counts above kMostRanks: few steps a rank, so the slowest growing algorithms only.
std::vector<int32_t> largeCounts(const Subject& s, Extent extent) {
  const bool scales = s.traits.needs == algo::Needs::Pipe && s.lanes(1000) < 1000;
  if (!scales) return {};
  return extent == Extent::Full ? std::vector<int32_t>{100, 127, 1000} : std::vector<int32_t>{100, 127};
}

std::vector<int32_t> rankCounts(Extent extent) {
  if (extent == Extent::Quick) return {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17, 24, 31, 32, 33, 48, 64};
  std::vector<int32_t> all;
  for (int32_t n = 1; n <= kMostRanks; ++n) all.push_back(n);
  return all;
}

std::vector<int32_t> rootsOf(const Subject& s, int32_t ranks) {
  const Collective collective = s.traits.collective;
  if (!hasRoot(collective) && collective != Collective::SendRecv) return {0};
  if (ranks > kGridRanks) return {0, ranks / 2, ranks - 1};
  std::vector<int32_t> all;
  for (int32_t r = 0; r < ranks; ++r) all.push_back(r);
  return all;
}

void addCases(std::vector<Case>& cases, const Subject& s, const Subject* then, int32_t ranks, const std::vector<Variant>& variants) {
  const bool usesPipes = s.traits.needs == algo::Needs::Pipe;
  for (const int32_t root : rootsOf(s, ranks)) {
    // One network serves all cases of the same place and layout: keep these together.
    std::vector<Variant> sorted;
    for (Variant v : variants) {
      if (!usesPipes) v.slots = 1;
      if (!hasInPlace(s.traits.collective) || (then != nullptr && !hasInPlace(then->traits.collective))) v.inPlace = false;
      for (const int32_t size : nodeSizes(s, ranks)) {
        v.localRanks = size;
        if (std::find(sorted.begin(), sorted.end(), v) == sorted.end()) sorted.push_back(v);
      }
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const Variant& a, const Variant& b) {
      return std::tuple(a.inPlace, a.layoutSeed, a.localRanks, a.track) < std::tuple(b.inPlace, b.layoutSeed, b.localRanks, b.track);
    });
    for (const Variant& v : sorted) {
      // Banks of windows take turns from slice to slice and from call to call: several calls show their reuse.
      const int32_t operations = usesPipes ? v.operations : std::max(v.operations, then != nullptr ? 5 : 4);
      Case c{&s, then, ranks, root, v.slots, v.slices, v.channels, operations, 2, v.inPlace, v.layoutSeed, v.localRanks, v.track};
      cases.push_back(c);
      if (!s.traits.places && (then == nullptr || !then->traits.places)) continue;
      c.places = true;
      cases.push_back(c);
    }
  }
}

std::string list(std::vector<int32_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::string text;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end + 1 < values.size() && values[end + 1] == values[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += format("{}", values[i]);
    if (end > i) text += format("{}{}", end == i + 1 ? ", " : "–", values[end]);
    i = end + 1;
  }
  return text;
}

struct Row {
  const Subject* algorithm = nullptr;
  const Subject* then = nullptr;
  std::vector<int32_t> ranks, slots, slices, channels, operations;
  uint64_t cases = 0, steps = 0, messages = 0, shared = 0;
  bool inPlace = false;
  std::string failure;
};

std::vector<Row> rowsOf(std::span<const Proof> proofs) {
  std::vector<Row> rows;
  for (const Proof& proof : proofs) {
    const Case& c = proof.subject;
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.algorithm == c.algorithm && r.then == c.then; });
    if (row == rows.end()) {
      row = rows.insert(rows.end(), Row{});
      row->algorithm = c.algorithm;
      row->then = c.then;
    }
    row->ranks.push_back(c.ranks);
    row->slots.push_back(c.slots);
    row->slices.push_back(c.slices);
    row->channels.push_back(c.channels);
    row->operations.push_back(c.operations);
    row->cases += 1;
    row->steps += proof.steps;
    row->messages += proof.messages;
    row->shared += proof.sharedPlaces;
    row->inPlace = row->inPlace || c.inPlace;
    if (!proof.ok && row->failure.empty()) row->failure = proof.failure;
  }
  return rows;
}

}  // namespace

std::vector<Case> standardCases(const Subject& algorithm, Extent extent) {
  const int32_t least = std::max(1, algorithm.traits.minSlots);  // what its traits promise is enough
  std::vector<Case> cases;
  for (const int32_t ranks : rankCounts(extent))
    addCases(cases, algorithm, nullptr, ranks, ranks <= kGridRanks ? grid(least, extent) : sample(least, extent));
  for (const int32_t ranks : largeCounts(algorithm, extent)) {
    // In place: then the most is shared, and the clocks of 1000 lanes have work.
    if (ranks >= 1000)
      addCases(cases, algorithm, nullptr, ranks, {{least, 1, 1, true, 1, 0}});
    else
      addCases(cases, algorithm, nullptr, ranks, {{least, 1, 1, false, 1, 0}, {least, 2, 2, true, 1, 1}});
  }
  return cases;
}

std::vector<Case> standardCases(Extent extent) {
  std::vector<Case> cases;
  for (const Subject& s : subjects()) {
    std::vector<Case> own = standardCases(s, extent);
    cases.insert(cases.end(), own.begin(), own.end());
  }
  for (const Subject& first : subjects()) {
    for (const Subject& second : subjects()) {
      const bool share = first.traits.needs == algo::Needs::PeerMemory && second.traits.needs == algo::Needs::PeerMemory;
      if (&first == &second || !share) continue;
      for (const int32_t ranks : {2, 3, 4, 5, 8, 16})
        addCases(cases, first, &second, ranks, {{1, 1, 1, false, 5, 0}, {1, 2, 1, true, 5, 0}, {1, 3, 2, false, 5, 0}});
    }
  }
  return cases;
}

std::string markdownTable(std::span<const Proof> proofs) {
  std::string text =
      "| collective | algorithm | ranks | slots | slices | channels | calls in a row | in place | cases | steps | messages | shared places "
      "| "
      "result |\n|---|---|---|---|---|---|---|---|---:|---:|---:|---:|---|\n";
  for (const Row& row : rowsOf(proofs)) {
    const algo::Traits& traits = row.algorithm->traits;
    const std::string slots = traits.needs == algo::Needs::Pipe ? list(row.slots) : "none";
    const std::string then = row.then == nullptr ? "" : format(" then {} {}", name(row.then->traits.collective), row.then->traits.name);
    text += format("| {} | {}{} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name(traits.collective), traits.name, then,
                   list(row.ranks), slots, list(row.slices), list(row.channels), list(row.operations), row.inPlace ? "yes and no" : "no",
                   row.cases, row.steps, row.messages, row.shared, row.failure.empty() ? "proved" : "FAILED: " + row.failure);
  }
  return text;
}

}  // namespace tutti::exec::prove
