// What rank 0 prints of a comparison, and the rows that plot and JSON file are made of.
// One thread.
#pragma once

#include <array>
#include <string>

#include "bench/call.h"
#include "bench/measure.h"
#include "bench/row.h"

namespace tutti::bench {

/// Above the rows of one collective.
std::string tableHead(const Call& call, const std::string& peer, const std::string& buffers, int rounds);

/// tutti's row and the peer's, as one line.
std::string tableLine(const Row& tutti, const Row& peer);

}  // namespace tutti::bench
