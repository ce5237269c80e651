#include "tune/filter.h"

#include <algorithm>
#include <cctype>

namespace tutti::tune {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// The collective of that name, any case; kNumCollectives when there is none.
int findCollective(std::string_view text) {
  for (int i = 0; i < kNumCollectives; ++i)
    if (lower(name(static_cast<Collective>(i))) == lower(text)) return i;
  return kNumCollectives;
}

std::string collectiveNames() {
  std::string text;
  for (int i = 0; i < kNumCollectives; ++i) text += format("{}{}", i == 0 ? "" : ", ", name(static_cast<Collective>(i)));
  return text;
}

std::string join(const std::vector<std::string_view>& names) {
  std::string text;
  for (const auto n : names) text += (text.empty() ? "" : ", ") + std::string(n);
  return text;
}

}  // namespace

Result<Filter> Filter::parse(std::string_view variable, std::string_view text, const std::vector<std::string_view>& known) {
  Filter filter;
  if (text.empty()) return filter;
  filter.source_ = format("{}={}", variable, text);
  for (const std::string_view clause : split(text, ';')) {
    if (clause.empty()) continue;
    const size_t colon = clause.find(':');
    const bool forOne = colon != std::string_view::npos;
    int only = -1;
    if (forOne) {
      only = findCollective(clause.substr(0, colon));
      if (only == kNumCollectives)
        return fail(Code::InvalidUsage, "{}: '{}' is no collective; known are {}", filter.source_, clause.substr(0, colon),
                    collectiveNames());
    }
    std::string_view list = forOne ? clause.substr(colon + 1) : clause;
    Rule rule;
    rule.given = true;
    rule.named = forOne;
    rule.inverted = !list.empty() && list.front() == '^';
    if (rule.inverted) list.remove_prefix(1);
    for (const std::string_view item : split(list, ',')) {
      const std::string wanted = lower(item);
      const bool valid = std::any_of(known.begin(), known.end(), [&](std::string_view k) { return lower(k) == wanted; });
      if (!valid) return fail(Code::InvalidUsage, "{}: unknown name '{}'; known are {}", filter.source_, item, join(known));
      rule.names.push_back(wanted);
    }
    for (size_t c = 0; c < filter.rules_.size(); ++c)
      if (forOne ? static_cast<int>(c) == only : !filter.rules_[c].named) filter.rules_[c] = rule;
  }
  return filter;
}

bool Filter::allows(Collective collective, std::string_view algorithm) const {
  const Rule& rule = rules_[static_cast<size_t>(collective)];
  if (!rule.given) return true;
  const bool named = std::find(rule.names.begin(), rule.names.end(), lower(algorithm)) != rule.names.end();
  return named != rule.inverted;
}

}  // namespace tutti::tune
