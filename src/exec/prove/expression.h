// What a value is made of, as symbols: contributions of ranks and the sums over them, each different expression kept once.
//
// Owner: a Prover. One thread at a time.
// 1. Two expressions are the same computation if and only if their ids are equal: same operands, in the same order, rounded at
//    the same places. A node rounds once, after all its operands are combined.
// 2. An operand's id is smaller than that of the expression it is part of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"

namespace tutti::exec::prove {

using Expr = uint32_t;

class Expressions {
 public:
  /// Forgets everything; the ids 0 … ranks-1 are then the ranks' contributions.
  void reset(int32_t ranks);
  int32_t ranks() const { return ranks_; }

  Expr leaf(Rank rank) const { return static_cast<Expr>(rank.value); }
  /// Combines `count` ≥ 1 operands from left to right and rounds once. A single operand is itself.
  Expr sum(const Expr* operands, int32_t count);

  /// The operands that `expr` combines; none for a rank's contribution.
  std::span<const Expr> operandsOf(Expr expr) const {
    if (expr < static_cast<Expr>(ranks_)) return {};
    return {operands_.data() + nodes_[expr].begin, nodes_[expr].count};
  }

  /// How often each rank's contribution is part of `expr`, by rank.
  std::vector<uint64_t> contributions(Expr expr) const;
  /// "r2+(r1+(r0+r3))", cut short where it is long.
  std::string text(Expr expr) const;

 private:
  struct Node {
    uint32_t begin = 0;
    uint32_t count = 0;
  };
  bool equals(Expr expr, const Expr* operands, uint32_t count) const;
  void grow();
  void addText(std::string& text, Expr expr) const;

  int32_t ranks_ = 0;
  std::vector<Node> nodes_;
  std::vector<Expr> operands_;
  std::vector<uint32_t> table_;  // open addressing; 0 is empty, otherwise expression + 1
};

/// What an algorithm's order() builds its promise with.
class OrderBuilder {
 public:
  explicit OrderBuilder(Expressions& pool) : pool_(pool) {}
  Expr leaf(Rank rank) const { return pool_.leaf(rank); }
  /// The own contribution first, then what was received, rounded once.
  template <class... Rest>
  Expr add(Expr own, Rest... received) {
    const Expr operands[] = {own, received...};
    return pool_.sum(operands, 1 + static_cast<int32_t>(sizeof...(received)));
  }
  /// operand(0) … operand(n-1), rounded once.
  template <class Operand>
  Expr addEach(int32_t n, Operand&& operand) {
    std::vector<Expr> all;
    all.reserve(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) all.push_back(operand(i));
    return pool_.sum(all.data(), n);
  }
  /// The contributions of ranks 0 … n-1 in rank order, rounded once.
  Expr addRanks(int32_t n) {
    return addEach(n, [&](int32_t rank) { return leaf(Rank(rank)); });
  }

 private:
  Expressions& pool_;
};

}  // namespace tutti::exec::prove
