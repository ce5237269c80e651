#include "bench/units.h"

#include <charconv>
#include <cmath>

#include "core/format.h"

namespace tutti::bench {
namespace {

constexpr std::string_view kSuffixes = "KMGT";
constexpr double kMostBytes = 0x1p60;

/// Power of 1024 that `suffix` ("", "k", "MB", "GiB" …) stands for, or -1.
int powerOf(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  const char first = suffix[0] >= 'a' ? static_cast<char>(suffix[0] - 'a' + 'A') : suffix[0];
  const size_t power = kSuffixes.find(first);
  if (power == std::string_view::npos) return -1;
  suffix.remove_prefix(1);
  const bool isKnown = suffix.empty() || suffix == "B" || suffix == "b" || suffix == "iB" || suffix == "ib";
  return isKnown ? static_cast<int>(power) + 1 : -1;
}

Result<int> parseInt(std::string_view text, std::string_view whole, int least, int most) {
  int value = 0;
  const auto [end, errorCode] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (errorCode != std::errc() || end != text.data() + text.size() || text.empty()) {
    return fail(Code::InvalidArgument, "'{}' is not a list of numbers such as 2,4,8 or 1-8", whole);
  }
  if (value < least || value > most) {
    return fail(Code::InvalidArgument, "{} in '{}' is outside {} to {}", value, whole, least, most);
  }
  return value;
}

}  // namespace

Result<uint64_t> parseBytes(std::string_view text) {
  double value = 0;
  const auto [end, errorCode] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  const auto used = static_cast<size_t>(end - text.data());
  const int power = errorCode == std::errc() ? powerOf(text.substr(used)) : -1;
  if (power < 0 || !std::isfinite(value) || value < 0) {
    return fail(Code::InvalidArgument, "'{}' is not a size; write a number of bytes with an optional K, M or G, such as 8, 64K or 1.5M",
                text);
  }
  const double bytes = std::ldexp(value, 10 * power);
  if (bytes > kMostBytes) return fail(Code::InvalidArgument, "size '{}' is too large", text);
  if (bytes != std::floor(bytes)) return fail(Code::InvalidArgument, "size '{}' is not a whole number of bytes", text);
  return static_cast<uint64_t>(bytes);
}

std::string formatBytes(uint64_t bytes) {
  size_t power = 0;
  while (power < kSuffixes.size() && bytes >> (10 * (power + 1))) ++power;
  if (power == 0) return format("{} B", bytes);
  const double value = std::ldexp(static_cast<double>(bytes), -10 * static_cast<int>(power));
  if (value == std::floor(value)) return format("{:.0f} {}iB", value, kSuffixes[power - 1]);
  return format("{:.2f} {}iB", value, kSuffixes[power - 1]);
}

std::string formatNumber(double value) {
  if (value == 0) return "0";
  const double magnitude = std::fabs(value);
  if (magnitude >= 10000) return format("{:.0f}", value);
  if (magnitude >= 1000) return format("{:.1f}", value);
  if (magnitude >= 10) return format("{:.2f}", value);
  if (magnitude >= 0.1) return format("{:.3f}", value);
  return magnitude >= 0.0001 ? format("{:.4f}", value) : format("{:.1e}", value);
}

Result<std::vector<int>> parseList(std::string_view text, int least, int most) {
  std::vector<int> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, comma - begin);
    const size_t dash = item.find('-');
    const Result<int> first = parseInt(item.substr(0, dash), text, least, most);
    if (!first) return tl::unexpected(first.error());
    const Result<int> last = dash == std::string_view::npos ? first : parseInt(item.substr(dash + 1), text, least, most);
    if (!last) return tl::unexpected(last.error());
    if (*last < *first) return fail(Code::InvalidArgument, "range {} in '{}' runs backwards", item, text);
    for (int value = *first; value <= *last; ++value) values.push_back(value);
    begin = comma + 1;
  }
  return values;
}

}  // namespace tutti::bench
