#include "core/types.h"

#include <array>

namespace tutti {
namespace {
constexpr std::array<std::string_view, kNumDataTypes> kTypeNames = {
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kNumReduceOps> kOpNames = {"sum", "prod", "max", "min"};
constexpr std::array<std::string_view, kNumCollectives> kCollectiveNames = {
    "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "AlltoAll", "Scatter", "Gather"};
}  // namespace

std::string_view name(DataType type) { return kTypeNames.at(static_cast<size_t>(type)); }
std::string_view name(ReduceOp op) { return kOpNames.at(static_cast<size_t>(op)); }
std::string_view name(Collective collective) { return kCollectiveNames.at(static_cast<size_t>(collective)); }

}  // namespace tutti
