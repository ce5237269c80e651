#include "exec/host/verdict.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"
#include "exec/host/suspects.h"
#include "observe/log.h"

namespace tutti::exec::host {
namespace {

using transport::local::ChainWait;
using transport::local::Ending;
using transport::local::Hub;
using transport::local::RankReport;
using transport::local::RankWait;
using transport::local::Suspected;
using transport::local::Verdict;
using transport::local::Waits;

constexpr std::array<std::string_view, 4> kEndings = {"mismatch", "deadline", "departed", "aborted"};
constexpr std::array<std::string_view, 3> kStates = {"elsewhere", "waiting", "departed"};

std::string_view nameOf(Ending ending) { return kEndings.at(static_cast<size_t>(ending)); }
std::string_view nameOf(RankReport::State state) { return kStates.at(static_cast<size_t>(state)); }

RankReport reportOf(Hub& hub, const Waits::Entry& entry, Rank rank) {
  RankReport report;
  report.begunCollectives = hub.board(rank).begun();
  if (entry.waits) {
    report.state = RankReport::State::Waiting;
    report.wait = entry.wait;
  } else if (const auto calls = hub.departed(rank)) {
    report.state = RankReport::State::Departed;
    report.begunCollectives = *calls;
  }
  return report;
}

/// Whether `rank` has come to `call`, in which the verdict's rank waited.
bool hasArrived(const Verdict& verdict, const Call& call, const RankReport& report, Rank rank) {
  if (rank == verdict.rank) return true;
  if (!call.isMessage()) return report.begunCollectives > call.sequence;
  return report.wait.begunMessages(verdict.rank, !call.receives) > call.sequence;
}

void countArrivals(Verdict& verdict, Rank come = Rank(-1)) {
  if (!verdict.call) return;
  const Call call = *verdict.call;
  for (size_t r = 0; r < verdict.ranks.size(); ++r) {
    const Rank rank(static_cast<int32_t>(r));
    if (call.isMessage() && rank != verdict.rank && rank != Rank(call.root)) continue;
    (rank == come || hasArrived(verdict, call, verdict.ranks[r], rank) ? verdict.arrived : verdict.missing).push_back(rank);
  }
}

/// The verdict was of nobody's wait: `rank` is the first that waited for what did not come.
void adopt(Verdict& verdict, Rank rank, const Call& call, int64_t waitedMs) {
  verdict.rank = rank;
  verdict.call = call;
  verdict.waitedMs = waitedMs;
  countArrivals(verdict);
}

/// The same, of a rank of another host that has told of its wait: it says so once, and may have done so before there was a verdict.
void adoptFromElsewhere(Hub& hub, Verdict& verdict) {
  for (size_t r = 0; r < verdict.ranks.size() && !verdict.call && verdict.ending == Ending::Aborted; ++r) {
    const Rank rank(static_cast<int32_t>(r));
    const RankReport& report = verdict.ranks[r];
    if (!hub.isOnHost(rank) && !report.wait.chains.empty()) adopt(verdict, rank, report.wait.chains.front().call, 0);
  }
}

std::string listOf(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += format("{}{}", text.empty() ? "" : ",", rank.value);
  return text;
}

/// The same for people: not all of a thousand.
std::string describeList(std::vector<Rank> ranks) {
  constexpr size_t kMost = 32;
  if (ranks.empty()) return "none";
  if (ranks.size() <= kMost) return listOf(ranks);
  const size_t more = ranks.size() - kMost;
  ranks.resize(kMost);
  return format("{} and {} more", listOf(ranks), more);
}

/// Whether the text speaks of that rank.
bool names(std::string_view text, Rank rank) {
  const std::string name = format("rank {}", rank.value);
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::string_view rest = text.substr(at + name.size());
    if (rest.empty() || rest.front() < '0' || rest.front() > '9') return true;
  }
  return false;
}

/// "; suspects rank 2 on node7, over Socket 10.0.0.3:4711".
std::string describeSuspects(const std::vector<Suspected>& suspects) {
  std::string text;
  for (const Suspected& suspected : suspects)
    text += format("{}rank {} on {}, over {}", text.empty() ? "; suspects " : " and ", suspected.rank.value, suspected.way.host,
                   suspected.way.link);
  return text;
}

std::string quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += format("\\u{:04x}", static_cast<int>(c));
    } else {
      json += c;
    }
  }
  return json + '"';
}

