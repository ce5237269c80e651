#include "sizes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bare.h"
#include "bench/percentile.h"
#include "bench/units.h"

namespace tutti::bench {
namespace {

constexpr size_t kLeast = 8;
constexpr size_t kMost = size_t{64} << 20;
constexpr size_t kFactor = 4;

/// How a message goes.
enum class Way { Asleep, Spinning, Library };
constexpr std::array<Way, 3> kWays{Way::Asleep, Way::Spinning, Way::Library};
constexpr std::array<const char*, 3> kNames{"bare sockets, asleep in recv", "bare sockets, spinning", "ncclSend and ncclRecv"};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "bench_net: %s\n", what);
  std::_Exit(1);
}

std::byte patternAt(size_t i) { return static_cast<std::byte>(i * 31 + (i >> 13) + 1); }

/// How many round trips make a batch of some milliseconds.
int tripsOf(size_t bytes) {
  const double estimate = 2 * (10e-6 + static_cast<double>(bytes) / 3e9);
  return std::clamp(static_cast<int>(5e-3 / estimate), 1, 500);
}

class Sizes {
 public:
  explicit Sizes(const Ends& ends) : ends_(ends), out_(kMost), in_(kMost) {
    for (size_t i = 0; i < kMost; ++i) out_[i] = patternAt(i);
  }

  /// One batch, verified: seconds of half a round trip.
  double run(Way way, size_t bytes) {
    std::memset(in_.data(), 0, bytes);
    ends_.meet();
    const int trips = tripsOf(bytes);
    const double seconds =
        way == Way::Library ? ends_.library.ping({out_.data(), bytes}, {in_.data(), bytes}, trips) : ping(way, bytes, trips);
    ends_.meet();
    if (std::memcmp(in_.data(), out_.data(), bytes) != 0) die("wrong data");
    return seconds;
  }

 private:
  double ping(Way way, size_t bytes, int trips) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    for (int trip = 0; trip < trips; ++trip) {
      if (ends_.isFirst) put(way, out_.data(), bytes);
      get(way, bytes);
      if (!ends_.isFirst) put(way, in_.data(), bytes);
    }
    return std::chrono::duration<double>(Clock::now() - begin).count() / trips / 2;
  }
  bool isStriped(size_t bytes) const { return ends_.bare.size() > 1 && bytes >= kLeastStriped; }
  void put(Way way, const std::byte* data, size_t bytes) const {
    if (way == Way::Spinning) {  // over one stream, whatever the size
      spinWrite(ends_.bare[0], data, bytes);
    } else if (isStriped(bytes)) {
      writeStriped({ends_.bare.begin(), ends_.bare.end()}, data, bytes);
    } else {
      writeAll(ends_.bare[0], data, bytes);
    }
  }
  void get(Way way, size_t bytes) {
    if (way == Way::Spinning) {
      spinRead(ends_.bare[0], in_.data(), bytes);
    } else if (isStriped(bytes)) {
      readStriped({ends_.bare.begin(), ends_.bare.end()}, in_.data(), bytes);
    } else {
      readAll(ends_.bare[0], in_.data(), bytes);
    }
  }

  const Ends& ends_;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
};

Row rowOf(Way way, size_t bytes, std::vector<double> times) {
  std::ranges::sort(times);
  Row row;
  row.op = "sendrecv";
  row.type = "char";
  row.redOp = "none";
  row.ranks = 2;
  row.count = row.bytes = bytes;
  row.timeUs = percentile(times, 50) * 1e6;
  row.p99Us = percentile(times, 99) * 1e6;
  row.algbwGBps = row.busbwGBps = static_cast<double>(bytes) / row.timeUs / 1e3;
  row.wrong = 0;
  row.library = kNames[static_cast<size_t>(way)];
  return row;
}

/// How much longer the bare sockets took in the same round: the median.
double ratioOf(const std::vector<double>& bare, const std::vector<double>& library) {
  std::vector<double> ratios(bare.size());
  std::ranges::transform(bare, library, ratios.begin(), [](double a, double b) { return a / b; });
  std::ranges::sort(ratios);
  return percentile(ratios, 50);
}

}  // namespace

void Ends::meet() const {
  char word = 0;
  if (write(control, &word, 1) != 1 || read(control, &word, 1) != 1) die("the other process has gone");
}

std::vector<Row> measureSizes(const Ends& ends, int rounds) {
  Sizes sizes(ends);
  std::vector<Row> rows;
  if (ends.isFirst) {
    std::printf("# messages between two processes over loopback, half a round trip, medians of %d rounds in turns; bare streams: %zu\n",
                rounds, ends.bare.size());
    std::printf("# %10s %12s %14s %14s %12s %14s\n", "size", "asleep (us)", "spinning (us)", "ncclSend (us)", "to asleep", "to spinning");
  }
  for (size_t bytes = kLeast;; bytes = std::min(bytes * kFactor, kMost)) {
    std::array<std::vector<double>, kWays.size()> times;
    for (int round = -1; round < rounds; ++round) {  // one to warm up
      for (size_t i = 0; i < kWays.size(); ++i) {
        const size_t turn = (i + static_cast<size_t>(round + 1)) % kWays.size();
        const double seconds = sizes.run(kWays[turn], bytes);
        if (round >= 0) times[turn].push_back(seconds);
      }
    }
    if (ends.isFirst) {
      for (size_t i = 0; i < kWays.size(); ++i) rows.push_back(rowOf(kWays[i], bytes, times[i]));
      const Row* const row = &rows[rows.size() - kWays.size()];
      std::printf("  %10s %12s %14s %14s %12.2f %14.2f\n", formatBytes(bytes).c_str(), formatNumber(row[0].timeUs).c_str(),
                  formatNumber(row[1].timeUs).c_str(), formatNumber(row[2].timeUs).c_str(), ratioOf(times[0], times[2]),
                  ratioOf(times[1], times[2]));
      std::fflush(stdout);
    }
    if (bytes == kMost) return rows;
  }
}

}  // namespace tutti::bench
