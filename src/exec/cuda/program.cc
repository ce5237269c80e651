#include "exec/cuda/program.h"

#include <algorithm>
#include <cstring>

#include "exec/cuda/launch.h"

namespace tutti::exec::cuda {
namespace {

using algo::Kind;

class LanePacker {
 public:
  LanePacker(Rank self, bool skipsSignals) : self_(self), skipsSignals_(skipsSignals) {}

  void add(const algo::Step& s) {
    if (skipsSignals_ && !isSignalNeeded(s)) return;
    if (s.kind == Kind::Store && s.to.rank[0] == self_) {
      own_ = s.src;
      return;
    }
    const algo::ChunkRef src = s.kind == Kind::LoadReduce ? own_ : s.src;
    ProgramStep p{};
    p.kind = s.kind;
    p.reduce = s.reduce;
    p.srcBuffer = src.buffer;
    p.dstBuffer = s.dst.buffer;
    p.port = s.port;
    p.round = s.round;
    p.lane = s.lane;
    p.srcChunk = src.chunk;
    p.dstChunk = s.dst.chunk;
    p.froms = static_cast<uint8_t>(s.from.count);
    p.tos = s.to.count;
    for (int32_t i = 0; i < std::min(s.from.count, kMostFan); ++i) p.from[i] = s.from.at(i).value;
    for (int32_t i = 0; i < std::min(s.to.count, kMostFan); ++i) p.to[i] = s.to.at(i).value;
    steps_.push_back(p);
  }
  std::vector<ProgramStep> take() { return std::move(steps_); }

 private:
  bool isSignalNeeded(const algo::Step& s) {
    const auto isLastAwait = [&] { return !steps_.empty() && steps_.back().kind == Kind::Await; };
    if (s.kind == Kind::Store) {
      stored_ = (round_ == s.round ? stored_ : 0) | uint64_t{1} << s.to.rank[0].value;
      round_ = s.round;
    }
    if (s.kind == Kind::Arrive) return round_ != s.round || (stored_ >> s.to.rank[0].value & 1) == 0;
    if (s.kind == Kind::Load && isLastAwait() && steps_.back().from[0] == s.from.rank[0].value) steps_.pop_back();
    if (s.kind == Kind::LoadReduce) {
      while (isLastAwait()) steps_.pop_back();
    }
    return true;
  }

  Rank self_;
  bool skipsSignals_;
  algo::ChunkRef own_;
  uint64_t stored_ = 0;  ///< bits: peers that this rank has stored for in round_
  uint8_t round_ = 0;
  std::vector<ProgramStep> steps_;
};

}  // namespace

std::vector<ProgramStep> packLane(std::span<const algo::Step> steps, Rank self, bool skipsSignals) {
  LanePacker packer(self, skipsSignals);
  for (const algo::Step& s : steps) packer.add(s);
  return packer.take();
}

PackedProgram joinLanes(std::span<const std::vector<ProgramStep>> lanes, int32_t tracks) {
  PackedProgram packed;
  uint32_t& laneWords = packed.shape.laneWords;
  packed.shape.tracks = static_cast<uint16_t>(tracks);
  packed.shape.lanes = static_cast<uint16_t>(lanes.size() / static_cast<size_t>(tracks));
  size_t longest = 0;
  for (const auto& lane : lanes) longest = std::max(longest, lane.size());
  laneWords = static_cast<uint32_t>((sizeof(ProgramHead) + longest * sizeof(ProgramStep)) / sizeof(uint64_t));
  packed.words.resize(lanes.size() * laneWords);
  for (size_t l = 0; l < lanes.size(); ++l) {
    ProgramHead head{static_cast<int32_t>(lanes[l].size()), 1};
    for (const ProgramStep& s : lanes[l]) head.rounds = std::max(head.rounds, s.round + 1);
    uint64_t* const at = packed.words.data() + l * laneWords;
    std::memcpy(at, &head, sizeof head);
    if (!lanes[l].empty()) std::memcpy(at + 1, lanes[l].data(), lanes[l].size() * sizeof(ProgramStep));
  }
  return packed;
}

Result<PackedProgram> packProgram(KernelId kernel, algo::Needs needs, std::span<const std::vector<algo::Step>> lanes, Rank self,
                                  int32_t tracks) {
  const KernelInfo& info = kernelInfo(kernel);
  const bool runs = needs == algo::Needs::Pipe ? info.runsPipes : info.runsWindows;
  if (!runs)
    return tl::unexpected(error(Code::InvalidArgument, "kernel {} has no {}", info.name, needs == algo::Needs::Pipe ? "pipes" : "windows"));
  const size_t most = hasFlaggedWindows(kernel) ? kMostWindowSteps : kMostSteps;
  std::vector<std::vector<ProgramStep>> packed;
  for (const std::vector<algo::Step>& lane : lanes) {
    packed.push_back(packLane(lane, self, hasFlaggedWindows(kernel)));
    if (packed.back().size() > most)
      return tl::unexpected(error(Code::InvalidArgument, "a lane has {} steps; kernel {} holds {}", packed.back().size(), info.name, most));
    for (const ProgramStep& s : packed.back())
      if (s.froms > kMostFan || s.tos > kMostFan)
        return tl::unexpected(
            error(Code::InvalidArgument, "a step has {} peers; kernels hold {}", std::max<int32_t>(s.froms, s.tos), kMostFan));
  }
  return joinLanes(packed, tracks);
}

}  // namespace tutti::exec::cuda
