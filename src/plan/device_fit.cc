#include "plan/device_fit.h"

#include <algorithm>
#include <limits>
#include <set>

#include "exec/cuda/pipe.h"

namespace tutti::plan {

using exec::cuda::KernelId;
using exec::record::Algorithm;

namespace {

/// A program's ends of pipes: port, whether it sends, peer.
using End = std::tuple<uint8_t, bool, int32_t>;

std::set<End> endsOf(const exec::record::Program& program) {
  std::set<End> ends;
  for (const auto& lane : program.lanes) {
    for (const algo::Step& step : lane) {
      if (step.kind != algo::Kind::Pipe) continue;
      for (int32_t i = 0; i < step.from.count; ++i) ends.insert({step.port, false, step.from.at(i).value});
      for (int32_t i = 0; i < step.to.count; ++i) ends.insert({step.port, true, step.to.at(i).value});
    }
  }
  return ends;
}

/// Whether slices are handed over to a lane that has no place for it.
bool handsOverTooFar(const exec::record::Program& program) {
  for (const auto& lane : program.lanes)
    for (const algo::Step& step : lane)
      if (step.kind == algo::Kind::Give && step.lane >= exec::cuda::kHandOverLanes) return true;
  return false;
}

}  // namespace

DeviceFit DeviceFits::find(const Algorithm& algorithm, KernelId kernel, Rank root) const {
  DeviceFit fit;
  const int32_t lanes = algorithm.lanes(layout_.ranks());
  if (lanes > std::numeric_limits<uint8_t>::max()) {
    fit.status =
        error(Code::InvalidArgument, "{} has {} lanes; kernels hold {}", algorithm.traits.name, lanes, std::numeric_limits<uint8_t>::max());
    return fit;
  }
  // A message has two ends, whoever they are.
  const bool isMessage = algorithm.traits.collective == Collective::SendRecv;
  const int32_t first = isMessage ? root.value : 0;
  const int32_t last = isMessage ? root.value : layout_.ranks() - 1;
  for (int32_t r = first; r <= last; ++r) {
    const Rank other = isMessage ? Rank((r + 1) % layout_.ranks()) : root;
    const exec::record::Program program = algorithm.record(layout_.view(Rank(r), other));
    const auto packed = exec::cuda::packProgram(kernel, algorithm.traits.needs, program.lanes, Rank(r));
    if (!packed) {
      fit.status = packed.error();
      return fit;
    }
    const std::set<End> ends = endsOf(program);
    if (ends.size() > exec::cuda::kMostEnds) {
      fit.status = error(Code::InvalidArgument, "{} has {} ends of pipes on a channel; kernels hold {}", algorithm.traits.name, ends.size(),
                         exec::cuda::kMostEnds);
      return fit;
    }
    if (handsOverTooFar(program)) {
      fit.status =
          error(Code::InvalidArgument, "{} hands slices over to more than {} lanes", algorithm.traits.name, exec::cuda::kHandOverLanes);
      return fit;
    }
    for (const auto& [port, sends, peer] : ends) fit.ports |= uint64_t{1} << std::min<int>(port, 63);
  }
  return fit;
}

const DeviceFit& DeviceFits::of(const Algorithm& algorithm, KernelId kernel, Rank root) {
  const int32_t whose = hasRoot(algorithm.traits.collective) ? root.value : 0;
  const auto [at, isNew] = known_.try_emplace({&algorithm, kernel == KernelId::Window, whose});
  if (isNew) at->second = find(algorithm, kernel, Rank(whose));
  return at->second;
}

}  // namespace tutti::plan
