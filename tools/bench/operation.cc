#include "bench/operation.h"

#include <algorithm>

namespace tutti::bench {
namespace {

constexpr Owner kAll = Owner::Everyone;
constexpr Owner kRoot = Owner::Root;

constexpr std::array<Operation, kNumOps> kOperations = {{
    // op, name, reduces, rooted, in place, sender, receiver, sends blocks, receives blocks
    {Op::AllReduce, "all_reduce", true, false, true, kAll, kAll, false, false},
    {Op::AllGather, "all_gather", false, false, true, kAll, kAll, false, true},
    {Op::ReduceScatter, "reduce_scatter", true, false, true, kAll, kAll, true, false},
    {Op::Broadcast, "broadcast", false, true, true, kRoot, kAll, false, false},
    {Op::Reduce, "reduce", true, true, true, kAll, kRoot, false, false},
    {Op::AllToAll, "alltoall", false, false, false, kAll, kAll, true, true},
    {Op::Gather, "gather", false, true, true, kAll, kRoot, false, true},
    {Op::Scatter, "scatter", false, true, true, kRoot, kAll, true, false},
    {Op::SendRecv, "sendrecv", false, false, false, kAll, kAll, false, false},
}};

}  // namespace

double Operation::busFactor(int ranks) const {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (op) {
    case Op::AllReduce: return 2 * others;
    case Op::AllGather:
    case Op::ReduceScatter:
    case Op::AllToAll:
    case Op::Gather:
    case Op::Scatter: return others;
    case Op::Broadcast:
    case Op::Reduce:
    case Op::SendRecv: return 1;
  }
  return 1;
}

const std::array<Operation, kNumOps>& operations() { return kOperations; }

std::string operationNames() {
  std::string names;
  for (const Operation& operation : kOperations) {
    if (!names.empty()) names += ", ";
    names += operation.name;
  }
  return names;
}

Result<const Operation*> findOperation(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  for (const Operation& operation : kOperations) {
    if (operation.name == wanted) return &operation;
  }
  return fail(Code::InvalidArgument, "'{}' is not an operation; there are {}", name, operationNames());
}

}  // namespace tutti::bench
