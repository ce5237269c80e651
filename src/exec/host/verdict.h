// The verdict of a communicator: which wait gave up, why, and where every rank stood. In words for the log, as JSON for programs.
//
// Kept in transport::local::Waits, one for each communicator. Any thread.
// 1. The first wait that gives up concludes; the log says it once. Those that end because of it add where they stood.
#pragma once

#include <string>

#include "transport/local/hub.h"

namespace tutti::exec::host {

/// Why a wait ended without what it waited for.
struct Outcome {
  transport::local::Ending ending = transport::local::Ending::Aborted;
  Status cause;
  std::vector<RankCall> mismatch;  ///< the calls that do not match, if that is the cause
  Rank come{-1};                   ///< who is known to have come to the message that was waited for, though it told of no wait; -1: nobody
  bool isOfGraph = false;          ///< or may be: who has come to its call cannot be counted, for it comes with every launch of the graph
  Rank awaited{-1};                ///< of a kernel: for whom it waited, who is suspected if nobody else is; -1: not known
};

/// Says that a wait of `rank` ended so after `waitedMs`; `own` is where it stood. To be called before the other ranks are told.
/// Without a wait in `own`, it is for an error that came while `rank` waited for nothing, and counts only while nobody else has spoken.
/// Returns "; suspects rank 2 on …": those that the verdict, whoever was first, suspects and the cause does not name; empty: nobody.
std::string conclude(transport::local::Hub& hub, Rank rank, const Outcome& outcome, const transport::local::RankWait& own,
                     int64_t waitedMs);

/// The communicator has failed, and a rank of another host stood there; null: in no wait, as far as its board says. For a verdict that was
/// made before that was known.
void addReport(transport::local::Hub& hub, Rank rank, const transport::local::RankWait* wait);
/// The verdict of another host, with a report for each rank, where there is none here; what is known here of ranks is added.
void adoptVerdict(transport::local::Hub& hub, transport::local::Verdict verdict);

/// "rank 1 gave up after 200 ms in AllReduce #3 …; arrived: 0, 1; missing: 2; rank 2 is in no wait …".
std::string describeVerdict(const transport::local::Verdict& verdict);
/// One JSON object; see tuttiCommGetVerdict.
std::string verdictJson(const transport::local::Verdict& verdict);
/// The communicator's verdict as JSON; "null" while no wait has given up.
std::string verdictJson(transport::local::Hub& hub);

}  // namespace tutti::exec::host