std::string callFields(const Call& call) {
  if (call.collective == kSplitCall) return format(R"("operation":"CommSplit","sequence":{})", call.sequence);
  if (call.collective == kShrinkCall) return R"("operation":"CommShrink")";
  const std::string_view operation = !call.isMessage() ? name(call.collective) : call.receives ? "Recv" : "Send";
  std::string json = format(R"("operation":"{}","sequence":{},"count":{},"type":"{}")", operation, call.sequence, call.count,
                            static_cast<int>(call.type) < kNumDataTypes ? name(call.type) : "?");
  if (reduces(call.collective)) json += format(R"(,"op":"{}")", operationName(call.opCode));
  if (isOnWindows(call)) json += R"(,"onWindows":true)";
  if (hasRoot(call.collective)) json += format(R"(,"root":{})", call.root);
  if (call.isMessage()) json += format(R"(,"peer":{})", call.root);
  return json;
}

/// Steps that the lane which waits has done: whole slices, and those of the one it is in.
uint64_t finishedSteps(const ChainWait& chain) { return static_cast<uint64_t>(chain.slice) * chain.steps + chain.step; }

std::string chainJson(const ChainWait& chain) {
  return format(R"({{{},"slice":{},"slices":{},"step":{},"steps":{},"finishedSteps":{},"waits":{},"following":{}}})",
                callFields(chain.call), chain.slice, chain.slices, chain.step, chain.steps, finishedSteps(chain), quoted(chain.words),
                chain.following);
}

/// Calls that the rank has come to but not ended are in its chains.
uint64_t finishedCollectives(const RankReport& report) {
  const bool inOne =
      std::any_of(report.wait.chains.begin(), report.wait.chains.end(), [](const ChainWait& c) { return !c.call.isMessage(); });
  return report.begunCollectives - (inOne && report.begunCollectives > 0 ? 1 : 0);
}

std::string reportJson(const RankReport& report, size_t rank) {
  std::string json = format(R"({{"rank":{},"state":"{}","begun":{},"finished":{},"in":[)", rank, nameOf(report.state),
                            report.begunCollectives, finishedCollectives(report));
  for (const ChainWait& chain : report.wait.chains) {
    if (json.back() != '[') json += ',';
    json += chainJson(chain);
  }
  return json + "]}";
}

std::string reportWords(const RankReport& report, size_t rank) {
  std::string text = format("; rank {} ", rank);
  if (report.state == RankReport::State::Departed) return text + "has destroyed its communicator";
  if (report.wait.chains.empty()) return text + format("is in no wait, after {} collective calls", report.begunCollectives);
  text += format("has finished {} collective calls and is in ", finishedCollectives(report));
  for (const ChainWait& chain : report.wait.chains) {
    if (&chain != &report.wait.chains.front()) text += " and ";
    text += format("{} after {} steps", describeCall(chain.call), finishedSteps(chain));
    if (!chain.words.empty()) text += ": it " + chain.words;
  }
  return text;
}

}  // namespace

std::string describeVerdict(const Verdict& verdict) {
  constexpr size_t kMostRanks = 16;
  std::string text = format("verdict ({}): rank {} gave up after {} ms", nameOf(verdict.ending), verdict.rank.value, verdict.waitedMs);
  if (verdict.call) text += format(" in {}", describeCall(*verdict.call));
  text += format(": {}", verdict.cause.text());
  if (!verdict.arrived.empty() || !verdict.missing.empty())
    text += format("; ranks that had come to this call: {}; not: {}", describeList(verdict.arrived), describeList(verdict.missing));
  text += describeSuspects(verdict.suspects);
  for (size_t r = 0; r < std::min(verdict.ranks.size(), kMostRanks); ++r) text += reportWords(verdict.ranks[r], r);
  if (verdict.ranks.size() > kMostRanks) text += format("; {} more ranks", verdict.ranks.size() - kMostRanks);
  return text;
}

