#include "exec/prove/collective.h"

namespace tutti::exec::prove {

bool hasInPlace(Collective collective) { return collective != Collective::AllToAll && collective != Collective::SendRecv; }

int32_t inputChunks(Collective collective, int32_t rank, int32_t root, int32_t chunks) {
  switch (collective) {
    case Collective::AllGather:
    case Collective::Gather: return 1;
    case Collective::Broadcast:
    case Collective::Scatter: return rank == root ? chunks : 0;
    default: return chunks;
  }
}

int32_t outputChunks(Collective collective, int32_t rank, int32_t root, int32_t chunks) {
  switch (collective) {
    case Collective::ReduceScatter:
    case Collective::Scatter: return 1;
    case Collective::Reduce:
    case Collective::Gather: return rank == root ? chunks : 0;
    default: return chunks;
  }
}

int32_t inPlaceChunk(Collective collective, int32_t rank, int32_t root, int32_t chunk) {
  switch (collective) {
    case Collective::AllReduce:
    case Collective::Reduce:
    case Collective::Broadcast: return chunk;
    case Collective::ReduceScatter: return chunk == 0 ? rank : -1;
    case Collective::AllGather: return chunk == rank ? 0 : -1;
    case Collective::Gather: return rank == root && chunk == rank ? 0 : -1;
    case Collective::Scatter: return rank == root && chunk == 0 ? rank : -1;
    default: return -1;
  }
}

Value expectedValue(Collective collective, int32_t rank, int32_t root, int32_t chunk, const std::vector<Expr>& orders) {
  const auto raw = [](int32_t source, int32_t c) { return Value{static_cast<Expr>(source), c, ValueKind::Raw}; };
  const auto reduced = [&](int32_t c) { return Value{orders[static_cast<size_t>(c)], c, ValueKind::Final}; };
  switch (collective) {
    case Collective::AllReduce:
    case Collective::Reduce: return reduced(chunk);
    case Collective::ReduceScatter: return reduced(rank);
    case Collective::Broadcast: return raw(root, chunk);
    case Collective::AllGather:
    case Collective::Gather: return raw(chunk, 0);
    case Collective::AllToAll: return raw(chunk, rank);
    case Collective::Scatter: return raw(root, rank);
    case Collective::SendRecv: return raw(root, chunk);
  }
  return {};
}

}  // namespace tutti::exec::prove
