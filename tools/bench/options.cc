#include "bench/options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/units.h"

namespace tutti::bench {
namespace {

constexpr std::array<std::string_view, kNumRedOps> kRedOpNames = {"sum", "prod", "max", "min", "avg", "mulsum"};

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

}  // namespace

std::string_view name(RedOp op) { return kRedOpNames[static_cast<size_t>(op)]; }

std::string typeNames() {
  std::string names;
  for (int i = 0; i < kNumDataTypes; ++i) append(names, name(static_cast<DataType>(i)));
  return names;
}

std::string redOpNames() {
  std::string names;
  for (const std::string_view op : kRedOpNames) append(names, op);
  return names;
}

Result<std::vector<DataType>> parseTypes(std::string_view text) {
  std::vector<DataType> types;
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (text == "all" || text == name(type)) types.push_back(type);
  }
  if (types.empty()) return fail(Code::InvalidArgument, "'{}' is not a datatype; there are {}, or all", text, typeNames());
  return types;
}

Result<std::vector<RedOp>> parseRedOps(std::string_view text) {
  std::vector<RedOp> ops;
  for (int i = 0; i < kNumRedOps; ++i) {
    const auto op = static_cast<RedOp>(i);
    if (text == "all" || text == name(op)) ops.push_back(op);
  }
  if (ops.empty()) return fail(Code::InvalidArgument, "'{}' is not a reduction; there are {}, or all", text, redOpNames());
  return ops;
}

Result<std::vector<int>> parseRoots(std::string_view text, int ranks) {
  std::vector<int> roots;
  if (text == "all") {
    for (int root = 0; root < ranks; ++root) roots.push_back(root);
    return roots;
  }
  return parseList(text, 0, ranks - 1);
}

std::vector<uint64_t> countsOf(const Options& options, DataType type) {
  const uint64_t blocks = options.operation->sizeCount(1, options.ranks);
  std::vector<uint64_t> counts;
  for (uint64_t bytes = options.minBytes; bytes <= options.maxBytes;) {
    const uint64_t count = bytes == 0 ? 0 : std::max<uint64_t>(1, bytes / sizeOf(type) / blocks);
    if (counts.empty() || count > counts.back()) counts.push_back(count);
    const auto scaled = static_cast<uint64_t>(std::llround(static_cast<double>(bytes) * options.stepFactor));
    bytes = options.stepBytes != 0 ? bytes + options.stepBytes : std::max(scaled, bytes + 1);
  }
  return counts;
}

}  // namespace tutti::bench
