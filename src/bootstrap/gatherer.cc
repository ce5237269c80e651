#include "bootstrap/gatherer.h"

#include <algorithm>
#include <numeric>

#include "bootstrap/tree.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

Gatherer::Gatherer(const Membership& membership, uint64_t number, Send send)
    : membership_(membership),
      number_(number),
      send_(std::move(send)),
      own_(membership.ownProcess),
      host_(membership.ownHost),
      place_(placeInHost(membership, own_)),
      hosts_(static_cast<int32_t>(membership.hosts.size())),
      parts_(membership.processes.size()),
      has_(membership.processes.size()) {
  const std::vector<int32_t>& local = membership.host(host_).processes;
  if (place_ > 0) parent_ = local[static_cast<size_t>(binomialParent(place_))];
  for (const int32_t child : binomialChildren(place_, static_cast<int32_t>(local.size())))
    children_.push_back(local[static_cast<size_t>(child)]);
  openChildren_.insert(children_.begin(), children_.end());
}

void Gatherer::start(std::span<const std::byte> own) {
  parts_[static_cast<size_t>(own_)].assign(own.begin(), own.end());
  has_[static_cast<size_t>(own_)] = true;
  ++have_;
  isStarted_ = true;
  advance();
}

bool Gatherer::expects(int32_t process, Phase phase, uint8_t round) const {
  switch (phase) {
    case Phase::Up: return openChildren_.count(process) != 0;
    case Phase::Down: return process == parent_ && !cameDown_;
    case Phase::Across:
      return place_ == 0 && round < 31 && (int64_t{1} << round) < hosts_ && cameAcross_.count(round) == 0 &&
             process == leaderOf(static_cast<int32_t>((host_ + (int64_t{1} << round)) % hosts_));
  }
  return false;
}

bool Gatherer::take(int32_t process, std::span<const std::byte> message) {
  Reader reader(message);
  const auto phase = reader.number<uint8_t>();
  const auto round = reader.number<uint8_t>();
  if (isComplete_ || phase > static_cast<uint8_t>(Phase::Down) || !expects(process, static_cast<Phase>(phase), round)) return false;
  const std::vector<int32_t> expected = partsFrom(process, static_cast<Phase>(phase), round);
  std::vector<std::pair<int32_t, std::span<const std::byte>>> parts(reader.count(8, expected.size()));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = {reader.number<int32_t>(), reader.blob()};
    if (parts[i].first != expected[i]) reader.fail();
  }
  if (!reader.atEnd() || parts.size() != expected.size()) return false;
  for (const auto& [of, bytes] : parts) {
    const auto index = static_cast<size_t>(of);
    if (has_[index]) continue;
    has_[index] = true;
    ++have_;
    parts_[index].assign(bytes.begin(), bytes.end());
  }
  if (phase == static_cast<uint8_t>(Phase::Up)) openChildren_.erase(process);
  if (phase == static_cast<uint8_t>(Phase::Across)) cameAcross_.insert(round);
  if (phase == static_cast<uint8_t>(Phase::Down)) cameDown_ = true;
  advance();
  return true;
}

void Gatherer::advance() {
  if (!isStarted_ || isComplete_ || !openChildren_.empty()) return;
  if (place_ == 0) {
    advanceLeader();
  } else if (!hasSentUp_) {
    hasSentUp_ = true;
    sendParts(parent_, Phase::Up, 0);
  }
  const bool isThere = place_ == 0 ? (int64_t{1} << round_) >= hosts_ : cameDown_;
  if (!isThere || have_ != has_.size()) return;
  for (const int32_t child : children_) sendParts(child, Phase::Down, 0);
  isComplete_ = true;
}

void Gatherer::advanceLeader() {
  while ((int64_t{1} << round_) < hosts_) {
    const int32_t reach = 1 << round_;
    if (!hasSentRound_) {
      hasSentRound_ = true;
      sendParts(leaderOf((host_ - reach + hosts_) % hosts_), Phase::Across, static_cast<uint8_t>(round_));
    }
    if (cameAcross_.count(round_) == 0) return;
    ++round_;
    hasSentRound_ = false;
  }
}

/// The processes of `count` hosts from `host` on, around the circle.
std::vector<int32_t> Gatherer::hostsFrom(int32_t host, int32_t count) const {
  std::vector<int32_t> all;
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<int32_t>& local = membership_.host((host + i) % hosts_).processes;
    all.insert(all.end(), local.begin(), local.end());
  }
  return all;
}

/// Up: its part of the host's tree. Across: of as many hosts as it has after so many rounds, and the other side lacks. Down: all.
std::vector<int32_t> Gatherer::partsFrom(int32_t process, Phase phase, uint8_t round) const {
  const int32_t host = membership_.process(process).host;
  if (phase == Phase::Across) return hostsFrom(host, std::min(1 << round, hosts_ - (1 << round)));
  if (phase == Phase::Down) {
    std::vector<int32_t> all(has_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const std::vector<int32_t>& local = membership_.host(host).processes;
  const int32_t place = placeInHost(membership_, process);
  const int32_t end = std::min(place + (place & -place), static_cast<int32_t>(local.size()));
  return {local.begin() + place, local.begin() + end};
}

std::vector<int32_t> Gatherer::missing() const {
  std::vector<int32_t> all;
  for (size_t i = 0; i < has_.size(); ++i) {
    if (!has_[i]) all.push_back(static_cast<int32_t>(i));
  }
  return all;
}

std::vector<int32_t> Gatherer::waitsFor() const {
  if (!isStarted_ || isComplete_) return {};
  if (!openChildren_.empty()) return {openChildren_.begin(), openChildren_.end()};
  if (place_ > 0) return {parent_};
  return {leaderOf(static_cast<int32_t>((host_ + (int64_t{1} << round_)) % hosts_))};
}

bool Gatherer::needs(int32_t process) const {
  if (isComplete_) return false;
  if (openChildren_.count(process) != 0 || (process == parent_ && !cameDown_)) return true;
  for (int32_t round = 0; place_ == 0 && (int64_t{1} << round) < hosts_; ++round) {
    if (cameAcross_.count(round) == 0 && process == leaderOf(static_cast<int32_t>((host_ + (int64_t{1} << round)) % hosts_))) return true;
  }
  return false;
}

void Gatherer::sendParts(int32_t process, Phase phase, uint8_t round) {
  const std::vector<int32_t> of = partsFrom(own_, phase, round);
  Writer writer;
  writer.number(number_);
  writer.number(static_cast<uint8_t>(phase));
  writer.number(round);
  writer.number(static_cast<uint32_t>(of.size()));
  for (const int32_t part : of) {
    writer.number(part);
    writer.blob(parts_[static_cast<size_t>(part)]);
  }
  send_(process, std::move(writer).take());
}

}  // namespace tutti::bootstrap
