// Ranks as processes of this program, started by it, with a piece of shared memory between them: a barrier, figures, small messages, and
// what each is doing, so that whoever hangs is named.
//
// Owner: main starts them before anything of CUDA is touched; each rank has the World by reference, and uses it from one thread.
// 1. A rank that fails or dies ends all: the others are killed, and what each was doing is told.
// 2. A rank whose step has not changed for the limit ends all likewise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/format.h"

namespace tutti::bench::gpu {

inline constexpr int kMostRanks = 16;
inline constexpr size_t kMostFigures = 4096;
inline constexpr int kExitWrong = 1;
inline constexpr int kExitBroken = 2;
inline constexpr int kExitHang = 3;

/// Ends the process, and with it all ranks.
[[noreturn]] void stopWith(const std::string& text);
template <class... Args>
[[noreturn]] void stop(fmt::format_string<Args...> text, Args&&... args) {
  stopWith(tutti::format(text, std::forward<Args>(args)...));
}

struct SharedRank {
  alignas(128) std::atomic<uint64_t> beats;  ///< written by the rank at each step, read by the parent
  char step[240];
  uint64_t figures;
  double figure[kMostFigures];
};
struct Shared {
  alignas(128) std::atomic<uint32_t> arrived;
  alignas(128) std::atomic<uint32_t> generation;
  char message[256];
  SharedRank ranks[kMostRanks];
};

class World {
 public:
  World(Shared& shared, int rank, int ranks) : shared_(shared), rank_(rank), ranks_(ranks) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool isLead() const { return rank_ == 0; }

  void barrier();
  /// Everybody's figures, by rank.
  std::vector<std::vector<double>> exchange(const std::vector<double>& own);
  /// Element by element the largest of all ranks; as long as the shortest.
  std::vector<double> largest(const std::vector<double>& own);
  double largest(double own) { return largest(std::vector<double>{own}).front(); }
  double sum(double own);
  /// Rank 0's bytes, at most 256, to all.
  void share(void* data, size_t bytes);
  /// What this rank does from now on.
  void step(std::string_view text);

 private:
  Shared& shared_;
  int rank_;
  int ranks_;
};

/// The exit code of all: 0, or that of the rank that failed first, or kExitHang.
int runRanks(int ranks, double limitSeconds, const std::function<int(World&)>& body);

}  // namespace tutti::bench::gpu
