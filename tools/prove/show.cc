#include "prove/show.h"

#include <algorithm>

#include "core/format.h"

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

std::string proofsDocument(std::string_view table, std::string_view outcome, bool isFull) {
  constexpr std::string_view kText = R"(# What is proved of every algorithm

This page is written by a command; it shows what was seen when it last ran:

    tutti prove{0} --markdown docs/proofs.md

Every algorithm in [src/algo](../src/algo) is recorded for all ranks and run on symbols
([src/exec/prove](../src/exec/prove)). A case of the table is *proved* when, for its ranks, root, slots, slices and
channels,

- every output chunk and slice holds each contribution exactly once, combined in the order that the algorithm
  states, or the right input bit for bit; nothing else is written, and a finished sum is never reduced or scaled
  again;
- every send has its receive, of the same size, slice and call, and no lane waits for ever with that many slots. A
  pipe has one writer and one reader, and so has every arrival and hand-over: what one schedule does, every schedule
  does, however late a rank is;
- no two accesses to one place race: buffers that are passed by reference or lent, results that are written to all
  outputs at once or loaded from their owner, in-place buffers, and the cells of windows with two banks, from one
  slice, round and call to the next. Vector clocks follow messages, freed slots, arrivals, hand-overs and the ends of
  calls.

Counts do not divide evenly: the last chunk and the last slice are short, and chunks of other sizes, down to none,
are checked as size classes. *Calls in a row* follow each other on the same pipes and windows while the caller
changes its buffers; "A then B" are two algorithms in turn.
Cases of 3 channels have rings and trees of their own on each, as machines with several tracks have
([0024](decisions/0024-tracks.md)): each of the tracks is a case, with the nodes' ranks in other orders.
What sizes are copied or lent, and how large cells and slots are, is the executors' business: no proof speaks of it.

*Shared places* are those that several lanes touch, so
that an order between them had to be shown.

That the prover would notice is tested by planting bugs in copies of the shipped headers
([tests/exec/prove/mutants](../tests/exec/prove/mutants)): a wrong chunk, a missing wait, one slot too few, a single
bank, a forgotten hand-over and others. Each is rejected, with algorithm, rank, lane and step.

)";
  std::string text(kText);
  text.replace(text.find("{0}"), 3, isFull ? " --full" : "");
  return text + std::string(table) + format("\n{}.\n", outcome);
}

}  // namespace tutti::tool
