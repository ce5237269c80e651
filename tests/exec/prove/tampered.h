// Algorithms with a planted bug: the shipped template is recorded, then the recorded steps are changed.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "exec/prove/prove.h"

namespace tutti::exec::prove {

using algo::LayoutView;
using Steps = std::vector<algo::Step>;

/// `Change` is a function (Program&, const LayoutView&) without state.
template <class A, auto Change>
Subject tampered() {
  Subject subject = subjectOf<A>();
  subject.record = [](const LayoutView& view) {
    record::Program program = record::recordProgram<A>(view);
    Change(program, view);
    return program;
  };
  return subject;
}

/// Shape of a case, without its algorithm.
struct With {
  int32_t ranks = 4;
  int32_t slots = 2;
  int32_t slices = 2;
  int32_t operations = 1;
  int32_t banks = 2;
  bool inPlace = false;
  int32_t root = 0;
};

inline Proof proofOf(const Subject& subject, const With& with = {}) {
  Case c;
  c.algorithm = &subject;
  c.ranks = with.ranks;
  c.root = with.root;
  c.slots = with.slots;
  c.slices = with.slices;
  c.operations = with.operations;
  c.banks = with.banks;
  c.inPlace = with.inPlace;
  return prove(c);
}

/// The proof must fail, and its words must contain all of these.
inline void expectRejected(const Proof& proof, std::initializer_list<const char*> words) {
  EXPECT_FALSE(proof.ok);
  for (const char* word : words)
    EXPECT_NE(proof.failure.find(word), std::string::npos) << "\"" << word << "\" is not in: " << proof.failure;
}

}  // namespace tutti::exec::prove
