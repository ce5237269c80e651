#include "tune/choose.h"

namespace tutti::tune {
namespace {

using exec::record::Algorithm;

/// NCCL_ALGO speaks of these collectives only; the others are always made of messages.
bool isGoverned(Collective collective) {
  switch (collective) {
    case Collective::Broadcast:
    case Collective::Reduce:
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllReduce: return true;
    default: return false;
  }
}

/// The filter that speaks of this collective: tutti's own, which knows all names, before NCCL's. NCCL's excludes algorithms that it
/// has no name for unless it only says "not these".
const Filter& filterFor(const Restrictions& restrictions, Collective collective) {
  return restrictions.tutti.restricts(collective) ? restrictions.tutti : restrictions.nccl;
}

bool isAllowed(const Restrictions& restrictions, Collective collective, std::string_view algorithm) {
  return !isGoverned(collective) || filterFor(restrictions, collective).allows(collective, algorithm);
}

/// Up to here every rank gives its contribution to every other; beyond, the (ranks - 1)-fold bytes cost more than hops. Where the
/// curves of ring, tree and one-shot cross between threads: `tutti bench all_reduce` with TUTTI_ALGO set to each.
uint64_t oneShotLimit(int32_t ranks) { return ranks <= 2 ? 16384 : ranks <= 8 ? 8192 : 4096; }

/// A tree has log2(ranks) hops each way against 2 (ranks - 1) of a ring, but moves every byte through fewer ranks at a time.
uint64_t treeLimit(int32_t ranks) { return ranks <= 4 ? 0 : 16384 * static_cast<uint64_t>(ranks); }

std::string_view preferred(Collective collective, uint64_t bytes, int32_t ranks) {
  if (collective != Collective::AllReduce || ranks == 1) return "ring";
  if (bytes <= oneShotLimit(ranks)) return "oneshot";
  return bytes <= treeLimit(ranks) ? "tree" : "ring";
}

}  // namespace

std::vector<std::string_view> ncclAlgorithmNames() { return {"Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"}; }

std::vector<std::string_view> tuttiAlgorithmNames() {
  std::vector<std::string_view> names;
  for (const Algorithm& a : exec::record::algorithms()) {
    bool seen = false;
    for (const auto n : names) seen = seen || n == a.traits.name;
    if (!seen) names.push_back(a.traits.name);
  }
  return names;
}

Result<const Algorithm*> choose(Collective collective, uint64_t bytes, int32_t ranks, const Restrictions& restrictions) {
  const Algorithm* first = nullptr;
  const std::string_view wanted = preferred(collective, bytes, ranks);
  std::string available;
  for (const Algorithm& a : exec::record::algorithms()) {
    if (a.traits.collective != collective) continue;
    available += (available.empty() ? "" : ", ") + std::string(a.traits.name);
    if (!isAllowed(restrictions, collective, a.traits.name)) continue;
    if (a.traits.name == wanted) return &a;
    if (first == nullptr) first = &a;
  }
  if (first != nullptr) return first;
  return fail(Code::InvalidUsage, "{} leaves no algorithm for {}: there are {}", filterFor(restrictions, collective).source(),
              name(collective), available);
}

}  // namespace tutti::tune
