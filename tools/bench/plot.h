// Draws the rows of a benchmark as an SVG file: time and bus bandwidth against bytes, both axes logarithmic.
// Pure function; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/row.h"

namespace tutti::bench {

/// A complete SVG document. A line for each type, operator, root and form; points that a logarithm cannot show are left out.
/// `devices`: where the ranks are, for the title.
std::string drawSvg(const std::vector<Row>& rows, std::string_view devices = "host devices");

}  // namespace tutti::bench
