// A Markdown table as aligned columns for a terminal.
// Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::tool {

/// The named columns of `markdown` (a heading row, a rule, rows; no `|` in cells), padded to equal width.
std::string alignColumns(std::string_view markdown, const std::vector<std::string_view>& columns);

}  // namespace tutti::tool
