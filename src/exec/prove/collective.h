// What each collective defines: which chunks a rank has, what its output must hold, which chunks are the same memory in place.
// Pure functions. `root` is the root or, for SendRecv, the other side of the rank that is asked about.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "exec/prove/expression.h"

namespace tutti::exec::prove {

enum class ValueKind : uint8_t {
  None,     ///< nothing that an algorithm may read
  Raw,      ///< a rank's input, bit for bit
  Partial,  ///< a scaled contribution or a sum of them, on its way
  Final,    ///< a finished sum, the final scaling applied
};

struct Value {
  Expr expr = 0;      ///< Raw: the rank
  int32_t chunk = 0;  ///< which chunk of the inputs it comes from
  ValueKind kind = ValueKind::None;

  bool operator==(const Value&) const = default;
};

/// Whether the collective allows input and output to overlap as `inPlaceChunk` says.
bool hasInPlace(Collective collective);

/// How many chunks of input and output the rank has; `chunks` is the algorithm's own number.
int32_t inputChunks(Collective collective, int32_t rank, int32_t root, int32_t chunks);
int32_t outputChunks(Collective collective, int32_t rank, int32_t root, int32_t chunks);

/// The input chunk that is the same memory as output chunk `chunk` in place; -1 when none is.
int32_t inPlaceChunk(Collective collective, int32_t rank, int32_t root, int32_t chunk);

/// What output chunk `chunk` of `rank` must hold. `orders[c]`: the promised expression of chunk c, for reductions.
Value expectedValue(Collective collective, int32_t rank, int32_t root, int32_t chunk, const std::vector<Expr>& orders);

}  // namespace tutti::exec::prove
