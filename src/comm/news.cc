#include "comm/news.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "transport/local/waits_wire.h"

namespace tutti::comm {
namespace {

using Bytes = std::vector<std::byte>;

// What messages begin with. Lists and words lie behind it, in the order of the fields that count them.
struct DepartureHead {
  uint64_t calls;
  int32_t rank;
  int32_t unused;
};
struct FailureHead {
  int32_t code;
  uint32_t blamed;
  uint32_t textBytes;
};
struct StandingHead {
  int32_t rank;
  uint32_t calls;
  uint64_t episode;
  uint32_t waits;
  uint32_t wantsAnswer;
  uint32_t hasGivenUp;
  uint32_t unused;
};
struct CallWords {
  int32_t collective;
  int32_t type;
  int32_t opCode;
  int32_t root;
  uint64_t count;
  uint64_t sequence;
};
struct ComingHead {
  uint64_t number;
  int32_t mayBeBroken;
  uint32_t members;
  int32_t ranks;
  int32_t place;
  int32_t code;
  int32_t unused;
  Arrival arrival;
};
static_assert(std::is_trivially_copyable_v<Arrival>);

template <class T>
void append(Bytes& bytes, const T* items, size_t count) {
  const size_t at = bytes.size();
  bytes.resize(at + count * sizeof(T));
  if (count > 0) std::memcpy(bytes.data() + at, items, count * sizeof(T));
}

/// Takes what it reads off the front. False: there is less.
template <class T>
bool take(std::span<const std::byte>& bytes, T* items, size_t count) {
  if (count > bytes.size() / sizeof(T)) return false;
  if (count > 0) std::memcpy(items, bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return true;
}

std::string_view wordsOf(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
bool isCode(int32_t code) { return code >= static_cast<int32_t>(Code::Ok) && code <= static_cast<int32_t>(Code::InProgress); }
bool isRank(int32_t rank, int32_t ranks) { return rank >= 0 && rank < ranks; }

/// Names of ranks in it are used to find them.
bool isVerdictAmong(int32_t ranks, const transport::local::Verdict& v) {
  const auto isOne = [ranks](Rank rank) { return isRank(rank.value, ranks); };
  std::set<int32_t> counted;
  const auto isOnce = [&](Rank rank) { return v.call && isOne(rank) && counted.insert(rank.value).second; };
  return isOne(v.rank) && v.ranks.size() == static_cast<size_t>(ranks) && std::all_of(v.arrived.begin(), v.arrived.end(), isOnce) &&
         std::all_of(v.missing.begin(), v.missing.end(), isOnce) &&
         std::all_of(v.mismatch.begin(), v.mismatch.end(), [&](const RankCall& m) { return isOne(m.rank); }) &&
         std::all_of(v.suspects.begin(), v.suspects.end(), [&](const auto& s) { return isOne(s.rank); }) &&
         std::all_of(v.ranks.begin(), v.ranks.end(), [&](const auto& r) { return transport::local::isWaitAmong(ranks, r.wait); });
}

std::optional<Call> callOf(const CallWords& words) {
  const bool isOne = words.collective >= 0 && words.collective < kNumCollectives + 2 && words.type >= 0 && words.type < kNumDataTypes &&
                     words.opCode >= 0 && words.opCode < 256 && words.sequence < std::numeric_limits<uint64_t>::max();
  if (!isOne) return std::nullopt;
  Call call;
  call.collective = static_cast<Collective>(words.collective);
  call.type = static_cast<DataType>(words.type);
  call.opCode = static_cast<uint8_t>(words.opCode);
  call.root = words.root;
  call.count = words.count;
  call.sequence = words.sequence;
  return call.isMessage() ? std::nullopt : std::optional(call);
}

}  // namespace

Bytes encodeDeparture(const Departure& departure) {
  const DepartureHead head{departure.calls, departure.rank.value, 0};
  Bytes bytes;
  append(bytes, &head, 1);
  return bytes;
}

std::optional<Departure> decodeDeparture(std::span<const std::byte> bytes, int32_t ranks) {
  DepartureHead head{};
  if (!take(bytes, &head, 1) || !bytes.empty() || !isRank(head.rank, ranks)) return std::nullopt;
  return Departure{Rank(head.rank), head.calls};
}

Bytes encodeFailure(const Status& cause, const std::vector<int32_t>& blamed, const std::string& verdict) {
  const size_t named = std::min(blamed.size(), Failure::kMostBlamed);
  const std::string text = cause.text();
  const FailureHead head{static_cast<int32_t>(cause.code()), static_cast<uint32_t>(named), static_cast<uint32_t>(text.size())};
  Bytes bytes;
  append(bytes, &head, 1);
  append(bytes, blamed.data(), named);
  append(bytes, text.data(), text.size());
  append(bytes, verdict.data(), verdict.size());
  return bytes;
}

std::optional<Failure> decodeFailure(std::span<const std::byte> bytes, int32_t ranks) {
  FailureHead head{};
  if (!take(bytes, &head, 1) || !isCode(head.code) || head.code == static_cast<int32_t>(Code::Ok) || head.blamed > Failure::kMostBlamed)
    return std::nullopt;
  Failure failure;
  failure.blamed.resize(head.blamed);
  if (!take(bytes, failure.blamed.data(), head.blamed) || head.textBytes > bytes.size()) return std::nullopt;
  if (!std::all_of(failure.blamed.begin(), failure.blamed.end(), [ranks](int32_t r) { return isRank(r, ranks); })) return std::nullopt;
  failure.cause = Status(static_cast<Code>(head.code), std::string(wordsOf(bytes.first(head.textBytes))));
  failure.verdict = transport::local::decodeVerdict(wordsOf(bytes.subspan(head.textBytes)));
  if (failure.verdict && !isVerdictAmong(ranks, *failure.verdict)) failure.verdict.reset();
  return failure;
}

Bytes encodeStanding(const Standing& standing) {
  const size_t calls = std::min<size_t>(standing.calls.size(), Standing::kMostCalls);
  const StandingHead head{standing.rank.value, static_cast<uint32_t>(calls), standing.episode, standing.waits ? 1u : 0u,
                          standing.wantsAnswer ? 1u : 0u, standing.hasGivenUp ? 1u : 0u, 0};
  Bytes bytes;
  append(bytes, &head, 1);
  for (size_t c = standing.calls.size() - calls; c < standing.calls.size(); ++c) {
    const Call& call = standing.calls[c];
    const CallWords words{
        static_cast<int32_t>(call.collective), static_cast<int32_t>(call.type), call.opCode, call.root, call.count, call.sequence};
    append(bytes, &words, 1);
  }
  if (standing.wait) {
    const std::string words = transport::local::encodeWait(*standing.wait);
    append(bytes, words.data(), words.size());
  }
  return bytes;
}

std::optional<Standing> decodeStanding(std::span<const std::byte> bytes, int32_t ranks) {
  StandingHead head{};
  if (!take(bytes, &head, 1) || !isRank(head.rank, ranks) || head.calls > Standing::kMostCalls) return std::nullopt;
  Standing standing;
  standing.rank = Rank(head.rank);
  standing.episode = head.episode;
  standing.waits = head.waits != 0;
  standing.wantsAnswer = head.wantsAnswer != 0;
  standing.hasGivenUp = head.hasGivenUp != 0;
  for (uint32_t c = 0; c < head.calls; ++c) {
    CallWords words{};
    if (!take(bytes, &words, 1)) return std::nullopt;
    if (const auto call = callOf(words)) standing.calls.push_back(*call);
  }
  if (!standing.waits) return standing;
  standing.wait = transport::local::decodeWait(wordsOf(bytes));
  if (standing.wait && !transport::local::isWaitAmong(ranks, *standing.wait)) return std::nullopt;
  return standing;
}

Bytes encodeComing(const Coming& coming) {
  ComingHead head{};
  head.number = coming.key.number;
  head.mayBeBroken = coming.key.mayBeBroken ? 1 : 0;
  head.members = static_cast<uint32_t>(coming.key.members.size());
  head.ranks = coming.ranks;
  head.place = coming.place.value;
  head.code = static_cast<int32_t>(coming.ended.code());
  head.arrival = coming.arrival;
  const std::string text = coming.ended.text();
  Bytes bytes;
  append(bytes, &head, 1);
  append(bytes, coming.key.members.data(), coming.key.members.size());
  append(bytes, text.data(), text.size());
  return bytes;
}

std::optional<Coming> decodeComing(std::span<const std::byte> bytes, int32_t ranks) {
  ComingHead head{};
  if (!take(bytes, &head, 1) || !isCode(head.code) || head.ranks < 1 || head.ranks > ranks || !isRank(head.place, head.ranks) ||
      (head.members != 0 && head.members != static_cast<uint32_t>(head.ranks)) || (head.members == 0 && head.ranks != ranks) ||
      !isPossible(head.arrival))
    return std::nullopt;  // all ranks of the parent have a place, or those that are named
  Coming coming;
  coming.key = {head.mayBeBroken != 0, std::vector<int32_t>(head.members), head.number};
  if (!take(bytes, coming.key.members.data(), head.members)) return std::nullopt;
  if (!std::all_of(coming.key.members.begin(), coming.key.members.end(), [ranks](int32_t r) { return isRank(r, ranks); }))
    return std::nullopt;
  coming.ranks = head.ranks;
  coming.place = Rank(head.place);
  coming.arrival = head.arrival;
  if (head.code != static_cast<int32_t>(Code::Ok)) coming.ended = Status(static_cast<Code>(head.code), std::string(wordsOf(bytes)));
  return coming;
}

}  // namespace tutti::comm
