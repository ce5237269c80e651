#include "exec/prove/expression.h"

#include <algorithm>
#include <numeric>

#include "core/format.h"

namespace tutti::exec::prove {
namespace {

constexpr size_t kTextLimit = 160;

uint64_t hashOf(const Expr* operands, uint32_t count) {
  uint64_t h = count;
  for (uint32_t i = 0; i < count; ++i) {
    h = (h ^ operands[i]) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

void Expressions::reset(int32_t ranks) {
  ranks_ = ranks;
  nodes_.assign(static_cast<size_t>(ranks), {});
  operands_.clear();
  table_.assign(1024, 0);
}

bool Expressions::equals(Expr expr, const Expr* operands, uint32_t count) const {
  const Node& node = nodes_[expr];
  return node.count == count && std::equal(operands, operands + count, operands_.begin() + node.begin);
}

Expr Expressions::sum(const Expr* operands, int32_t count) {
  if (count == 1) return operands[0];
  const auto n = static_cast<uint32_t>(count);
  if (2 * (nodes_.size() - static_cast<size_t>(ranks_)) >= table_.size()) grow();
  const size_t mask = table_.size() - 1;
  size_t at = hashOf(operands, n) & mask;
  for (; table_[at] != 0; at = (at + 1) & mask)
    if (equals(table_[at] - 1, operands, n)) return table_[at] - 1;
  const auto id = static_cast<Expr>(nodes_.size());
  nodes_.push_back({static_cast<uint32_t>(operands_.size()), n});
  operands_.insert(operands_.end(), operands, operands + n);
  table_[at] = id + 1;
  return id;
}

void Expressions::grow() {
  table_.assign(table_.size() * 2, 0);
  const size_t mask = table_.size() - 1;
  for (size_t id = static_cast<size_t>(ranks_); id < nodes_.size(); ++id) {
    size_t at = hashOf(operands_.data() + nodes_[id].begin, nodes_[id].count) & mask;
    while (table_[at] != 0) at = (at + 1) & mask;
    table_[at] = static_cast<uint32_t>(id) + 1;
  }
}

std::vector<uint64_t> Expressions::contributions(Expr expr) const {
  // From the top down by id, so that an expression used in many places is opened once; a planted bug can nest doublings.
  std::vector<uint64_t> times(std::max<size_t>(expr + 1, static_cast<size_t>(ranks_)), 0);
  constexpr uint64_t kMany = 1u << 30;
  times[expr] = 1;
  for (Expr e = expr; e >= static_cast<Expr>(ranks_); --e) {
    if (times[e] == 0) continue;
    for (uint32_t i = 0; i < nodes_[e].count; ++i) {
      uint64_t& t = times[operands_[nodes_[e].begin + i]];
      t = std::min(t + times[e], kMany);
    }
  }
  times.resize(static_cast<size_t>(ranks_));
  return times;
}

void Expressions::addText(std::string& text, Expr expr) const {
  if (text.size() > kTextLimit) return;
  if (expr < static_cast<Expr>(ranks_)) {
    text += format("r{}", expr);
    return;
  }
  for (uint32_t i = 0; i < nodes_[expr].count; ++i) {
    if (text.size() > kTextLimit) break;
    const Expr operand = operands_[nodes_[expr].begin + i];
    const bool nested = operand >= static_cast<Expr>(ranks_);
    if (i > 0) text += '+';
    if (nested) text += '(';
    addText(text, operand);
    if (nested) text += ')';
  }
}

std::string Expressions::text(Expr expr) const {
  std::string text;
  addText(text, expr);
  if (text.size() > kTextLimit) text = text.substr(0, kTextLimit) + " …";
  return text;
}

}  // namespace tutti::exec::prove
