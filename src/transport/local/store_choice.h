// Whether a writer stores a value through its cache or past it, by what each has lately taken.
//
// Owner: the Connections of a rank, one for each peer and one for results; used by the thread that runs the rank's plans.
// Where reader and writer share a cache, a value is best stored through it: the reader finds it there. Where they do not, as on two
// chiplets or sockets, every line that is written again has to come back from the reader's side first. Writer and reader together take
// twice as long the wrong way, near each other and far (EPYC, 8 to 512 KiB). Which of the two it is shows in the writer's own time alone:
// it stores past the cache 0.2 to 0.9 times as fast as through it near a reader, and 1.3 to 4 times as fast far from it (values of less
// than 16 KiB, which always lie in the same place: up to 3.5, and from 5 on). Virtual cores move, so it is found out on the way:
// 1. Values of a size class (powers of two) are compared with each other. Past the cache the faster of two values counts, as a writer that
//    lost its core for a moment has learned nothing. Through it the second fastest of a lap does: until a place is written again, and
//    another value. A place that was written past the cache, or whose lines somebody else has pushed out, is in none, and slow to write
//    whoever reads it. Where no trial is under way it is two laps, and many values: what pushes lines out may do so in the middle of one.
// 2. The way that is not in use is tried again from time to time: soon after a change, as memory is slow when it is used first, and less
//    and less often when nothing changes; and when a lap took longer than the other way did. A trial of the cache ends with the lap, or as
//    soon as two values were fast enough. Nothing changes but at the end of a trial.
// 3. Trials are few of all values, however seldom there are any: a class rests for kRestShare times as many as its trial takes.
// 4. Nothing that is computed depends on it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace tutti::transport::local {

class StoreChoice {
 public:
  /// How many times as fast must be what goes past the cache, or its reader loses more than that: of values that always lie in the same
  /// place, whose lines the reader still has in a cache of its own, and of those that move on (placeInRoom, pipe.h).
  using Worth = std::array<float, 2>;
  static constexpr Worth kWorthOfValues{5.F, 1.2F};
  /// Of results, whose time is also that of combining them: seen 0.7 to 1.2 near the others, 2.5 to 4 far from them. More is asked for than
  /// of values, as their places are the caller's own, and may be in no cache whoever is near.
  static constexpr Worth kWorthOfResults{1.6F, 1.6F};
  static constexpr uint64_t kLeastBytes = 8192;    ///< shorter values have their lines fetched ahead of time
  static constexpr uint64_t kMovingBytes = 16384;  ///< from which on values move on, and Worth[1] holds
  static constexpr int64_t kTrySoonNs = 1'000'000;
  static constexpr int64_t kTryAgainNs = 64'000'000;
  static constexpr int64_t kRestShare = 15;

  /// A clock for it.
  static int64_t nowNs() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

  explicit StoreChoice(const Worth& worth = kWorthOfValues) : worth_(worth) {}

  /// Whether the next value, of kLeastBytes or more, is to go past the cache. `nowNs`: a clock that never goes back.
  bool isPast(uint64_t bytes, int64_t nowNs) {
    Class& of = classOf(bytes);
    if (!of.isTrying && of.rests <= 0 && (of.isDoubtful || nowNs >= of.tryAtNs)) of.beginTrial();
    return of.prefersPast != of.isTrying;
  }
  /// The same of a value whose storing is not measured.
  bool prefersPast(uint64_t bytes) { return bytes >= kLeastBytes && classOf(bytes).prefersPast; }
  /// The value that isPast() was asked about last took so long to store at `place`.
  void took(uint64_t bytes, bool isPast, const void* place, int64_t beganNs, int64_t endedNs) {
    Class& of = classOf(bytes);
    const float each = static_cast<float>(endedNs - beganNs) / static_cast<float>(bytes);
    of.isTrying ? ++of.tried : --of.rests;
    if (isPast) {
      of.past = {each, of.past[0]};
      if (of.isTrying && of.tried == kTriesPast) of.endTrial(of.through > bound(bytes), endedNs);
      return;
    }
    of.lap.add(each, place);
    if (of.isTrying && of.lap.second <= bound(bytes)) {
      of.through = of.lap.second;
      of.lap = {};
      of.endTrial(false, endedNs);
    } else if (of.isTrying ? of.lap.isWhole() : of.lap.isTwice()) {
      of.through = of.lap.second;
      of.lapValues = of.isTrying ? of.lap.values : of.lap.values / 2;
      of.lap = {};
      of.isDoubtful = of.through > bound(bytes);
      if (of.isTrying) of.endTrial(of.isDoubtful, endedNs);
    }
  }

 private:
  static constexpr int kClasses = 8;
  static constexpr int kTriesPast = 2;
  static constexpr float kNever = std::numeric_limits<float>::max();

  /// Values that were stored through the cache one after the other: nanoseconds a byte.
  struct Lap {
    static constexpr int kLeastValues = 4;
    static constexpr int kManyValues = 32;
    static constexpr int kMostValues = 4096;  // of places that are never written again

    void add(float each, const void* place) {
      second = std::min(second, std::max(each, fastest));
      fastest = std::min(fastest, each);
      if (values++ == 0) first = place;
      else if (again > 0 || place == first) ++again;
    }
    bool isWhole() const { return (again >= 2 && values >= kLeastValues) || values >= kMostValues; }
    bool isTwice() const { return (2 * again >= values && values >= kManyValues) || values >= 2 * kMostValues; }

    float fastest = kNever;
    float second = kNever;
    const void* first = nullptr;
    int values = 0;
    int again = 0;  // since the first place was written once more
  };

  struct Class {
    void beginTrial() {
      isTrying = true;
      tried = 0;
      if (prefersPast) lap = {};
    }
    /// `pastPays`: what goes past the cache is so much faster.
    void endTrial(bool pastPays, int64_t nowNs) {
      const bool changes = std::exchange(prefersPast, pastPays) != pastPays;
      if (changes) pauseNs = kTrySoonNs;
      tryAtNs = nowNs + pauseNs;
      if (!changes) pauseNs = std::min(2 * pauseNs, kTryAgainNs);
      rests = kRestShare * (prefersPast ? lapValues : kTriesPast);
      isTrying = isDoubtful = false;
    }

    Lap lap;                                    // the present one
    float through = 0;                          // of the last whole one; 0: none yet
    std::array<float, 2> past{kNever, kNever};  // the last values
    int64_t tryAtNs = std::numeric_limits<int64_t>::min();
    int64_t pauseNs = kTrySoonNs;
    int tried = 0;            // values of the trial that is under way
    int64_t rests = 0;        // values until the next one may begin
    int lapValues = 0;        // of the last whole lap
    bool isTrying = false;    // the way that is not preferred
    bool isDoubtful = false;  // a trial may begin before it is time
    bool prefersPast = false;
  };

  /// What a value through the cache may take.
  float bound(uint64_t bytes) {
    const Class& of = classOf(bytes);
    return worth_[bytes < kMovingBytes ? 0 : 1] * std::min(of.past[0], of.past[1]);
  }
  Class& classOf(uint64_t bytes) {
    constexpr int kFirst = std::bit_width(kLeastBytes);
    return classes_[static_cast<size_t>(std::clamp(static_cast<int>(std::bit_width(bytes)) - kFirst, 0, kClasses - 1))];
  }

  Worth worth_;
  std::array<Class, kClasses> classes_;
};

}  // namespace tutti::transport::local
