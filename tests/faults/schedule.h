// Random schedules: what ranks, spread over threads, do with communicators that come and go. A pure function of the seed.
//
// Owner: the test. Plain values.
// 1. All threads go through the same events in the same order and do their ranks' part: a legal program, so nothing may hang or fail.
// 2. Where work may be cut off (abort, revoke, shrink with its flag), the ranks concerned complete what is pending first, and the
//    one who cuts waits for them; after that, what fails is known.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "conformance/harness.h"

namespace tutti::faults {

using conformance::Random;

enum class Kind : uint8_t { Create, Operate, Together, Split, Shrink, ShrinkAbort, Revoke, Abort, EndBroken, Destroy, Abandon };

/// A communicator, whose members are ranks of the whole schedule in the order of their ranks in it.
struct Circle {
  std::vector<int> members;
  bool blocking = true;
  bool shares = false;
  int family = 0;  // those that share a fate
  enum class State : uint8_t { Healthy, Revoked, Broken, Ended } state = State::Healthy;

  int placeOf(int rank) const {
    const auto at = std::find(members.begin(), members.end(), rank);
    return at == members.end() ? -1 : static_cast<int>(at - members.begin());
  }
};

struct Event {
  Kind kind = Kind::Create;
  int circle = -1;
  int second = -1;              // Together: another circle
  int third = -1;               // Together: a circle that is made
  int actor = -1;               // Abort, Revoke: the rank that begins
  bool aborts = false;          // Abort, EndBroken: how the others end; destroyed otherwise
  bool inVain = false;          // EndBroken: calls on it must fail
  uint64_t seed = 0;
  std::vector<int> colors;      // Split: of each member
  std::vector<int> keys;        // Split
  std::vector<int> children;    // Split, Shrink: the circle of each member, or -1
  std::vector<int> excluded;    // Shrink: places
  std::vector<int> concerned;   // ranks whose work must be complete first
};

struct Plan {
  int ranks = 0;
  int threads = 0;
  bool watched = false;
  std::vector<Circle> circles;
  std::vector<Event> events;
};

class Planner {
 public:
  explicit Planner(uint64_t seed) : random_(seed) {
    plan_.ranks = 2 + pick(5);
    plan_.threads = 1 + pick(std::min(plan_.ranks, 4));
    plan_.watched = chance(30);
    create();
    const int steps = 8 + pick(25);
    for (int i = 0; i < steps; ++i) step();
    for (size_t c = 0; c < plan_.circles.size(); ++c)
      if (plan_.circles[c].state != Circle::State::Ended) end(static_cast<int>(c));
  }
  Plan plan() && { return std::move(plan_); }

 private:
  int pick(int bound) { return static_cast<int>(random_.below(static_cast<uint64_t>(bound))); }
  bool chance(int percent) { return pick(100) < percent; }
  Circle& at(int circle) { return plan_.circles[static_cast<size_t>(circle)]; }
  Event& add(Kind kind, int circle) {
    Event& event = plan_.events.emplace_back();
    event.kind = kind;
    event.circle = circle;
    event.seed = random_.next();
    return event;
  }
  int choose(std::initializer_list<Circle::State> states) {
    std::vector<int> found;
    for (size_t c = 0; c < plan_.circles.size(); ++c)
      if (std::find(states.begin(), states.end(), plan_.circles[c].state) != states.end()) found.push_back(static_cast<int>(c));
    return found.empty() ? -1 : found[static_cast<size_t>(pick(static_cast<int>(found.size())))];
  }

  int newCircle(bool blocking) {
    Circle circle;
    circle.members.resize(static_cast<size_t>(plan_.ranks));
    std::iota(circle.members.begin(), circle.members.end(), 0);
    for (size_t i = circle.members.size(); i > 1; --i)
      std::swap(circle.members[i - 1], circle.members[static_cast<size_t>(pick(static_cast<int>(i)))]);
    circle.members.resize(static_cast<size_t>(chance(60) ? plan_.ranks : 1 + pick(plan_.ranks)));
    circle.blocking = blocking;
    circle.shares = chance(30);
    circle.family = static_cast<int>(plan_.circles.size());
    plan_.circles.push_back(circle);
    return circle.family;
  }
  void create() {
    const int circle = newCircle(chance(65));
    add(chance(90) || plan_.circles.size() == 1 ? Kind::Create : Kind::Abandon, circle);
    if (plan_.events.back().kind == Kind::Abandon) at(circle).state = Circle::State::Ended;
  }

  void step() {
    const int dice = pick(100);
    if (dice < 12) return create();
    const int healthy = choose({Circle::State::Healthy});
    if (healthy < 0) return create();
    if (dice < 60) {
      (void)add(Kind::Operate, healthy);
    } else if (dice < 68) {
      together(healthy);
    } else if (dice < 80) {
      split(choose({Circle::State::Healthy, Circle::State::Revoked}));
    } else if (dice < 86) {
      shrink(choose({Circle::State::Healthy, Circle::State::Revoked}));
    } else if (dice < 89) {
      revoke(healthy);
    } else if (dice < 93) {
      abort(healthy);
    } else if (const int any = choose({Circle::State::Healthy, Circle::State::Revoked, Circle::State::Broken}); any >= 0) {
      end(any);
    }
  }

