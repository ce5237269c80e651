#include "prove/show.h"

#include <algorithm>

namespace tutti::tool {
namespace {

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::vector<std::string_view> splitCells(std::string_view line) {
  std::vector<std::string_view> cells;
  for (size_t begin = line.find('|'); begin != std::string_view::npos;) {
    const size_t end = line.find('|', begin + 1);
    if (end == std::string_view::npos) break;
    cells.push_back(trim(line.substr(begin + 1, end - begin - 1)));
    begin = end;
  }
  return cells;
}

/// Columns on the terminal: bytes that continue a UTF-8 character take none.
size_t widthOf(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string alignColumns(std::string_view markdown, const std::vector<std::string_view>& columns) {
  std::vector<std::vector<std::string_view>> lines;
  for (size_t begin = 0; begin < markdown.size();) {
    const size_t end = std::min(markdown.find('\n', begin), markdown.size());
    const std::string_view line = markdown.substr(begin, end - begin);
    if (!line.starts_with("|--")) lines.push_back(splitCells(line));
    begin = end + 1;
  }
  if (lines.empty()) return {};
  std::vector<size_t> places;
  for (const std::string_view column : columns) {
    const auto found = std::find(lines[0].begin(), lines[0].end(), column);
    if (found != lines[0].end()) places.push_back(static_cast<size_t>(found - lines[0].begin()));
  }
  std::vector<size_t> widths(places.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < places.size() && places[i] < line.size(); ++i) widths[i] = std::max(widths[i], widthOf(line[places[i]]));
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < places.size() && places[i] < line.size(); ++i) {
      const std::string_view cell = line[places[i]];
      text += cell;
      if (i + 1 < places.size()) text.append(widths[i] - widthOf(cell) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace tutti::tool
