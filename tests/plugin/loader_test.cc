#include "plugin/loader.h"

#include <gtest/gtest.h>

namespace tutti::plugin::loader_test {
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
  struct Version {
    int number;
    const char* symbol;
  };
  static constexpr Version kVersions[] = {{3, "no_such_symbol"}, {2, "dlopen"}, {1, "dlclose"}};
  const auto found = find(*self, std::span<const Version>(kVersions), 3);
  EXPECT_NE(found.raw, nullptr);
  EXPECT_EQ(found.version, &kVersions[1]);
  EXPECT_EQ(find(*self, std::span<const Version>(kVersions), 1).version, &kVersions[2]) << "no newer than that";
  EXPECT_EQ(find(*self, std::span<const Version>(kVersions, 1), 3).raw, nullptr);
}

TEST(IsName, BoundsWhatAPluginSays) {
  EXPECT_FALSE(isName(nullptr));
  EXPECT_TRUE(isName("x"));
  EXPECT_FALSE(isName(std::string(300, 'x').c_str()));
}

}  // namespace
}  // namespace tutti::plugin::loader_test
