#include "exec/prove/subject.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "algo/list.h"

namespace tutti::exec::prove::subject_test {
namespace {

TEST(Subjects, AreTheListOfAlgorithmsInItsOrder) {
  std::vector<algo::Traits> expected;
  algo::AllAlgorithms::forEach([&]<class A>() { expected.push_back(A::kTraits); });
  ASSERT_EQ(subjects().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(subjects()[i].traits.name, expected[i].name) << i;
    EXPECT_EQ(subjects()[i].traits.collective, expected[i].collective) << i;
  }
}

TEST(Subjects, NoTwoHaveOneNameForOneCollective) {
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Subject& s : subjects()) EXPECT_TRUE(names.emplace(s.traits.collective, s.traits.name).second) << s.traits.name;
}

TEST(Subjects, AreFoundByCollectiveAndName) {
  for (const Subject& s : subjects()) EXPECT_EQ(findSubject(s.traits.collective, s.traits.name), &s);
  EXPECT_NE(findSubject(Collective::AllReduce, "ring"), findSubject(Collective::Broadcast, "ring"));
  EXPECT_EQ(findSubject(Collective::AllReduce, "rin"), nullptr);
  EXPECT_EQ(findSubject(Collective::AllReduce, ""), nullptr);
  EXPECT_EQ(findSubject(Collective::Gather, "ring"), nullptr) << "another collective's name";
}

TEST(Subjects, PromiseAnOrderExactlyWhereSomethingIsReduced) {
  for (const Subject& s : subjects())
    EXPECT_EQ(s.order != nullptr, reduces(s.traits.collective)) << name(s.traits.collective) << ' ' << s.traits.name;
}

TEST(Subjects, AskTheAlgorithmItself) {
  const Subject* const ring = findSubject(Collective::AllReduce, "ring");
  const Subject* const tree = findSubject(Collective::AllReduce, "tree");
  ASSERT_TRUE(ring && tree && ring->chunks && ring->lanes && ring->record);
  for (const int32_t ranks : {1, 2, 5, 64}) {
    EXPECT_EQ(ring->chunks(ranks), algo::RingAllReduce::chunks(ranks));
    EXPECT_EQ(tree->lanes(ranks), algo::TreeAllReduce::lanes(ranks));
  }
  EXPECT_NE(ring->lanes(8), tree->lanes(8)) << "each its own";
}

}  // namespace
}  // namespace tutti::exec::prove::subject_test
