#include "tune/choose.h"

#include <algorithm>

namespace tutti::tune {
namespace {

using exec::record::Algorithm;

/// The filter that speaks of this collective: tutti's own, which knows all names, before NCCL's. NCCL's excludes algorithms that it
/// has no name for unless it only says "not these".
const Filter& filterFor(const Restrictions& restrictions, Collective collective) {
  return restrictions.tutti.restricts(collective) ? restrictions.tutti : restrictions.nccl;
}

bool isAllowed(const Restrictions& restrictions, Collective collective, std::string_view algorithm) {
  const Filter& filter = filterFor(restrictions, collective);
  if (restrictions.forbidsPat && algorithm == "pat" && &filter == &restrictions.nccl) return false;
  if (!isGoverned(collective) && &filter == &restrictions.nccl) return true;
  return filter.allows(collective, algorithm);
}

}  // namespace

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

std::vector<std::string_view> ncclAlgorithmNames() {
  std::vector<std::string_view> names;
  for (int a = 0; a < kNcclAlgorithms; ++a) names.push_back(name(static_cast<NcclAlgorithm>(a)));
  return names;
}

std::vector<std::string_view> ncclProtocolNames() {
  std::vector<std::string_view> names;
  for (int p = 0; p < kNcclProtocols; ++p) names.push_back(name(static_cast<NcclProtocol>(p)));
  return names;
}

std::vector<std::string_view> tuttiAlgorithmNames() {
  std::vector<std::string_view> names;
  for (const Algorithm& a : exec::record::algorithms()) {
    bool seen = false;
    for (const auto n : names) seen = seen || n == a.traits.name;
    if (!seen) names.push_back(a.traits.name);
  }
  return names;
}

Result<std::vector<const Algorithm*>> candidates(Collective collective, const Restrictions& restrictions, bool deterministic,
                                                    bool sharesMemory) {
  std::vector<const Algorithm*> allowed;
  std::vector<const Algorithm*> all;
  std::string available;
  for (const Algorithm& a : exec::record::algorithms()) {
    if (a.traits.collective != collective) continue;
    available += (available.empty() ? "" : ", ") + std::string(a.traits.name);
    all.push_back(&a);
    if (isAllowed(restrictions, collective, a.traits.name)) allowed.push_back(&a);
  }
  const Filter& filter = filterFor(restrictions, collective);
  // A default for everything may name nothing that a collective has which few algorithms know; one that names the collective is meant.
  if (allowed.empty() && !isGoverned(collective) && !filter.names(collective)) allowed = all;
  if (allowed.empty())
    return fail(Code::InvalidUsage, "{}{} leaves no algorithm for {}: there are {}", filter.source(),
                restrictions.forbidsPat ? " with NCCL_PAT_ENABLE=0" : "", name(collective), available);
  if (!deterministic || !reduces(collective)) return allowed;

  const auto canRun = [&](const Algorithm* a) { return sharesMemory || a->traits.needs != algo::Needs::PeerMemory; };
  algo::Order best = algo::Order::Layout;
  for (const Algorithm* a : allowed)
    if (canRun(a)) best = std::max(best, a->traits.order);
  if (best == algo::Order::Layout && !sharesMemory)
    return fail(Code::InvalidUsage, "TUTTI_DETERMINISTIC wants {} in rank order, and no algorithm that is allowed does that between hosts",
                name(collective));
  if (best == algo::Order::Layout)
    return fail(Code::InvalidUsage, "TUTTI_DETERMINISTIC wants {} in rank order, but {} leaves only {}", name(collective), filter.source(),
                allowed.front()->traits.name);
  std::erase_if(allowed, [&](const Algorithm* a) { return a->traits.order != best || !canRun(a); });
  return allowed;
}

std::string whyNot(const Algorithm& algorithm, const Restrictions& restrictions) {
  if (isAllowed(restrictions, algorithm.traits.collective, algorithm.traits.name)) return "TUTTI_DETERMINISTIC wants a better order";
  if (restrictions.forbidsPat && algorithm.traits.name == "pat") return "NCCL_PAT_ENABLE=0 forbids it";
  return format("{} forbids it", filterFor(restrictions, algorithm.traits.collective).source());
}

std::optional<NcclAlgorithm> familyOf(const Algorithm& algorithm) {
  const std::string_view own = algorithm.traits.name;
  // Within a node NCCL's trees are chains.
  if (own == "tree" || (own == "chain" && algorithm.traits.collective == Collective::AllReduce)) return NcclAlgorithm::Tree;
  if (own == "ring" || own == "chain") return NcclAlgorithm::Ring;
  if (own == "pat") return NcclAlgorithm::Pat;
  return std::nullopt;
}

}  // namespace tutti::tune
