// Every planted bug of CMakeLists.txt is rejected, with a message that says where; the headers as they are shipped are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "algo/list.h"
#include "exec/prove/collective.h"
#include "exec/prove/prove.h"
#include "mutants.h"

namespace tutti::exec::prove::mutants_test {
namespace {

struct Mutant {
  const char* name;
  Subject subject;
  bool inPlaceOnly;
  std::vector<const char*> words;
};

template <class A>
Mutant makeMutant(const char* name, bool inPlaceOnly, std::initializer_list<const char*> words) {
  return {name, subjectOf<A>(), inPlaceOnly, words};
}

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> all = {
#define MUTANT(name, algorithm, inPlace, ...) makeMutant<algo::name::algorithm>(#name, inPlace, {__VA_ARGS__}),
#include "mutants.inc"
#undef MUTANT
  };
  return all;
}

/// The first case that fails, of those that any algorithm has to pass.
Proof firstFailure(const Subject& subject, bool inPlaceOnly = false, int32_t banks = 2) {
  Prover prover;
  const int32_t slots = std::max(1, subject.traits.minSlots);
  for (int32_t ranks = 2; ranks <= 12; ++ranks) {
    for (int32_t nodeRanks = 0; nodeRanks <= (subject.traits.usesNodes ? ranks / 2 : 0); ++nodeRanks) {
      if (nodeRanks > 0 && ranks % nodeRanks != 0) continue;
      for (const bool inPlace : {false, true}) {
        if ((inPlace && !hasInPlace(subject.traits.collective)) || (inPlaceOnly && !inPlace)) continue;
        for (const uint64_t layout : {uint64_t{0}, kChannelLayouts + 10}) {  // the latter: nodes of three, whose heads have three children
          for (const bool places : {false, true}) {
            if (places && !subject.traits.places) continue;
            Proof proof =
                prover.prove({&subject, nullptr, ranks, ranks / 2, slots, 3, 1, 4, banks, inPlace, layout, nodeRanks, 0, places});
            if (!proof.ok) return proof;
          }
        }
      }
    }
  }
  Proof passed;
  passed.ok = true;
  return passed;
}

class PlantedBug : public testing::TestWithParam<size_t> {};

TEST_P(PlantedBug, IsRejectedWithItsPlace) {
  const Mutant& mutant = mutants()[GetParam()];
  const Proof proof = firstFailure(mutant.subject, mutant.inPlaceOnly);
  ASSERT_FALSE(proof.ok) << mutant.name;
  for (const char* word : {"rank ", "lane", "slice"})
    EXPECT_NE(proof.failure.find(word), std::string::npos) << word << ": " << proof.failure;
  for (const char* word : mutant.words) EXPECT_NE(proof.failure.find(word), std::string::npos) << word << ": " << proof.failure;
}
INSTANTIATE_TEST_SUITE_P(All, PlantedBug, testing::Range(size_t{0}, mutants().size()),
                         [](const auto& param) { return std::string(mutants()[param.param].name); });

TEST(PlantedBugs, TheShippedHeadersPassTheSameCases) {
  for (const Subject& subject : subjects()) {
    const Proof proof = firstFailure(subject);
    EXPECT_TRUE(proof.ok) << proof.failure;
  }
}

TEST(PlantedBugs, OneBankIsTooFew) {
  for (const Subject& subject : subjects()) {
    if (subject.traits.needs != algo::Needs::PeerMemory) continue;
    const Proof proof = firstFailure(subject, false, 1);
    EXPECT_FALSE(proof.ok) << subject.traits.name;
    EXPECT_NE(proof.failure.find(subject.traits.name), std::string::npos) << proof.failure;
    EXPECT_NE(proof.failure.find("rank "), std::string::npos) << proof.failure;
  }
}

}  // namespace
}  // namespace tutti::exec::prove::mutants_test
