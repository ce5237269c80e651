#include <algorithm>

#include "bench/call.h"
#include "bench/json.h"
#include "core/format.h"
#include "tutti.h"

namespace tutti::bench {
namespace {

/// What tuttiExplain says of one call, as JSON text.
Result<std::string> explainText(Member& member, const Call& call, const char* collective, int root, ncclRedOp_t op) {
  const auto ask = [&](char* text, size_t capacity, size_t* needed) {
    return member.check(
        tuttiExplain(member.comm(), collective, call.count, ncclTypeOf(call.type), op, root, text, capacity, needed), "tuttiExplain");
  };
  size_t needed = 0;
  Status status = ask(nullptr, 0, &needed);
  std::string text(needed, '\0');
  if (status.ok()) status = ask(text.data(), text.size(), &needed);
  if (!status.ok()) return tl::unexpected(std::move(status));
  if (!text.empty()) text.pop_back();  // the NUL
  return text;
}

/// The name that tuttiExplain knows, where it differs from ours.
const char* explainName(const Operation& operation) {
  return operation.op == Op::AllToAll ? "all_to_all" : operation.name.data();
}

}  // namespace

Result<Traffic> explain(Member& member, const Call& call, ncclRedOp_t op) {
  struct Part {
    const char* collective;
    int root;
  };
  std::vector<Part> parts = {{explainName(*call.operation), std::max(call.root, 0)}};
  if (call.operation->op == Op::SendRecv) {
    const int rank = member.rank();
    parts = {{"send", (rank + 1) % call.ranks}, {"recv", (rank + call.ranks - 1) % call.ranks}};
  }
  Traffic traffic;
  for (const Part& part : parts) {
    Result<std::string> text = explainText(member, call, part.collective, part.root, op);
    if (!text) return tl::unexpected(text.error());
    Result<Traffic> plan = parsePlan(*text);
    if (!plan) return plan;
    traffic = Traffic{traffic.bytes + plan->bytes, plan->algorithm, plan->simd};
  }
  return traffic;
}

}  // namespace tutti::bench
