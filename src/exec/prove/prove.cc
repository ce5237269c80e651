#include "exec/prove/prove.h"

#include "core/format.h"
#include "exec/prove/collective.h"
#include "exec/prove/execute.h"
#include "exec/prove/network.h"
#include "exec/prove/races.h"
#include "exec/prove/sizes.h"

namespace tutti::exec::prove {
namespace {

std::string checkCase(const Case& c) {
  if (c.algorithm == nullptr) return "no algorithm";
  for (const Subject* subject : {c.algorithm, c.then})
    if (c.inPlace && subject != nullptr && !hasInPlace(subject->traits.collective)) return "this collective has no in-place form";
  if (c.ranks < 1) return format("{} ranks; at least 1", c.ranks);
  if (c.root < 0 || c.root >= c.ranks) return format("root {}; 0 to {}", c.root, c.ranks - 1);
  if (c.slots < 1) return format("{} slots; at least 1", c.slots);
  if (c.slices < 1) return format("{} slices; at least 1", c.slices);
  if (c.channels < 1) return format("{} channels; at least 1", c.channels);
  if (c.operations < 1) return format("{} operations; at least 1", c.operations);
  if (c.banks < 1) return format("{} banks; at least 1", c.banks);
  if (c.track < 0) return format("track {}; at least 0", c.track);
  if (c.localRanks < 0 || (c.localRanks > 0 && c.ranks % c.localRanks != 0))
    return format("nodes of {} ranks; a divisor of {}, or 0", c.localRanks, c.ranks);
  return {};
}

}  // namespace

struct Prover::Memory {
  Network network;
  Execution execution;
  Races races;
  std::vector<std::vector<uint32_t>> classes;

  std::string classify(const Case& c);
  std::string run(const Case& c, Proof& proof);
};

/// The size classes of every program's chunks.
std::string Prover::Memory::classify(const Case& c) {
  classes.clear();
  for (const Program& program : network.programs()) {
    SizeClasses sizes = classifySizes(program.subject->traits.division, program.chunks, c.channels, c.slices);
    if (!sizes.failure.empty()) return "geometry: " + sizes.failure;
    classes.push_back(std::move(sizes.ofChunk));
  }
  return {};
}

std::string Prover::Memory::run(const Case& c, Proof& proof) {
  if (std::string failure = checkCase(c); !failure.empty()) return failure;
  if (std::string failure = network.build(c); !failure.empty()) return failure;
  if (std::string failure = classify(c); !failure.empty()) return failure;
  const bool ended = execution.run(network, c, classes);
  proof.lanes = static_cast<uint64_t>(network.lanes());
  proof.steps = execution.log().size();
  proof.messages = execution.messages();
  proof.slotsUsed = execution.slotsUsed();
  if (!ended) return execution.failure();
  const bool ordered = races.check(network, c, execution);
  proof.sharedPlaces = races.sharedPlaces();
  if (!ordered) return races.failure();
  proof.races = races.sharedPlaces() == 0 ? RaceCheck::NothingShared : RaceCheck::Ordered;
  return {};
}

Prover::Prover() : memory_(std::make_unique<Memory>()) {}
Prover::~Prover() = default;

Proof Prover::prove(const Case& c) {
  Proof proof;
  proof.subject = c;
  const std::string failure = memory_->run(c, proof);
  proof.ok = failure.empty();
  if (!proof.ok) proof.failure = format("{}: {}", describe(c), failure);
  return proof;
}

Proof prove(const Case& c) { return Prover().prove(c); }

int32_t leastSlots(const Subject& algorithm, int32_t ranks, int32_t most) {
  Prover prover;
  for (int32_t slots = 1; slots <= most; ++slots) {
    Case c;
    c.algorithm = &algorithm;
    c.ranks = ranks;
    c.slots = slots;
    c.slices = 3;
    if (prover.prove(c).ok) return slots;
  }
  return 0;
}

std::string describe(const Case& c) {
  if (c.algorithm == nullptr) return "no algorithm";
  const auto title = [](const Subject& s) { return format("{} {}", name(s.traits.collective), s.traits.name); };
  std::string text = title(*c.algorithm);
  if (c.then != nullptr) text += " and " + title(*c.then) + " in turn";
  text += format(", {} rank{}", c.ranks, c.ranks == 1 ? "" : "s");
  const Collective collective = c.algorithm->traits.collective;
  if (hasRoot(collective)) text += format(", root {}", c.root);
  if (collective == Collective::SendRecv) text += format(", rank r with rank {} - r", c.root);
  text += format(", {} slot{}, {} slice{}", c.slots, c.slots == 1 ? "" : "s", c.slices, c.slices == 1 ? "" : "s");
  if (c.channels != 1) text += format(", {} channels", c.channels);
  if (c.operations != 1) text += format(", {} operations", c.operations);
  if (c.banks != 2) text += format(", {} bank{}", c.banks, c.banks == 1 ? "" : "s");
  if (c.inPlace) text += ", in place";
  if (c.layoutSeed != 0) text += format(", layout {}", c.layoutSeed);
  if (c.track != 0) text += format(", track {}", c.track);
  if (c.localRanks != 0) text += format(", {} a node", c.localRanks);
  if (c.places) text += ", results placed";
  return text;
}

}  // namespace tutti::exec::prove
