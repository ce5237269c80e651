// The conformance matrix in small: every algorithm × kernel × type × operation that goes together, with counts, offsets, roots, slices and
// channels drawn at random.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "runner.h"

namespace tutti::probe {

struct Selection {
  std::string algorithm;  ///< "ring"; empty: all
  std::string kernel;     ///< "simple"; empty: all
  uint64_t most = 0;      ///< elements at most; 0: what the list has
  int samples = 1;        ///< of each combination
  int every = 1;          ///< combinations: one in so many
  int cluster = 0;        ///< blocks of one; 0: 1, 2 and 4 at random
};

/// What there is to do for the fabric's number of ranks, in a random order.
std::vector<Job> makeJobs(const Fabric& fabric, const Selection& selection, std::mt19937_64& random);

/// "ring AllReduce on simple, float sum, count 1000 …".
std::string describe(const Job& job);

/// Places in algo/list.h whose name and collective match; -1: none.
int findAlgorithm(const std::string& name, const std::string& collective);

}  // namespace tutti::probe