  void together(int first) {
    const int second = choose({Circle::State::Healthy});
    const int third = chance(50) ? newCircle(at(first).blocking) : -1;
    Event& event = add(Kind::Together, first);
    event.second = second != first && at(second).blocking == at(first).blocking ? second : -1;
    event.third = third;
  }

  /// The child of one colour; members are in the parent's order.
  int child(int parent, std::vector<int> members, bool shares) {
    Circle circle = at(parent);
    circle.members = std::move(members);
    circle.state = Circle::State::Healthy;
    if (!shares || at(parent).state != Circle::State::Healthy) circle.family = static_cast<int>(plan_.circles.size());
    plan_.circles.push_back(circle);
    return static_cast<int>(plan_.circles.size()) - 1;
  }
  void split(int parent) {
    Event& event = add(Kind::Split, parent);
    const std::vector<int> members = at(parent).members;
    const int colors = 1 + pick(3);
    for (size_t i = 0; i < members.size(); ++i) {
      event.colors.push_back(chance(15) ? NCCL_SPLIT_NOCOLOR : pick(colors) * 7);
      event.keys.push_back(pick(5) - 2);
    }
    event.children.assign(members.size(), -1);
    for (int color = 0; color < colors; ++color) {
      std::vector<size_t> places;
      for (size_t i = 0; i < members.size(); ++i)
        if (event.colors[i] == color * 7) places.push_back(i);
      if (places.empty()) continue;
      std::stable_sort(places.begin(), places.end(), [&event](size_t a, size_t b) { return event.keys[a] < event.keys[b]; });
      std::vector<int> inOrder;
      for (const size_t place : places) inOrder.push_back(members[place]);
      const int made = child(parent, inOrder, at(parent).shares);
      for (const size_t place : places) event.children[place] = made;
    }
  }
  void shrink(int parent) {
    const std::vector<int> members = at(parent).members;
    if (members.size() < 2) return;
    const bool aborts = at(parent).state == Circle::State::Healthy && chance(40);
    Event& event = add(aborts ? Kind::ShrinkAbort : Kind::Shrink, parent);
    std::vector<int> remain;
    const size_t leaves = random_.below(members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      if (i == leaves || (chance(25) && remain.size() + 1 < members.size() && i + 1 < members.size())) {
        event.excluded.push_back(static_cast<int>(i));
      } else {
        remain.push_back(members[i]);
      }
    }
    if (remain.empty()) {  // one at least
      remain.push_back(members[static_cast<size_t>(event.excluded.back())]);
      event.excluded.pop_back();
    }
    const int made = child(parent, remain, false);
    for (size_t i = 0; i < members.size(); ++i)
      event.children.push_back(std::find(remain.begin(), remain.end(), members[i]) != remain.end() ? made : -1);
    if (!aborts) return;
    event.concerned = members;
    at(parent).state = Circle::State::Broken;
  }
  void revoke(int circle) {
    Event& event = add(Kind::Revoke, circle);
    event.actor = at(circle).members[static_cast<size_t>(pick(static_cast<int>(at(circle).members.size())))];
    event.concerned = at(circle).members;
    at(circle).state = Circle::State::Revoked;
  }
  /// An abort by `rank` also breaks what shares its fate.
  void breakFamily(Event& event, int rank) {
    for (Circle& other : plan_.circles) {
      if (other.family != at(event.circle).family || other.placeOf(rank) < 0) continue;
      // Of one that has ended in the plan, others may still be about to end.
      if (other.state == Circle::State::Healthy) other.state = Circle::State::Broken;
      for (const int member : other.members)
        if (std::find(event.concerned.begin(), event.concerned.end(), member) == event.concerned.end()) event.concerned.push_back(member);
    }
  }
  void abort(int circle) {
    Event& event = add(Kind::Abort, circle);
    event.actor = at(circle).members[static_cast<size_t>(pick(static_cast<int>(at(circle).members.size())))];
    breakFamily(event, event.actor);
    endOthers(event);
  }
  void end(int circle) {
    const bool isHealthy = at(circle).state == Circle::State::Healthy;
    Event& event = add(isHealthy ? Kind::Destroy : Kind::EndBroken, circle);
    event.inVain = at(circle).state == Circle::State::Broken;
    if (!isHealthy) endOthers(event);
    at(circle).state = Circle::State::Ended;
  }
  void endOthers(Event& event) {
    event.aborts = !at(event.circle).blocking || chance(50);
    const std::vector<int> members = at(event.circle).members;
    for (const int member : members)
      if (event.aborts) breakFamily(event, member);
    at(event.circle).state = Circle::State::Ended;
  }

  Random random_;
  Plan plan_;
};

}  // namespace tutti::faults
