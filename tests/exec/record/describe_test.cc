#include "exec/record/describe.h"

#include <gtest/gtest.h>

namespace tutti::exec::record::describe_test {
namespace {

using algo::in;
using algo::out;

/// Records one verb and describes it.
template <class Say>
std::string described(Say&& say) {
  std::vector<Step> steps;
  Recorder lane(steps);
  say(lane);
  return steps.size() == 1 ? describe(steps[0]) : "not one step";
}

TEST(Describe, EveryVerbByItsName) {
  const algo::Peers p = Rank(3);
  EXPECT_EQ(described([&](auto& l) { l.send(out(1), p); }), "send out[1] to 3");
  EXPECT_EQ(described([&](auto& l) { l.copySend(in(1), out(2), p); }), "copySend in[1] out[2] to 3");
  EXPECT_EQ(described([&](auto& l) { l.copy(in(1), out(2)); }), "copy in[1] out[2]");
  EXPECT_EQ(described([&](auto& l) { l.recvCopy(p, out(2)); }), "recvCopy from 3 out[2]");
  EXPECT_EQ(described([&](auto& l) { l.recvCopySend(p, out(2), Rank(5)); }), "recvCopySend from 3 out[2] to 5");
  EXPECT_EQ(described([&](auto& l) { l.contribute(in(0), p); }), "contribute in[0] to 3");
  EXPECT_EQ(described([&](auto& l) { l.reduceCopy(in(0), out(0)); }), "reduceCopy in[0] out[0]");
  EXPECT_EQ(described([&](auto& l) { l.recvReduceSend(p, in(2), Rank(5)); }), "recvReduceSend from 3 in[2] to 5");
  EXPECT_EQ(described([&](auto& l) { l.recvReduceCopy(p, in(2), out(2)); }), "recvReduceCopy from 3 in[2] out[2]");
  EXPECT_EQ(described([&](auto& l) { l.recvReduceCopySend(p, in(2), out(2), Rank(5)); }), "recvReduceCopySend from 3 in[2] out[2] to 5");
  EXPECT_EQ(described([&](auto& l) { l.give(2); }), "give lane 2");
  EXPECT_EQ(described([&](auto& l) { l.take(0); }), "take lane 0");
  EXPECT_EQ(described([&](auto& l) { l.store(in(0), Rank(4)); }), "store in[0] to 4");
  EXPECT_EQ(described([&](auto& l) { l.arrive(Rank(4)); }), "arrive to 4");
  EXPECT_EQ(described([&](auto& l) { l.await(Rank(4)); }), "await from 4");
  EXPECT_EQ(described([&](auto& l) { l.loadReduce(out(0)); }), "loadReduce out[0]");
}

TEST(Describe, ListsAllPeers) {
  algo::Peers two = Rank(1);
  two.add(Rank(2));
  EXPECT_EQ(described([&](auto& l) { l.recvReduceSend(two, in(0), Rank(5)); }), "recvReduceSend from 1,2 in[0] to 5");
}

}  // namespace
}  // namespace tutti::exec::record::describe_test
