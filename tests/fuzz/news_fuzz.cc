// What processes of a communicator tell each other about its ranks (src/comm/news.h), and the headers of messages between hosts
// (src/progress/wire.h). The first byte chooses which, the second how many ranks there are.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "comm/news.h"
#include "fuzz/target.h"
#include "progress/wire.h"
#include "transport/local/waits_wire.h"

namespace tutti::fuzz {
namespace {

using namespace comm;
using Input = std::span<const std::byte>;

bool isRank(Rank rank, int32_t ranks) { return rank.value >= 0 && rank.value < ranks; }

void readDeparture(Input bytes, int32_t ranks) {
  const auto departure = decodeDeparture(bytes, ranks);
  if (!departure) return;
  promise(isRank(departure->rank, ranks), "who departs is there");
  const auto again = decodeDeparture(encodeDeparture(*departure), ranks);
  promise(again && again->rank == departure->rank && again->calls == departure->calls, "a departure comes back");
}

void readFailure(Input bytes, int32_t ranks) {
  const auto failure = decodeFailure(bytes, ranks);
  if (!failure) return;
  promise(!failure->cause.ok() && failure->blamed.size() <= Failure::kMostBlamed, "a failure is one");
  for (const int32_t rank : failure->blamed) promise(isRank(Rank(rank), ranks), "who is blamed is there");
  const std::string verdict = failure->verdict ? transport::local::encodeVerdict(*failure->verdict) : std::string();
  if (failure->verdict) promise(failure->verdict->ranks.size() == static_cast<size_t>(ranks), "a verdict has a report for each rank");
  const auto again = decodeFailure(encodeFailure(failure->cause, failure->blamed, verdict), ranks);
  promise(again && again->cause.text() == failure->cause.text() && again->cause.code() == failure->cause.code() &&
              again->blamed == failure->blamed && again->verdict.has_value() == failure->verdict.has_value(),
          "a failure comes back");
}

void readStanding(Input bytes, int32_t ranks) {
  const auto standing = decodeStanding(bytes, ranks);
  if (!standing) return;
  promise(isRank(standing->rank, ranks) && standing->calls.size() <= Standing::kMostCalls, "who stands is there");
  if (standing->wait) promise(transport::local::isWaitAmong(ranks, *standing->wait), "whom it waits for is there");
  const auto again = decodeStanding(encodeStanding(*standing), ranks);
  promise(again && again->rank == standing->rank && again->calls == standing->calls && again->episode == standing->episode &&
              again->waits == standing->waits && again->wantsAnswer == standing->wantsAnswer &&
              again->hasGivenUp == standing->hasGivenUp &&
              again->wait.has_value() == standing->wait.has_value(),
          "a standing comes back");
}

void readComing(Input bytes, int32_t ranks) {
  const auto coming = decodeComing(bytes, ranks);
  if (!coming) return;
  promise(coming->ranks >= 1 && coming->ranks <= ranks && isRank(coming->place, coming->ranks), "who comes has a place");
  promise(coming->key.members.empty() ? coming->ranks == ranks : coming->key.members.size() == static_cast<size_t>(coming->ranks),
          "there is a place for each member");
  for (const int32_t member : coming->key.members) promise(isRank(Rank(member), ranks), "members are there");
  const auto again = decodeComing(encodeComing(*coming), ranks);
  promise(again && again->key == coming->key && again->place == coming->place && again->ranks == coming->ranks &&
              again->ended.code() == coming->ended.code() && again->ended.text() == coming->ended.text(),
          "a coming comes back");
}

/// A header that is taken has room for its payload, and pieces that end.
void readHeader(Input bytes) {
  progress::Header header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  if (!progress::isHeaderOf(header, 1, kMostBytes, progress::kMostPieceBytes)) return;
  promise(header.number == 1 && header.bytes <= kMostBytes, "a header is that of the message that is due");
  promise(header.pieceBytes == 0 ? header.bytes <= sizeof header.payload : header.bytes > 0, "a payload lies in the header or in pieces");
}

Standing sampleStanding() {
  Standing standing{Rank(1), 7, true, true, {}, transport::local::RankWait()};
  standing.calls.push_back({Collective::AllGather, DataType::F32, 0, 0, 1000, 41, false});
  standing.calls.push_back({Collective::AllReduce, DataType::BF16, 5, 0, 3, 42, false});
  transport::local::ChainWait& chain = standing.wait->chains.emplace_back();
  chain.call = standing.calls.back();
  chain.words = "waits for rank 2";
  chain.lanes.emplace_back().awaits = {Rank(2)};
  standing.wait->sent = {1, 0, 2, 0};
  return standing;
}

}  // namespace

void run(std::string_view input) {
  const Input bytes = std::as_bytes(std::span(input));
  if (bytes.size() < 2) return;
  const int32_t ranks = 1 + std::to_integer<int32_t>(bytes[1]) % 16;
  const Input rest = bytes.subspan(2);
  switch (std::to_integer<unsigned>(bytes.front()) % 5) {
    case 0: return readDeparture(rest, ranks);
    case 1: return readFailure(rest, ranks);
    case 2: return readStanding(rest, ranks);
    case 3: return readComing(rest, ranks);
    default: return readHeader(rest);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add = [&](char which, Input bytes) {
    constexpr char kFourRanks = 3;
    all.push_back(std::string{which, kFourRanks} + std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  };
  add(0, encodeDeparture({Rank(3), 12}));
  transport::local::Verdict verdict;
  verdict.cause = error(Code::RemoteError, "rank 3 is gone");
  verdict.missing = {Rank(3)};
  verdict.ranks.resize(4);
  verdict.ranks[2] = {transport::local::RankReport::State::Waiting, 5, {}};
  add(1, encodeFailure(error(Code::RemoteError, "rank 3 is gone"), {3}, transport::local::encodeVerdict(verdict)));
  add(1, encodeFailure(error(Code::SystemError, "?"), {}, ""));
  add(2, encodeStanding(sampleStanding()));
  Standing idle{Rank(0), 9, false, false, {}, {}};
  add(2, encodeStanding(idle));
  add(3, encodeComing({{false, {}, 5}, 4, Rank(2), {}, {}}));
  add(3, encodeComing({{true, {0, 1, 3}, 6}, 3, Rank(2), {}, error(Code::InvalidUsage, "lists differ")}));
  progress::Header header;
  header.number = 1;
  header.bytes = 20;
  add(4, std::as_bytes(std::span(&header, 1)));
  header.bytes = 100'000;
  header.pieceBytes = 4096;
  add(4, std::as_bytes(std::span(&header, 1)));
  return all;
}

}  // namespace tutti::fuzz
