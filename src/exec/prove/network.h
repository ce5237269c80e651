// All ranks' recorded programs with names resolved to numbers: lanes, pipes, signals, places.
//
// Owner: a Prover; rebuilt when algorithm, ranks, root, layout or in-place change. Not shared between threads.
// 1. Lane l of rank r is number r × lanesPerRank + l, over all programs. Lanes that a program does not have are empty.
// 2. A place is one chunk of one buffer of one rank; in place, the output chunk and its input chunk are one place.
// 3. Every pipe has one writing lane and one reading lane, every signal one giver and one taker; build() refuses anything else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "algo/layout.h"
#include "connect/layout.h"
#include "core/arena.h"
#include "exec/prove/prove.h"

namespace tutti::exec::prove {

struct FlatStep {
  algo::Kind kind = algo::Kind::Pipe;
  bool reduce = false;
  bool sendsReference = false;  ///< what is sent may be read from the sender's buffers until the receiving step is done
  int8_t numFrom = 0;
  int8_t numTo = 0;
  bool srcIsInput = false;
  int32_t srcChunk = -1;
  int32_t dstChunk = -1;
  int32_t src = -1;  ///< place; -1: none
  int32_t dst = -1;
  uint8_t round = 0;
  const int32_t* from = nullptr;  ///< Pipe: pipes. Await, Take: [0] the signal. Load: [0] the peer
  const int32_t* to = nullptr;    ///< Pipe: pipes. Arrive, Give: [0] the signal. Store: [0] the peer

  int32_t sizeChunk() const { return dst >= 0 ? dstChunk : srcChunk; }
  /// A copy of a place onto itself, where input and output are one.
  bool changesNothing() const { return kind == algo::Kind::Pipe && !reduce && numFrom == 0 && dst >= 0 && src == dst; }
};

struct Pipe {
  int32_t from = 0;
  int32_t to = 0;
  int32_t writer = -1;  ///< lane
  int32_t reader = -1;
};

/// Counts what was given and not yet taken: arrivals between ranks, slices handed over between lanes.
struct Signal {
  int32_t giver = -1;  ///< lane
  int32_t taker = -1;
};

struct Program {
  const Subject* subject = nullptr;
  int32_t chunks = 0;
  int32_t firstPlace = 0;
  std::vector<FlatStep> steps;
  std::vector<uint32_t> laneBegin;  ///< [lane] first step, one more at the end
  std::vector<algo::LayoutView> views;
  std::vector<Expr> orders;  ///< [chunk] the promised expression

  uint32_t stepsOf(int32_t lane) const { return laneBegin[static_cast<size_t>(lane) + 1] - laneBegin[static_cast<size_t>(lane)]; }
  const FlatStep& step(int32_t lane, uint32_t index) const { return steps[laneBegin[static_cast<size_t>(lane)] + index]; }
  int32_t place(int32_t rank, bool output, int32_t chunk) const { return firstPlace + (2 * rank + (output ? 1 : 0)) * chunks + chunk; }
};

class Network {
 public:
  /// Records and resolves. Returns what is wrong with the programs, or nothing. Uses the old network where it still fits.
  std::string build(const Case& c);

  const Program& program(int32_t operation) const { return programs_[static_cast<size_t>(operation) % programs_.size()]; }
  std::vector<Program>& programs() { return programs_; }
  const std::vector<Pipe>& pipes() const { return pipes_; }
  const std::vector<Signal>& signals() const { return signals_; }
  int32_t ranks() const { return ranks_; }
  int32_t lanesPerRank() const { return lanesPerRank_; }
  int32_t lanes() const { return ranks_ * lanesPerRank_; }
  int32_t places() const { return places_; }
  int32_t rankOf(int32_t lane) const { return lane / lanesPerRank_; }
  Expressions& expressions() { return expressions_; }

  /// The place of a rank's output chunk; in place, that of the input chunk which it is.
  int32_t outputPlace(const Program& program, int32_t rank, int32_t chunk) const;

  /// "rank 3's out[2]" of the program that the place belongs to.
  std::string placeName(int32_t place) const;

 private:
  std::string compile(Program& program);
  std::string compileLane(Program& program, int32_t lane, const std::vector<algo::Step>& steps);
  std::string resolve(const Program& program, int32_t lane, const algo::Step& step, FlatStep& flat);
  std::string resolveChunk(const Program& program, int32_t rank, const algo::ChunkRef& ref, int32_t& place) const;
  std::string resolvePeers(int32_t lane, const algo::Step& step, FlatStep& flat);
  std::string bind(int32_t& bound, int32_t lane, std::string_view what) const;
  int32_t pipeBetween(uint8_t port, int32_t from, int32_t to);
  int32_t signalBetween(bool handOver, int32_t from, int32_t to);

  std::optional<Case> built_;
  std::optional<connect::Layout> layout_;
  bool inPlace_ = false;
  int32_t ranks_ = 0;
  int32_t lanesPerRank_ = 0;
  int32_t places_ = 0;
  std::vector<Program> programs_;
  Arena links_;  // what the steps' `from` and `to` point to
  std::vector<Pipe> pipes_;
  std::vector<Signal> signals_;
  std::unordered_map<uint64_t, int32_t> pipeNumbers_;
  std::unordered_map<uint64_t, int32_t> signalNumbers_;
  Expressions expressions_;
};

}  // namespace tutti::exec::prove
