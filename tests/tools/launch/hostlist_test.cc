#include "launch/hostlist.h"

#include <gtest/gtest.h>

namespace tutti::launch::hostlist_test {
namespace {

TEST(Hostlist, FirstHost) {
  EXPECT_EQ(firstHost("alpha"), "alpha");
  EXPECT_EQ(firstHost("gpu-b2,node[01-03]"), "gpu-b2");
  EXPECT_EQ(firstHost("node[01-03,7],gpu-b2"), "node01");
  EXPECT_EQ(firstHost("node[7,01-03]"), "node7");
  EXPECT_EQ(firstHost("rack[2-4]n[05,7]x,other"), "rack2n05x");
  EXPECT_EQ(firstHost("n[3].example.org"), "n3.example.org");
}

TEST(Hostlist, Malformed) {
  for (const char* list : {"", ",a", "node[", "node[]", "node[a-b]", "node]", "node[-3]", "node[1-3", "n[01x-3]"}) {
    EXPECT_FALSE(firstHost(list)) << list;
  }
}

TEST(Hostlist, TasksOfNode) {
  EXPECT_EQ(tasksOfNode("4", 0), 4);
  EXPECT_EQ(tasksOfNode("4(x2),3", 0), 4);
  EXPECT_EQ(tasksOfNode("4(x2),3", 1), 4);
  EXPECT_EQ(tasksOfNode("4(x2),3", 2), 3);
  EXPECT_EQ(tasksOfNode("2,1(x3),5", 3), 1);
}

TEST(Hostlist, TasksMalformedOrTooFew) {
  for (const char* list : {"", "x", "4(", "4(x", "4(x0)", "4(x2", "4;3", "-1", "4,"}) EXPECT_FALSE(tasksOfNode(list, 1)) << list;
  EXPECT_FALSE(tasksOfNode("4(x2),3", 3));
}

}  // namespace
}  // namespace tutti::launch::hostlist_test
