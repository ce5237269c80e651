// Unique ids and standings for tests of the exchange.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "launch/exchange.h"

namespace tutti::launch {

inline ncclUniqueId idOf(int number) {
  ncclUniqueId id;
  for (size_t i = 0; i < sizeof id.internal; ++i) id.internal[i] = static_cast<char>(static_cast<size_t>(number) * 31 + i * 7);
  return id;
}

inline MakeId makerOf(int number) {
  return [number] { return Result<ncclUniqueId>(idOf(number)); };
}

/// For every rank but 0.
inline Result<ncclUniqueId> makeNone() {
  ADD_FAILURE() << "only rank 0 makes an id";
  return ncclUniqueId{};
}

inline bool isId(const Result<ncclUniqueId>& id, int number) {
  const ncclUniqueId expected = idOf(number);
  return id && std::memcmp(&*id, &expected, sizeof expected) == 0;
}

inline Standing standingOf(Launcher launcher, int rank, int ranks) {
  Standing standing;
  standing.launcher = launcher;
  standing.rank = standing.localRank = rank;
  standing.ranks = standing.localRanks = ranks;
  return standing;
}

}  // namespace tutti::launch
