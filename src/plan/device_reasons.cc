// Why the planner of devices does not take what it does not take.
#include <string>

#include "plan/device_draft.h"

namespace tutti::plan {

using exec::cuda::KernelId;
using exec::cuda::kernelInfo;
using exec::record::Algorithm;

namespace {

/// "ring, tree".
template <class Items, class Name>
std::string listOf(const Items& items, Name&& nameOf) {
  std::string text;
  for (const auto& item : items) {
    const std::string_view word = nameOf(item);
    if ((", " + text + ", ").find(", " + std::string(word) + ", ") == std::string::npos)
      text += (text.empty() ? "" : ", ") + std::string(word);
  }
  return text;
}

}  // namespace

Rejected DevicePlanner::rejection(const Option& option, std::string reason) {
  return {std::string(option.algorithm->traits.name), kernelInfo(option.kernel).name, std::string(protocolName(option.kernel)), 0, -1,
          std::move(reason)};
}

/// Why the nearest miss is one, and what there is.
Status DevicePlanner::explain(const Hindrance& hindrance, const std::vector<const Algorithm*>& allowed, const Shape& shape) {
  const Option& option = hindrance.option;
  const std::string algorithms = listOf(allowed, [](const Algorithm* a) { return a->traits.name; });
  const std::string_view call = name(shape.collective);
  const bool isRestricted = settings_.protocols.restricts(shape.collective);
  if (hindrance.obstacle <= Obstacle::Kernel && isRestricted) {
    std::vector<KernelId> kernels;
    for (int k = 0; k < exec::cuda::kNumKernels; ++k)
      for (const Algorithm* a : allowed)
        if (carriesOut(static_cast<KernelId>(k), *a) && isOnDevice(static_cast<KernelId>(k))) kernels.push_back(static_cast<KernelId>(k));
    const std::string there = listOf(kernels, protocolName);
    return error(Code::InvalidUsage, "{} leaves no kernel for {} with {}: there are {}", settings_.protocols.source(), call, algorithms,
                 there.empty() ? "none" : there);
  }
  const std::string_view algorithm = option.algorithm->traits.name;
  switch (hindrance.obstacle) {
    case Obstacle::Protocol:
    case Obstacle::Kernel:
      return error(Code::InvalidUsage, "no kernel that these devices run carries out {} with {}: TUTTI_ALGO may allow others", call,
                   algorithms);
    case Obstacle::Window:
      return error(Code::InvalidUsage,
                   "{} with {} needs memory that all ranks map, on one host, at most {} ranks: TUTTI_ALGO may allow others", call,
                   algorithms, exec::cuda::kMaxLocalRanks);
    case Obstacle::Slots:
      return error(Code::InvalidUsage, "{} with {} needs pipes of {} slots, and those of protocol {} have {}", call, algorithm,
                   option.algorithm->traits.minSlots, protocolName(option.kernel),
                   settings_.slots[static_cast<size_t>(kernelInfo(option.kernel).protocol)]);
    case Obstacle::Program: return Status(fits_.of(*option.algorithm, option.kernel, shape.root).status).at(call);
    case Obstacle::Blocks:
    case Obstacle::None: break;
  }
  return error(Code::InvalidUsage, "{} with {} needs {} blocks at once: {} fit onto the device", call, algorithm, option.lanes,
               settings_.mostBlocks[static_cast<size_t>(option.kernel)]);
}

/// The same in a few words, without what the caller may do.
std::string DevicePlanner::why(const Hindrance& hindrance, const Shape& shape) {
  const Option& option = hindrance.option;
  const size_t kernel = static_cast<size_t>(option.kernel);
  switch (hindrance.obstacle) {
    case Obstacle::Protocol: return format("{} forbids it", settings_.protocols.source());
    case Obstacle::Kernel:
      if (option.kernel == KernelId::Bulk && !settings_.hasBulk) return "TUTTI_BULK=0, a GPU or the size of slots forbids it";
      if (option.kernel == KernelId::Bulk && isOnDevice(option.kernel)) return "moves data: others combine it faster (TUTTI_BULK)";
      if (option.kernel == KernelId::Simple && !settings_.hasSimple) return "TUTTI_BULK=1 forbids it";
      if (option.kernel == KernelId::Lines && !settings_.hasLines) return "needs lines of 128 bytes that arrive in order between all GPUs";
      return "these GPUs do not run the kernel";
    case Obstacle::Window: return format("needs memory that all ranks map, on one host, at most {} ranks", exec::cuda::kMaxLocalRanks);
    case Obstacle::Slots: return format("needs pipes of {} slots", option.algorithm->traits.minSlots);
    case Obstacle::Program: return fits_.of(*option.algorithm, option.kernel, shape.root).status.text();
    case Obstacle::Blocks:
    case Obstacle::None: break;
  }
  return format("needs {} blocks at once, {} fit onto the device", option.lanes, settings_.mostBlocks[kernel]);
}

std::string dearer(const tune::Way& way, const tune::Way& best) {
  if (way.us < best.us && way.blocks > best.blocks)
    return format("faster by {:.3g} us, too little for {} blocks instead of {}", best.us - way.us, way.blocks, best.blocks);
  return slower(way.us, best.us);
}

}  // namespace tutti::plan
