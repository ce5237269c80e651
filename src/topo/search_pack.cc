#include "topo/search_pack.h"

#include <algorithm>
#include <bit>

namespace tutti::topo {

namespace {

constexpr int kMaskGpus = 64;
constexpr int64_t kCostScale = 1 << 16;
constexpr uint32_t kRoundsOfHope = 3;  // with less than half of the channels

uint32_t mix(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t h = a * 0x9e3779b1U ^ b * 0x85ebca77U ^ c * 0xc2b2ae3dU;
  h ^= h >> 15;
  h *= 0x2c1b3c6dU;
  h ^= h >> 13;
  return h;
}

}  // namespace

Packer::Packer(const Problem& problem, const Mode& mode, const Cuts& cuts, int64_t speedMBps, int64_t& steps)
    : problem_(problem),
      mode_(mode),
      cuts_(cuts),
      steps_(steps),
      room_(problem.capacity()),
      choices_(static_cast<size_t>(problem.gpus()) + 1) {
  for (int64_t& room : room_) room /= speedMBps;
  passed_.assign(static_cast<size_t>(problem.gpus()), false);
}

// `parts` are halves of a hop: 2 is a whole one.
bool Packer::fits(const Hop& hop, int parts) const {
  for (const Load& load : problem_.loads(hop)) {
    if (static_cast<int64_t>(load.weight) * parts / 2 > room_[static_cast<size_t>(load.place)]) return false;
  }
  return true;
}

int64_t Packer::cost(const Hop& hop, int parts) const {
  int64_t sum = 0;
  for (const Load& load : problem_.loads(hop)) {
    const int64_t wanted = static_cast<int64_t>(load.weight) * parts / 2;
    const int64_t room = room_[static_cast<size_t>(load.place)];
    if (wanted > room) return -1;
    sum += wanted * kCostScale / (room + 1);
  }
  return sum;
}

int64_t Packer::noisy(int64_t value, int a, int b) const {
  if (seed_ == 0) return value;
  return value + value * static_cast<int64_t>(mix(seed_, static_cast<uint32_t>(a), static_cast<uint32_t>(b)) & 0xff) / 256;
}

bool Packer::take(const Hop& hop, int parts) {
  if (!fits(hop, parts)) return false;
  for (const Load& load : problem_.loads(hop)) room_[static_cast<size_t>(load.place)] -= static_cast<int64_t>(load.weight) * parts / 2;
  return true;
}

void Packer::give(const Hop& hop, int parts) {
  for (const Load& load : problem_.loads(hop)) room_[static_cast<size_t>(load.place)] += static_cast<int64_t>(load.weight) * parts / 2;
}

// Takes or gives back what the nets of a channel cost; all or nothing.
bool Packer::chargeEnds(const Ends& ends, bool giveBack) {
  if (ends.netIn < 0) return true;
  struct Part {
    const Hop* hop;
    int parts;
  };
  Part parts[3] = {{&problem_.in(ends.netIn, ends.first), 2}, {nullptr, 2}, {nullptr, 1}};
  int count = 2;
  if (mode_.pattern == Pattern::Ring) {
    parts[1].hop = &problem_.out(ends.last, ends.netOut);
  } else if (mode_.pattern == Pattern::SplitTree) {
    parts[1].hop = &problem_.out(ends.second, ends.netOut);
  } else {
    parts[1].hop = &problem_.out(ends.first, ends.netOut);
  }
  if (mode_.pattern == Pattern::BalancedTree) {
    parts[1].parts = 1;
    parts[2].hop = &problem_.out(ends.second, ends.netOut);
    count = 3;
  }
  for (int i = 0; i < count; ++i) {
    if (giveBack) {
      give(*parts[i].hop, parts[i].parts);
    } else if (!take(*parts[i].hop, parts[i].parts)) {
      while (i-- > 0) give(*parts[i].hop, parts[i].parts);
      return false;
    }
  }
  return true;
}

void Packer::refreshReach() {
  const int gpus = problem_.gpus();
  spend(gpus * gpus / 4);
  reachFrom_.assign(static_cast<size_t>(gpus), ~uint64_t{0});
  left_ = ~uint64_t{0};
  if (gpus > kMaskGpus) return;
  left_ = gpus == kMaskGpus ? ~uint64_t{0} : (uint64_t{1} << gpus) - 1;
  for (int from = 0; from < gpus; ++from) {
    uint64_t reached = 0;
    for (int to = 0; to < gpus; ++to) {
      const Hop& hop = problem_.between(from, to);
      if (from != to && hop.type <= mode_.intra && fits(hop, 2)) reached |= uint64_t{1} << to;
    }
    reachFrom_[static_cast<size_t>(from)] = reached;
  }
}

// A GPU still to be passed that nothing leads to, or that leads nowhere on: the channel cannot be finished.
bool Packer::deadEnd(const Ends& ends, int at) const {
  const int gpus = problem_.gpus();
  if (gpus > kMaskGpus) return false;
  const bool closes = mode_.pattern == Pattern::Ring && ends.last < 0;
  uint64_t reached = reachFrom_[static_cast<size_t>(at)];
  int ending = 0;  // GPUs that could only come last
  for (uint64_t rest = left_; rest != 0; rest &= rest - 1) {
    const int gpu = std::countr_zero(rest);
    const uint64_t onward = reachFrom_[static_cast<size_t>(gpu)];
    reached |= onward;
    uint64_t goals = left_;
    if (closes) goals |= uint64_t{1} << ends.first;
    if ((onward & goals) == 0 && gpu != ends.last) ++ending;
  }
  if ((left_ & ~reached) != 0) return true;
  return ending > (closes || ends.last >= 0 ? 0 : 1);
}

void Packer::candidates(const Ends& ends, int at, std::vector<Choice>& found) {
  found.clear();
  const int gpus = problem_.gpus();
  const int placed = static_cast<int>(path_.size());
  const auto look = [&](int to) {
    if (to == ends.last && placed != gpus - 1) return;
    if (placed == 1 && ends.second >= 0 && to != ends.second) return;
    const Hop& hop = problem_.between(at, to);
    if (hop.type > mode_.intra) return;
    const int64_t price = cost(hop, 2);
    if (price < 0) return;
    const int onward = gpus > kMaskGpus ? 0 : std::popcount(reachFrom_[static_cast<size_t>(to)] & left_);
    found.push_back({noisy(price, at, to) * 64 + onward, to});
  };
  if (gpus <= kMaskGpus) {  // what was out of reach when the channel was begun still is
    for (uint64_t rest = reachFrom_[static_cast<size_t>(at)] & left_; rest != 0; rest &= rest - 1) look(std::countr_zero(rest));
  } else {
    for (int to = 0; to < gpus; ++to) {
      if (to != at && !passed_[static_cast<size_t>(to)]) look(to);
    }
  }
  // Of equal ones that which comes next after `at`. No stable_sort: it allocates.
  const auto turned = [&](int number) { return number > at ? number - gpus : number; };
  std::sort(found.begin(), found.end(),
            [&](const Choice& a, const Choice& b) { return a.cost != b.cost ? a.cost < b.cost : turned(a.number) < turned(b.number); });
}

bool Packer::finish(const Ends& ends, int remaining) {
  const bool closes = mode_.pattern == Pattern::Ring && ends.last < 0 && problem_.gpus() > 1;
  if (closes) {
    const Hop& hop = problem_.between(path_.back(), ends.first);
    if (hop.type > mode_.intra || !take(hop, 2)) return false;
  }
  spend(static_cast<int>(cuts_.all().size()));
  if (remaining > 0 && !cuts_.let(room_, remaining, tight_)) {  // what is left would not do
    if (closes) give(problem_.between(path_.back(), ends.first), 2);
    return false;
  }
  Order order;
  order.gpus = path_;
  order.netIn = static_cast<int16_t>(ends.netIn);
  order.netOut = static_cast<int16_t>(ends.netOut);
  chosen_.push_back(std::move(order));
  return true;
}

// On success all hops of the channel stay charged.
bool Packer::walk(const Ends& ends, int remaining) {
  spend(problem_.gpus());
  if (--channelSteps_ < 0) return false;
  const int at = path_.back();
  if (static_cast<int>(path_.size()) == problem_.gpus()) return finish(ends, remaining);
  if (deadEnd(ends, at)) return false;
  std::vector<Choice>& options = choices_[path_.size()];
  candidates(ends, at, options);
  for (const Choice& option : options) {
    const int to = option.number;
    const Hop& hop = problem_.between(at, to);
    if (!take(hop, 2)) continue;
    passed_[static_cast<size_t>(to)] = true;
    if (to < kMaskGpus) left_ &= ~(uint64_t{1} << to);
    path_.push_back(static_cast<int16_t>(to));
    if (walk(ends, remaining)) return true;
    path_.pop_back();
    passed_[static_cast<size_t>(to)] = false;
    if (to < kMaskGpus) left_ |= uint64_t{1} << to;
    give(hop, 2);
    if (channelSteps_ < 0) return false;
  }
  return false;
}

bool Packer::findFrom(const Ends& ends, int remaining) {
  if (!chargeEnds(ends, false)) return false;
  refreshReach();
  std::fill(passed_.begin(), passed_.end(), false);
  path_.assign(1, static_cast<int16_t>(ends.first));
  passed_[static_cast<size_t>(ends.first)] = true;
  if (ends.first < kMaskGpus) left_ &= ~(uint64_t{1} << ends.first);
  if (walk(ends, remaining)) return true;
  chargeEnds(ends, true);
  return false;
}

bool Packer::replay(const std::vector<int16_t>& gpus, const Ends& ends, int remaining) {
  if (!chargeEnds(ends, false)) return false;
  size_t done = 0;
  while (done + 1 < gpus.size()) {
    const Hop& hop = problem_.between(gpus[done], gpus[done + 1]);
    if (hop.type > mode_.intra || !take(hop, 2)) break;
    ++done;
  }
  path_ = gpus;
  if (done + 1 == gpus.size() && finish(ends, remaining)) return true;
  for (size_t i = 0; i < done; ++i) give(problem_.between(gpus[i], gpus[i + 1]), 2);
  chargeEnds(ends, true);
  return false;
}

// The second channel of a pair takes the nets of the first one the other way round; its GPUs too, where that fits.
bool Packer::reverseOfLast(int remaining) {
  const Order& even = chosen_.back();
  Ends ends{.first = even.gpus.back(), .last = even.gpus.front(), .netIn = even.netOut, .netOut = even.netIn};
  const std::vector<int16_t> backward(even.gpus.rbegin(), even.gpus.rend());
  const auto fits = [&](const Ends& some) {
    return problem_.in(some.netIn, some.first).type <= mode_.inter && problem_.out(some.last, some.netOut).type <= mode_.inter;
  };
  if (fits(ends) && replay(backward, ends, remaining)) return true;
  const int netIn = even.netOut;
  const int netOut = even.netIn;
  std::vector<Ends>& found = ends_;
  found.clear();
  for (int first = 0; first < problem_.gpus(); ++first) {
    const Hop& in = problem_.in(netIn, first);
    const int64_t enter = in.type > mode_.inter ? -1 : cost(in, 2);
    for (int last = 0; last < problem_.gpus() && enter >= 0; ++last) {
      const Hop& out = problem_.out(last, netOut);
      const int64_t leave = out.type > mode_.inter || (last == first && problem_.gpus() > 1) ? -1 : cost(out, 2);
      if (leave >= 0)
        found.push_back({.first = first, .last = last, .netIn = netIn, .netOut = netOut, .cost = noisy(enter + leave, first, last)});
    }
  }
  keepCheapest(found, kEndsTried);
  return findAmong(found, remaining);
}

// The order of the channel before, turned so that it begins where this one has to; where that fits.
bool Packer::turnOfLast(const Ends& ends, int remaining) {
  std::vector<int16_t> turned = chosen_.back().gpus;
  std::rotate(turned.begin(), std::find(turned.begin(), turned.end(), static_cast<int16_t>(ends.first)), turned.end());
  if (ends.last >= 0 && turned.back() != ends.last) return false;
  if (ends.second >= 0 && turned[1] != ends.second) return false;
  return replay(turned, ends, remaining);
}

bool Packer::findChannel(int remaining) {
  channelSteps_ = 24 * problem_.gpus() + 64;
  if (inPairs() && chosen_.size() % 2 == 1) return reverseOfLast(remaining);
  endsToTry();
  return findAmong(ends_, remaining);
}

// Cheapest first, where they have a price.
bool Packer::findAmong(std::vector<Ends>& tried, int remaining) {
  const int64_t share = std::max<int64_t>(channelSteps_ / 8, int64_t{3} * problem_.gpus());
  int64_t total = channelSteps_;
  const bool isPriced = problem_.inter();
  if (isPriced) std::make_heap(tried.begin(), tried.end(), isCostlier);
  for (size_t i = 0; i < tried.size(); ++i) {
    if (isPriced) std::pop_heap(tried.begin(), tried.end() - static_cast<std::ptrdiff_t>(i), isCostlier);
    const Ends& ends = isPriced ? tried[tried.size() - 1 - i] : tried[i];
    channelSteps_ = std::min(total, tried.size() > 1 ? share : total);
    const int64_t given = channelSteps_;
    spend(problem_.gpus());
    if (seed_ == 0 && !chosen_.empty() && turnOfLast(ends, remaining)) return true;
    if (findFrom(ends, remaining)) return true;
    total -= given - std::max<int64_t>(channelSteps_, 0);
    if (total <= 0) return false;
  }
  return false;
}

void Packer::giveBack(const Order& order) {
  Ends ends{.first = order.gpus.front(), .netIn = order.netIn, .netOut = order.netOut};
  if (mode_.pattern == Pattern::Ring) ends.last = order.gpus.back();
  else if (order.gpus.size() > 1) ends.second = order.gpus[1];
  chargeEnds(ends, true);
  for (size_t i = 0; i + 1 < order.gpus.size(); ++i) give(problem_.between(order.gpus[i], order.gpus[i + 1]), 2);
  const bool closes = mode_.pattern == Pattern::Ring && order.netIn < 0 && order.gpus.size() > 1;
  if (closes) give(problem_.between(order.gpus.back(), order.gpus.front()), 2);
}

// Takes away one to three channels (or pairs), picked by `round`.
void Packer::ruin(uint32_t round) {
  const size_t group = inPairs() ? 2 : 1;
  for (uint32_t i = 0; i <= round % 3 && !chosen_.empty(); ++i) {
    const size_t start = mix(round, i, 77) % chosen_.size() / group * group;
    const size_t end = std::min(start + group, chosen_.size());
    for (size_t c = start; c < end; ++c) giveBack(chosen_[c]);
    chosen_.erase(chosen_.begin() + static_cast<std::ptrdiff_t>(start), chosen_.begin() + static_cast<std::ptrdiff_t>(end));
  }
}

// One order that fits `target` times; the nets are used the same way each time.
std::vector<Order> Packer::packSame(int target) {
  const std::vector<int64_t> whole = room_;
  for (int64_t& room : room_) room /= target;
  const bool found = findChannel(0);
  room_ = whole;
  if (!found) return {};
  const Order one = chosen_.back();
  chosen_.clear();
  return std::vector<Order>(static_cast<size_t>(target), one);
}

std::vector<Order> Packer::pack(int target) {
  if (target > 1 && !inPairs()) {
    std::vector<Order> same = packSame(target);
    if (!same.empty()) return same;
  }
  std::vector<Order> best;
  uint32_t round = 0;
  while (steps_ > 0) {
    const int before = static_cast<int>(chosen_.size());
    if (findChannel(target - before - 1)) {
      if (static_cast<int>(chosen_.size()) == target) return std::move(chosen_);
      continue;
    }
    spend(problem_.gpus());
    if (before == 0 && round > 8) break;
    if (round >= kRoundsOfHope && 2 * std::max(best.size(), chosen_.size()) < static_cast<size_t>(target)) break;
    ++round;
    seed_ = round;
    if (chosen_.size() > best.size()) best = chosen_;
    ruin(round);
  }
  return chosen_.size() > best.size() ? std::move(chosen_) : std::move(best);
}

}  // namespace tutti::topo