std::string verdictJson(const Verdict& verdict) {
  std::string json = format(R"({{"kind":"{}","code":{},"text":{},"rank":{},"waitedMs":{})", nameOf(verdict.ending),
                            static_cast<int32_t>(verdict.cause.code()), quoted(verdict.cause.text()), verdict.rank.value, verdict.waitedMs);
  if (verdict.call)
    json += format(R"(,{},"arrived":[{}],"missing":[{}])", callFields(*verdict.call), listOf(verdict.arrived), listOf(verdict.missing));
  json += R"(,"suspects":[)";
  for (const Suspected& suspected : verdict.suspects)
    json += format(R"({}{{"rank":{},"host":{},"link":{}}})", json.back() == '[' ? "" : ",", suspected.rank.value,
                   quoted(suspected.way.host), quoted(suspected.way.link));
  json += R"(],"mismatch":[)";
  for (const RankCall& call : verdict.mismatch)
    json += format(R"({}{{"rank":{},{}}})", json.back() == '[' ? "" : ",", call.rank.value, callFields(call.call));
  json += R"(],"ranks":[)";
  for (size_t r = 0; r < verdict.ranks.size(); ++r) {
    if (r > 0) json += ',';
    json += reportJson(verdict.ranks[r], r);
  }
  return json + "]}";
}

std::string verdictJson(Hub& hub) {
  return hub.waits().look([](Waits::State& state) { return state.verdict ? verdictJson(*state.verdict) : std::string("null"); });
}

namespace {

using Ways = std::map<int32_t, transport::local::Way>;

/// What conclude() has done to the verdict, or which ways it needs for that: they are asked for without the lock.
struct Concluded {
  bool isFirst = false;
  std::vector<Rank> unknown;
};

std::vector<Rank> fillIn(std::vector<Suspected>& suspects, const Ways& ways) {
  std::vector<Rank> unknown;
  for (Suspected& suspected : suspects) {
    const auto known = ways.find(suspected.rank.value);
    if (known == ways.end()) {
      unknown.push_back(suspected.rank);
    } else {
      suspected.way = known->second;
    }
  }
  return unknown;
}

/// Whoever made the verdict may not have known how far the rank had come. Not of a deadline: it may have come since.
void moveIfArrived(Verdict& verdict, Rank rank) {
  const auto place = std::find(verdict.missing.begin(), verdict.missing.end(), rank);
  if (!verdict.call || verdict.ending == Ending::Deadline || place == verdict.missing.end()) return;
  if (!hasArrived(verdict, *verdict.call, verdict.ranks[static_cast<size_t>(rank.value)], rank)) return;
  verdict.missing.erase(place);
  verdict.arrived.insert(std::lower_bound(verdict.arrived.begin(), verdict.arrived.end(), rank), rank);
}

/// Adds where `rank` stood to the verdict that there is.
Concluded addLocked(Hub& hub, Waits::State& state, Rank rank, RankReport report, int64_t waitedMs, const Ways& ways) {
  if (!state.verdict || report.wait.chains.empty()) return {};
  const Call call = report.wait.chains.front().call;
  const auto self = static_cast<size_t>(rank.value);
  Verdict next = *state.verdict;
  next.ranks[self] = std::move(report);
  if (next.call) {
    moveIfArrived(next, rank);
  } else if (next.ending == Ending::Aborted) {
    for (size_t r = 0; r < state.ranks.size(); ++r)  // it was written before most came so far
      if (r != self && next.ranks[r].state == RankReport::State::Elsewhere)
        next.ranks[r] = reportOf(hub, state.ranks[r], Rank(static_cast<int32_t>(r)));
    adopt(next, rank, call, waitedMs);
    if (next.suspects.empty()) {
      next.suspects = suspectsOf(hub, state, next, next.ranks[self].wait);
      if (auto unknown = fillIn(next.suspects, ways); !unknown.empty()) return {false, std::move(unknown)};
    }
  }
  state.verdict = std::move(next);
  return {};
}

Concluded concludeLocked(Hub& hub, Waits::State& state, Rank rank, const Outcome& outcome, const RankWait& own, int64_t waitedMs,
                         const Ways& ways) {
  RankReport report{RankReport::State::Waiting, hub.board(rank).begun(), own};
  if (state.verdict) return addLocked(hub, state, rank, std::move(report), waitedMs, ways);
  Verdict verdict{outcome.ending, outcome.cause, rank, waitedMs, {}, outcome.mismatch, {}, {}, {}, {}};
  if (!own.chains.empty()) verdict.call = own.chains.front().call;
  for (const RankCall& call : outcome.mismatch)
    if (call.rank == rank) verdict.call = call.call;
  for (size_t r = 0; r < state.ranks.size(); ++r) verdict.ranks.push_back(reportOf(hub, state.ranks[r], Rank(static_cast<int32_t>(r))));
  if (!outcome.isOfGraph) {
    countArrivals(verdict, outcome.come);
    adoptFromElsewhere(hub, verdict);
    verdict.suspects = suspectsOf(hub, state, verdict, own);
  }
  if (verdict.suspects.empty() && outcome.awaited.value >= 0) verdict.suspects.push_back({outcome.awaited, {}});
  if (auto unknown = fillIn(verdict.suspects, ways); !unknown.empty()) return {false, std::move(unknown)};
  if (!own.chains.empty()) verdict.ranks[static_cast<size_t>(rank.value)] = std::move(report);
  state.verdict = std::move(verdict);
  return {true, {}};
}

}  // namespace

