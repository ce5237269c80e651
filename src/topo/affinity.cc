#include "topo/affinity.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/format.h"
#include "topo/reach.h"

namespace tutti::topo {
namespace {

constexpr int kWordBits = 32;
constexpr size_t kMostWords = kMostCpus / kWordBits;

std::optional<uint32_t> parseNumber(std::string_view text, int base) {
  uint32_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<CpuSet> CpuSet::fromMask(std::string_view text) {
  constexpr size_t kDigits = 8;
  CpuSet set;
  while (true) {
    // The last group, and of one that is longer than a word its last word.
    const size_t comma = text.rfind(',');
    const size_t begin = comma == std::string_view::npos ? 0 : comma + 1;
    const size_t cut = std::max(begin, text.size() > kDigits ? text.size() - kDigits : 0);
    const auto word = parseNumber(text.substr(cut), 16);
    if (!word || set.words_.size() == kMostWords) return std::nullopt;
    set.words_.push_back(*word);
    if (cut == 0) break;
    text = text.substr(0, cut == begin ? comma : cut);
  }
  set.shorten();
  return set;
}

std::optional<CpuSet> CpuSet::fromList(std::string_view text) {
  CpuSet set;
  while (!text.empty()) {
    const std::string_view range = text.substr(0, text.find(','));
    text.remove_prefix(std::min(range.size() + 1, text.size()));
    const size_t dash = range.find('-');
    const auto first = parseNumber(range.substr(0, dash), 10);
    const auto last = dash == std::string_view::npos ? first : parseNumber(range.substr(dash + 1), 10);
    if (!first || !last || *first > *last || *last >= kMostCpus) return std::nullopt;
    for (uint32_t cpu = *first; cpu <= *last; ++cpu) set.add(static_cast<int>(cpu));
  }
  return set;
}

void CpuSet::add(int cpu) {
  const auto word = static_cast<size_t>(cpu / kWordBits);
  if (cpu < 0 || word >= kMostWords) return;
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= 1U << (cpu % kWordBits);
}

bool CpuSet::has(int cpu) const {
  const auto word = static_cast<size_t>(cpu / kWordBits);
  return cpu >= 0 && word < words_.size() && (words_[word] >> (cpu % kWordBits) & 1U) != 0;
}

int CpuSet::count() const {
  int sum = 0;
  for (const uint32_t word : words_) sum += std::popcount(word);
  return sum;
}

std::vector<int> CpuSet::cpus() const {
  std::vector<int> all;
  for (int cpu = 0; cpu < static_cast<int>(words_.size()) * kWordBits; ++cpu) {
    if (has(cpu)) all.push_back(cpu);
  }
  return all;
}

std::string CpuSet::mask() const {
  if (empty()) return "0";
  std::string text = format("{:x}", words_.back());
  for (size_t word = words_.size() - 1; word-- > 0;) text += format(",{:08x}", words_[word]);
  return text;
}

std::string CpuSet::list() const {
  const std::vector<int> all = cpus();
  std::string text;
  for (size_t first = 0; first < all.size();) {
    size_t last = first;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? format("{}", all[first]) : format("{}-{}", all[first], all[last]);
    first = last + 1;
  }
  return text;
}

CpuSet CpuSet::operator&(const CpuSet& other) const {
  CpuSet both;
  both.words_.resize(std::min(words_.size(), other.words_.size()));
  for (size_t word = 0; word < both.words_.size(); ++word) both.words_[word] = words_[word] & other.words_[word];
  both.shorten();
  return both;
}

void CpuSet::shorten() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

std::optional<CpuSet> cpusOf(const Node& cpu) {
  return cpu.cpu.affinity.empty() ? std::nullopt : CpuSet::fromMask(cpu.cpu.affinity);
}

CpuSet cpusForGpu(const System& system, const Paths& paths, NodeId gpu, const CpuSet& allowed, bool ignoreAllowed) {
  const NodeId cpu = localCpu(system, paths, gpu);
  const auto near = cpu == kNoNode ? std::nullopt : cpusOf(system.at(cpu));
  if (!near) return {};
  return ignoreAllowed ? *near : *near & allowed;
}

}  // namespace tutti::topo
