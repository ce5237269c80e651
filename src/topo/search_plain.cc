// Cuts of the empty machine: what is alike is reckoned once, however many links and cuts a symmetric machine has.
#include <algorithm>
#include <tuple>

#include "topo/search_bound.h"

namespace tutti::topo {

namespace {

// Sorts, and adds up the counts of those that are alike.
template <class Counted, class Key>
void addUp(std::vector<Counted>& all, Key key) {
  std::sort(all.begin(), all.end(), [&](const Counted& a, const Counted& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    if (key(all[i]) == key(all[kept])) all[kept].count += all[i].count;
    else if (++kept != i) all[kept] = std::move(all[i]);
  }
  if (!all.empty()) all.resize(kept + 1);
}

}  // namespace

int64_t PlainCut::most(int64_t speedMBps, int64_t limit) const {
  const int64_t times = halves ? 2 : 1;
  const auto hopsOf = [&](const Part& part, int64_t enough) {
    int64_t hops = 0;
    for (const Links& some : part.links) {
      hops += times * (some.capacity / speedMBps) / some.weight * some.count;
      if (hops >= enough) break;  // more of them say nothing
    }
    return hops;
  };
  if (!oneOfEach) return std::min(limit, hopsOf(parts[0], times * perChannel * limit) / (times * perChannel));
  std::vector<int64_t> own;
  for (const Part& part : parts) own.push_back(hopsOf(part, times * limit));
  for (int64_t channels = limit; channels > 0; --channels) {
    int64_t sum = 0;
    for (size_t i = 0; i < parts.size(); ++i) sum += std::min(own[i], times * channels) * parts[i].count;
    if (sum >= channels * perChannel * times) return channels;
  }
  return 0;
}

int Cuts::mostAt(int64_t speedMBps, int limit) const {
  int64_t least = limit;
  for (const PlainCut& cut : plain_) least = std::min(least, cut.most(speedMBps, least));
  return static_cast<int>(least);
}

PlainCut Cuts::plainOf(const Cut& cut) const {
  PlainCut plain{.parts = {}, .perChannel = cut.perChannel, .halves = cut.halves, .oneOfEach = !cut.ends.empty()};
  const auto add = [&](size_t first, size_t end) {
    PlainCut::Part& part = plain.parts.emplace_back();
    part.count = 1;
    for (size_t i = first; i < end; ++i) {
      const Load& link = cut.links[i];
      part.links.push_back({problem_.capacity()[static_cast<size_t>(link.place)], link.weight, 1});
    }
    addUp(part.links, [](const PlainCut::Links& some) { return std::tuple(some.capacity, some.weight); });
  };
  size_t first = 0;
  for (const int32_t end : cut.ends) {
    add(first, static_cast<size_t>(end));
    first = static_cast<size_t>(end);
  }
  if (cut.ends.empty()) add(0, cut.links.size());
  addUp(plain.parts, [](const PlainCut::Part& part) { return std::tie(part.links); });
  return plain;
}

void Cuts::refreshPlain() {
  plain_.clear();
  for (const Cut& cut : cuts_) plain_.push_back(plainOf(cut));
  std::sort(plain_.begin(), plain_.end());
  plain_.erase(std::unique(plain_.begin(), plain_.end()), plain_.end());
}

}  // namespace tutti::topo
