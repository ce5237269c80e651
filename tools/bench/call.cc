#include "bench/call.h"

#include "bench/draw.h"
#include "bench/units.h"
#include "core/format.h"

namespace tutti::bench {
namespace {

int nextRank(int rank, int ranks) { return (rank + 1) % ranks; }
int previousRank(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

ncclRedOp_t builtinOperator(RedOp op) {
  switch (op) {
    case RedOp::Prod: return ncclProd;
    case RedOp::Max: return ncclMax;
    case RedOp::Min: return ncclMin;
    case RedOp::Avg: return ncclAvg;
    case RedOp::Sum:
    case RedOp::MulSum: return ncclSum;
  }
  return ncclSum;
}

/// To the next rank of a ring and from the previous one; grouped, because either half may wait for the other.
ncclResult_t exchange(const Call& call, int rank, const Placement& at, ncclComm_t comm) {
  const ncclDataType_t type = ncclTypeOf(call.type);
  if (const ncclResult_t result = ncclGroupStart(); result != ncclSuccess) return result;
  const ncclResult_t sent = ncclSend(at.send, call.count, type, nextRank(rank, call.ranks), comm, nullptr);
  const ncclResult_t received = ncclRecv(at.receive, call.count, type, previousRank(rank, call.ranks), comm, nullptr);
  const ncclResult_t ended = ncclGroupEnd();
  if (sent != ncclSuccess) return sent;
  return received != ncclSuccess ? received : ended;
}

ncclResult_t dispatch(const Call& call, int rank, const Placement& at, ncclRedOp_t op, ncclComm_t comm) {
  const ncclDataType_t type = ncclTypeOf(call.type);
  switch (call.operation->op) {
    case Op::AllReduce: return ncclAllReduce(at.send, at.receive, call.count, type, op, comm, nullptr);
    case Op::AllGather: return ncclAllGather(at.send, at.receive, call.count, type, comm, nullptr);
    case Op::ReduceScatter: return ncclReduceScatter(at.send, at.receive, call.count, type, op, comm, nullptr);
    case Op::Broadcast: return ncclBroadcast(at.send, at.receive, call.count, type, call.root, comm, nullptr);
    case Op::Reduce: return ncclReduce(at.send, at.receive, call.count, type, op, call.root, comm, nullptr);
    case Op::AllToAll: return ncclAlltoAll(at.send, at.receive, call.count, type, comm, nullptr);
    case Op::Gather: return ncclGather(at.send, at.receive, call.count, type, call.root, comm, nullptr);
    case Op::Scatter: return ncclScatter(at.send, at.receive, call.count, type, call.root, comm, nullptr);
    case Op::SendRecv: return exchange(call, rank, at, comm);
  }
  return ncclInternalError;
}

}  // namespace

std::string describe(const Call& call) {
  std::string text = format("{} {}", call.operation->name, name(call.type));
  if (call.redOp) text += format(" {}", name(*call.redOp));
  if (call.root >= 0) text += format(" root {}", call.root);
  return text + format(", {}{}", formatBytes(call.bytes()), call.isInPlace ? ", in place" : "");
}

Placement place(const Call& call, int rank, const Memory& memory) {
  Placement at{memory.send.data(), memory.receive.data(), false};
  // A rank that only sends or only receives has nothing to overlap.
  if (!call.isInPlace || !call.operation->sends(rank, call.root) || !call.operation->receives(rank, call.root)) {
    // Broadcast is in place on every rank, so that receivers name one buffer twice.
    if (call.isInPlace && call.operation->op == Op::Broadcast) at.send = at.receive;
    return at;
  }
  at.sharesMemory = true;
  const uint64_t block = static_cast<uint64_t>(rank) * call.count * sizeOf(call.type);
  if (call.operation->sendsBlocks) {
    at.receive = at.send + block;
  } else {
    at.send = at.receive + (call.operation->receivesBlocks ? block : 0);
  }
  return at;
}

ncclDataType_t ncclTypeOf(DataType type) { return static_cast<ncclDataType_t>(type); }

Result<ncclRedOp_t> createOperator(Member& member, const Call& call) {
  if (!call.redOp) return ncclSum;
  if (*call.redOp != RedOp::MulSum) return builtinOperator(*call.redOp);
  uint64_t scalar = drawScalar(call.type, member.rank());  // little-endian: the code's own bytes come first
  ncclRedOp_t op = ncclSum;
  Status status = member.check(
      ncclRedOpCreatePreMulSum(&op, &scalar, ncclTypeOf(call.type), ncclScalarHostImmediate, member.comm()), "ncclRedOpCreatePreMulSum");
  if (!status.ok()) return tl::unexpected(std::move(status));
  return op;
}

Status destroyOperator(Member& member, const Call& call, ncclRedOp_t op) {
  if (call.redOp != RedOp::MulSum) return {};
  return member.check(ncclRedOpDestroy(op, member.comm()), "ncclRedOpDestroy");
}

Status issue(Member& member, const Call& call, const Placement& placement, ncclRedOp_t op) {
  const ncclResult_t result = dispatch(call, member.rank(), placement, op, member.comm());
  if (result == ncclSuccess) [[likely]] return {};
  return member.check(result, describe(call));
}

}  // namespace tutti::bench
