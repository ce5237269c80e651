#include "launch/hostlist.h"

#include <algorithm>
#include <charconv>

namespace tutti::launch {
namespace {

constexpr int kMostTasks = 1 << 24;

/// The number at the front of `text`, which loses it; -1 when there is none.
int64_t takeNumber(std::string_view& text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || value < 0 || value > kMostTasks) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<std::string> firstHost(std::string_view list) {
  const auto malformed = [&] { return fail(Code::InvalidUsage, "'{}' is not a list of hosts such as node[01-03,7],gpu-b2", list); };
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      if (list[at] == ']') return malformed();
      host += list[at++];
      continue;
    }
    const size_t close = list.find(']', at);
    if (close == std::string_view::npos) return malformed();
    const std::string_view range = list.substr(at + 1, close - at - 1);
    const std::string_view first = range.substr(0, range.find_first_of(",-"));
    const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
    if (first.empty() || !std::all_of(first.begin(), first.end(), isDigit)) return malformed();
    host += first;
    at = close + 1;
  }
  if (host.empty()) return malformed();
  return host;
}

Result<int> tasksOfNode(std::string_view list, int64_t node) {
  const auto malformed = [&] { return fail(Code::InvalidUsage, "'{}' is not a list of task counts such as 4(x2),3", list); };
  std::string_view rest = list;
  for (int64_t first = 0;;) {
    const int64_t tasks = takeNumber(rest);
    if (tasks < 0) return malformed();
    int64_t nodes = 1;
    if (take(rest, "(x")) {
      nodes = takeNumber(rest);
      if (nodes < 1 || !take(rest, ")")) return malformed();
    }
    if (node < first + nodes) return static_cast<int>(tasks);
    first += nodes;
    if (rest.empty()) return fail(Code::InvalidUsage, "'{}' has {} nodes; node {} is asked for", list, first, node);
    if (!take(rest, ",")) return malformed();
  }
}

}  // namespace tutti::launch
