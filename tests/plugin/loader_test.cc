#include "plugin/loader.h"

#include <gtest/gtest.h>

namespace tutti::plugin {
namespace {

using Names = std::vector<std::string>;

TEST(PluginFiles, AreTheNameAndThenTheConventionalOne) {
  EXPECT_EQ(filesOf("ofi", "nccl-net"), (Names{"ofi", "libnccl-net-ofi.so"}));
  EXPECT_EQ(filesOf("libfoo.so", "nccl-net"), Names{"libfoo.so"});
  EXPECT_EQ(filesOf("libfoo.so.1", "nccl-net"), (Names{"libfoo.so.1", "libnccl-net-libfoo.so.1.so"}));
  EXPECT_EQ(filesOf("/opt/foo", "nccl-net"), Names{"/opt/foo"});
  EXPECT_EQ(filesOf("./foo", "nccl-net"), Names{"./foo"});
  EXPECT_EQ(filesOf("STATIC_PLUGIN", "nccl-net"), Names{""});
}

TEST(PluginFiles, FollowTheKindOfPlugin) {
  EXPECT_EQ(filesOf("best", "nccl-tuner"), (Names{"best", "libnccl-tuner-best.so"}));
}

TEST(Open, TellsWhatEveryFileCameTo) {
  const auto none = open("no-such-thing", "nccl-tuner");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::SystemError);
  EXPECT_NE(none.error().text().find("libnccl-tuner-no-such-thing.so"), std::string::npos) << none.error().text();
  const auto self = open("STATIC_PLUGIN", "nccl-tuner");
  ASSERT_TRUE(self);
  const char* const symbols[] = {"no_such_symbol", "dlopen"};
  const Found found = find(*self, symbols);
  EXPECT_NE(found.raw, nullptr);
  EXPECT_EQ(found.place, 1u);
  EXPECT_EQ(find(*self, std::span(symbols, 1)).raw, nullptr);
}

TEST(IsName, BoundsWhatAPluginSays) {
  EXPECT_FALSE(isName(nullptr));
  EXPECT_TRUE(isName("x"));
  EXPECT_FALSE(isName(std::string(300, 'x').c_str()));
}

}  // namespace
}  // namespace tutti::plugin
