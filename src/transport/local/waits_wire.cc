#include "transport/local/waits_wire.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace tutti::transport::local {
namespace {

/// One traversal for both directions: `Writer` appends, `Reader` takes away, and each type says once what it consists of.
class Writer {
 public:
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void value(const T& v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void text(const std::string& s) {
    value(static_cast<uint32_t>(s.size()));
    bytes_.append(s);
  }
  template <class T, class Each>
  void list(const std::vector<T>& items, Each&& each) {
    value(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(item);
  }
  template <class T, class Each>
  void maybe(const std::optional<T>& item, Each&& each) {
    value(static_cast<uint8_t>(item.has_value()));
    if (item) each(*item);
  }
  bool ok() const { return true; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const char> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void value(T& v) {
    if (bytes_.size() < sizeof v) return stop();
    std::memcpy(&v, bytes_.data(), sizeof v);
    bytes_ = bytes_.subspan(sizeof v);
  }
  void value(bool& v) {
    uint8_t byte = 0;
    value(byte);
    v = byte != 0;
  }
  void text(std::string& s) {
    uint32_t size = 0;
    value(size);
    if (size > bytes_.size()) return stop();
    s.assign(bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  template <class T, class Each>
  void list(std::vector<T>& items, Each&& each) {
    uint32_t count = 0;
    value(count);
    if (count > bytes_.size()) return stop();  // every item takes a byte at least
    items.clear();
    for (uint32_t i = 0; i < count && ok_; ++i) each(items.emplace_back());
  }
  template <class T, class Each>
  void maybe(std::optional<T>& item, Each&& each) {
    bool has = false;
    value(has);
    if (has) each(item.emplace());
  }
  bool ok() const { return ok_; }
  void stop() {
    ok_ = false;
    bytes_ = {};
  }

 private:
  std::span<const char> bytes_;
  bool ok_ = true;
};

/// Enumerations index tables of names: a value that none has makes the whole unreadable.
template <class Stream, class Enum>
void choice(Stream& s, Enum& value, int kinds) {
  s.value(value);
  if constexpr (std::is_same_v<Stream, Reader>)
    if (static_cast<int>(value) < 0 || static_cast<int>(value) >= kinds) s.stop();
}

constexpr int kAnyByte = 256;

template <class Stream, class CallT>
void call(Stream& s, CallT& c) {
  choice(s, c.collective, kNumCollectives + 2);  // with the two that are none: exec/host/signature.h
  choice(s, c.type, kAnyByte);
  s.value(c.opCode);
  s.value(c.root);
  s.value(c.count);
  s.value(c.sequence);
  s.value(c.receives);
}

template <class Stream, class RanksT>
void ranks(Stream& s, RanksT& list) {
  s.list(list, [&s](auto& rank) { s.value(rank.value); });
}

template <class Stream, class WaitT>
void wait(Stream& s, WaitT& w, bool withLanes) {
  s.list(w.chains, [&s, withLanes](auto& chain) {
    call(s, chain.call);
    s.value(chain.following);
    s.value(chain.slice);
    s.value(chain.slices);
    s.value(chain.step);
    s.value(chain.steps);
    s.text(chain.words);
    if (!withLanes) return;
    s.list(chain.lanes, [&s](auto& lane) {
      ranks(s, lane.awaits);
      ranks(s, lane.partners);
      s.value(lane.ownLane);
      s.value(lane.finished);
      s.value(lane.mayMove);
    });
  });
  s.value(w.begunCollectives);
  const auto number = [&s](auto& n) { s.value(n); };
  if (!withLanes) return;
  s.list(w.sent, number);
  s.list(w.received, number);
}

template <class Stream, class VerdictT>
void verdictBody(Stream& s, VerdictT& v) {
  choice(s, v.ending, 4);
  s.value(v.rank.value);
  s.value(v.waitedMs);
  s.maybe(v.call, [&s](auto& c) { call(s, c); });
  s.list(v.mismatch, [&s](auto& m) {
    s.value(m.rank.value);
    call(s, m.call);
  });
  ranks(s, v.arrived);
  ranks(s, v.missing);
  s.list(v.ranks, [&s](auto& report) {
    choice(s, report.state, 3);
    s.value(report.begunCollectives);
    wait(s, report.wait, false);
  });
  s.list(v.suspects, [&s](auto& suspected) {
    s.value(suspected.rank.value);
    s.text(suspected.way.host);
    s.text(suspected.way.link);
  });
}

}  // namespace

std::string encodeWait(const RankWait& w) {
  Writer writer;
  wait(writer, w, true);
  return writer.take();
}

std::optional<RankWait> decodeWait(std::span<const char> bytes) {
  Reader reader(bytes);
  RankWait w;
  wait(reader, w, true);
  return reader.ok() ? std::optional(std::move(w)) : std::nullopt;
}

bool isWaitAmong(int32_t ranks, const RankWait& w) {
  const auto isRank = [ranks](Rank r) { return r.value >= 0 && r.value < ranks; };
  const auto counts = [ranks](const std::vector<uint64_t>& all) { return all.empty() || all.size() == static_cast<size_t>(ranks); };
  const auto isLane = [&](const LaneWait& lane, size_t lanes) {
    return std::all_of(lane.awaits.begin(), lane.awaits.end(), isRank) && std::all_of(lane.partners.begin(), lane.partners.end(), isRank) &&
           lane.ownLane < static_cast<int32_t>(lanes);
  };
  const auto isChain = [&](const ChainWait& chain) {
    return isRank(Rank(chain.call.root)) && std::all_of(chain.lanes.begin(), chain.lanes.end(),
                                                        [&](const LaneWait& lane) { return isLane(lane, chain.lanes.size()); });
  };
  return counts(w.sent) && counts(w.received) && std::all_of(w.chains.begin(), w.chains.end(), isChain);
}

std::string encodeVerdict(const Verdict& v) {
  Writer writer;
  writer.value(v.cause.code());
  writer.text(v.cause.text());
  verdictBody(writer, v);
  return writer.take();
}

std::optional<Verdict> decodeVerdict(std::span<const char> bytes) {
  Reader reader(bytes);
  Code code = Code::Ok;
  std::string text;
  choice(reader, code, 8);
  reader.text(text);
  Verdict v;
  v.cause = Status(code, std::move(text));
  verdictBody(reader, v);
  return reader.ok() ? std::optional(std::move(v)) : std::nullopt;
}

}  // namespace tutti::transport::local
