#include "comm/circle.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>

namespace tutti::comm {

using bootstrap::Membership;

namespace {

constexpr size_t kBits = 8;

}  // namespace

Circle Circle::of(const Membership& all, std::span<const int32_t> processes) {
  const auto hostOf = [&all](int32_t process) { return all.process(process).host; };
  Circle circle;
  circle.processes_.assign(processes.begin(), processes.end());
  std::ranges::sort(circle.processes_, [&](int32_t a, int32_t b) { return std::tuple(hostOf(a), a) < std::tuple(hostOf(b), b); });
  circle.processes_.erase(std::ranges::unique(circle.processes_).begin(), circle.processes_.end());
  for (size_t i = 0; i < circle.processes_.size(); ++i) {
    const int32_t host = hostOf(circle.processes_[i]);
    if (i > 0 && host == hostOf(circle.processes_[i - 1])) continue;
    if (host == all.ownHost) circle.place_ = static_cast<int32_t>(circle.begins_.size());
    circle.begins_.push_back(i);
  }
  circle.begins_.push_back(circle.processes_.size());
  return circle;
}

Circle Circle::ofAll(const Membership& all) {
  std::vector<int32_t> processes(all.processes.size());
  std::iota(processes.begin(), processes.end(), 0);
  return of(all, processes);
}

std::span<const int32_t> Circle::processesAt(int32_t place) const {
  const size_t begin = begins_[static_cast<size_t>(place)];
  return std::span(processes_).subspan(begin, begins_[static_cast<size_t>(place) + 1] - begin);
}

std::vector<int32_t> Circle::neighboursOf(int32_t place) const {
  std::vector<int32_t> places;
  for (int64_t step = 1; step < hosts(); step *= 2) places.push_back(static_cast<int32_t>((place + step) % hosts()));
  return places;
}

std::vector<int32_t> Circle::neighboursBefore(int32_t place) const {
  std::vector<int32_t> places;
  for (int64_t step = 1; step < hosts(); step *= 2) places.push_back(static_cast<int32_t>((place + hosts() - step) % hosts()));
  return places;
}

std::vector<std::byte> Circle::encode(const Membership& all) const {
  if (processes_.size() == all.processes.size()) return {};
  const auto [first, last] = std::ranges::minmax(processes_);
  std::vector<std::byte> bytes(sizeof first + static_cast<size_t>(last - first) / kBits + 1);
  std::memcpy(bytes.data(), &first, sizeof first);
  for (const int32_t process : processes_) {
    const auto bit = static_cast<size_t>(process - first);
    bytes[sizeof first + bit / kBits] |= std::byte{1} << (bit % kBits);
  }
  return bytes;
}

std::optional<Circle> Circle::decode(const Membership& all, std::span<const std::byte> bytes) {
  if (bytes.empty()) return ofAll(all);
  int32_t first = 0;
  if (bytes.size() < sizeof first || bytes.size() - sizeof first > all.processes.size() / kBits + 1) return std::nullopt;
  std::memcpy(&first, bytes.data(), sizeof first);
  const auto count = static_cast<int32_t>(all.processes.size());
  if (first < 0 || first >= count) return std::nullopt;
  std::vector<int32_t> processes;
  for (size_t bit = 0; bit < (bytes.size() - sizeof first) * kBits; ++bit) {
    if ((bytes[sizeof first + bit / kBits] & std::byte{1} << (bit % kBits)) == std::byte{0}) continue;
    if (bit >= static_cast<size_t>(count - first)) return std::nullopt;
    processes.push_back(first + static_cast<int32_t>(bit));
  }
  if (!std::ranges::binary_search(processes, all.ownProcess)) return std::nullopt;
  return of(all, processes);
}

}  // namespace tutti::comm
