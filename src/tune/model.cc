#include "tune/model.h"

#include <algorithm>

namespace tutti::tune {

using exec::record::Algorithm;
using exec::record::Loans;
using exec::record::Profile;

namespace {

// A cell is written again soon, while its reader's caches still have its lines; a pipe has more slots. Where nothing is reduced, that tells
// windows and pipes apart. `bench_mpi alltoall --from 16K --to 4M` of two ranks with TUTTI_ALGO=alltoall:direct and alltoall:p2p.
constexpr double kCellsAgain = 1.1;
constexpr uint64_t kMovedBytes = 32768;
// Of more ranks each pair's pipe has room of its own, in nobody's cache, and all of it together is many times what a window has; and a
// thread carries all of its rank's pipes. The same of 3 to 32 ranks on 32 cores, from 8 B on, and of 4 and 8 on two: pipes take 0.9 to 2.9
// times as long, also where values are lent.
constexpr double kPairsApart = 1.1;

// Between processes a rank that passes a value on copies it twice, out of one slot and into another, or once by system call, which takes as
// long; a star's root copies it once for all. `bench_mpi broadcast --from 8K` of 3 to 32 ranks, with TUTTI_ALGO=broadcast:chain and :star.
constexpr double kPassedOn = 2;

// Short all-reduces of more than two ranks in windows: what each gives to all of them is written once, and read by all (one-shot, and the
// second half of two-shot); what is for one alone takes a line of another core for each, twice as long. Of one-shot's values most are read,
// not written. `bench_mpi all_reduce --from 64 --to 16K` of 3 to 32 ranks on 32 cores, with TUTTI_ALGO=allreduce:oneshot and :twoshot: they
// take the same time at 16, 4, 1.6, 2 and 1.2 KiB of 3, 4, 8, 16 and 32 ranks.
constexpr double kForAllNs = 40;
constexpr double kForOneNs = 85;
constexpr double kMostlyRead = 1.6;
// And trees, rings and chains take twice as long there as two ranks that pass a value to and fro make believe (the same with
// TUTTI_ALGO=allreduce:tree).
constexpr double kThroughPipes = 2;

}  // namespace

// Where hosts differ in size, each rank counts as one.
Model::Model(const connect::Layout& layout, const Machine& machine)
    : layout_(layout),
      machine_(machine),
      profiles_(layout.ranks(), machine.spansHosts && layout.nodes() == 1 ? 1 : layout.ranks() / layout.nodes(), true) {}

Cost Model::estimate(const Algorithm& algorithm, const algo::Geometry& geometry, uint64_t bytes, Loans loans,
                     Passing passing) {
  const Profile& p = profiles_.get(algorithm, loans);
  const int32_t ranks = layout_.ranks();
  const double crowding = std::max(1.0, static_cast<double>(ranks) / machine_.cores);
  const double hopNs = crowding > 1 ? machine_.switchNs * crowding : machine_.hopNs;
  const double slices = std::max(1, geometry.slices);
  // Windows are in lockstep, with a bank to spare: a round costs part of a hop. Pipes go on while the next slices are on their way.
  const bool window = algorithm.traits.needs == algo::Needs::PeerMemory;
  const double further = (slices - 1) * (window ? hopNs / 2 * algorithm.traits.rounds : hopNs / 8);
  // The cores share the work, but no rank's part of it.
  const double worked = std::max(p.traffic / std::min(ranks, machine_.cores), p.busiest);
  // What is small stays in the caches of its core but for what others get: written once, read once.
  const bool isSmall = bytes <= kSmallBytes && crowding <= 1 && p.crossing > 0;
  const bool isShortSum = isSmall && ranks > 2 && algorithm.traits.collective == Collective::AllReduce;
  const bool isForAll = isShortSum && window && algorithm.traits.rounds == 1;
  const double share = isSmall ? std::min(worked, (isForAll ? kMostlyRead : 2) * p.crossing) : worked;
  const double pairNs = machine_.messageNs + (window || bytes > kSmallBytes ? 0 : machine_.pipeNs);
  const double messageNs = isForAll ? kForAllNs : isShortSum && window ? kForOneNs : pairNs;
  const bool isCopied = passing == Passing::ThroughCopies;
  const bool movesInCells = window && isCopied && !reduces(algorithm.traits.collective);
  const bool isAgain = movesInCells && bytes > kMovedBytes && ranks == 2 && crowding <= 1;
  const bool isBetween = passing != Passing::InPlace && !machine_.spansHosts;  // processes of one host
  const bool isApart = !window && isBetween && ranks > 2 && algorithm.traits.collective == Collective::AllToAll;
  const bool isPassedOn = !window && isBetween && ranks > 2 && !algorithm.traits.fansOut &&
                          algorithm.traits.collective == Collective::Broadcast;
  const double factor = isAgain ? kCellsAgain : isApart ? kPairsApart : isPassedOn ? kPassedOn : 1;
  const double traffic = factor * share * static_cast<double>(bytes) / machine_.bytesPerNs;
  const double messages = isApart ? 2.0 * (ranks - 1) : p.messages;
  if (machine_.spansHosts) {
    const double leaving = p.leaving * static_cast<double>(bytes) / machine_.farBytesPerNs;
    return {0, (p.farHops * machine_.farHopNs + p.hops * hopNs) / 1000, p.messages * messageNs * crowding / 1000,
            (slices - 1) * machine_.farHopNs / 8 / 1000, std::max(traffic, leaving) / 1000};
  }
  const double us = isShortSum && !window ? kThroughPipes / 1000 : 1.0 / 1000;
  return {0, (p.farHops + p.hops) * hopNs * us, messages * messageNs * crowding * us, further * us, traffic * us};
}

}  // namespace tutti::tune