namespace {

/// Runs body(state, ways), which changes nothing until it has the ways that it needs: nobody reads a verdict without them.
template <class Body>
bool withWays(Hub& hub, Body&& body) {
  Ways ways;
  for (;;) {
    const Concluded done = hub.waits().conclude([&](Waits::State& state) { return body(state, ways); });
    if (done.unknown.empty()) return done.isFirst;
    for (const Rank suspected : done.unknown) ways.emplace(suspected.value, hub.wayTo(suspected));
  }
}

}  // namespace

std::string conclude(Hub& hub, Rank rank, const Outcome& outcome, const RankWait& own, int64_t waitedMs) {
  const bool isFirst = withWays(
      hub, [&](Waits::State& state, const Ways& ways) { return concludeLocked(hub, state, rank, outcome, own, waitedMs, ways); });
  if (isFirst) observe::warn("{}", hub.waits().look([](const Waits::State& state) { return describeVerdict(*state.verdict); }));
  std::vector<Suspected> others =
      hub.waits().look([](const Waits::State& state) { return state.verdict ? state.verdict->suspects : std::vector<Suspected>(); });
  std::erase_if(others, [text = outcome.cause.text()](const Suspected& suspected) { return names(text, suspected.rank); });
  return describeSuspects(others);
}

void addReport(Hub& hub, Rank rank, const RankWait* wait) {
  if (!hub.waits().look([](const Waits::State& state) { return state.verdict.has_value(); })) return;
  (void)withWays(hub, [&](Waits::State& state, const Ways& ways) -> Concluded {
    RankReport& known = state.verdict->ranks[static_cast<size_t>(rank.value)];
    if (known.state == RankReport::State::Departed) return {};
    const uint64_t begun = std::max(known.begunCollectives, hub.board(rank).begun());
    if (wait != nullptr) return addLocked(hub, state, rank, {RankReport::State::Waiting, begun, *wait}, 0, ways);
    known.begunCollectives = begun;
    moveIfArrived(*state.verdict, rank);
    return {};
  });
}

void adoptVerdict(Hub& hub, Verdict verdict) {
  hub.waits().conclude([&](Waits::State& state) {
    if (state.verdict) return 0;
    for (size_t r = 0; r < state.ranks.size(); ++r) {
      const Rank rank(static_cast<int32_t>(r));
      if (verdict.ranks[r].state == RankReport::State::Elsewhere) {
        RankReport report = reportOf(hub, state.ranks[r], rank);
        report.begunCollectives = std::max(report.begunCollectives, verdict.ranks[r].begunCollectives);
        verdict.ranks[r] = std::move(report);
      }
      moveIfArrived(verdict, rank);
    }
    adoptFromElsewhere(hub, verdict);
    state.verdict = std::move(verdict);
    return 0;
  });
}

}  // namespace tutti::exec::host
