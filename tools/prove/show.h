// The table of proofs: as aligned columns for a terminal, and as a document.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::tool {

/// The named columns of `markdown` (a heading row, a rule, rows; no `|` in cells), padded to equal width.
std::string alignColumns(std::string_view markdown, const std::vector<std::string_view>& columns);

/// docs/proofs.md: what a proof says, how to run it again, the table, and `outcome`: how many cases there were, and what came of them.
std::string proofsDocument(std::string_view table, std::string_view outcome, bool isFull);

}  // namespace tutti::tool
