#include "config/effects.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tutti::config::effects_test {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Effects, WhatIsSetInVainIsNamedWithItsValueAndAReason) {
  ASSERT_EQ(withoutEffect(), std::vector<std::string>());
  const Variable threads("NCCL_NTHREADS", "256");
  const Variable gdr("NCCL_NET_GDR_LEVEL", "SYS");
  const Variable merged("NCCL_NET_MERGE_LEVEL", "SYS");
  const Variable honoured("NCCL_MIN_NCHANNELS", "4");
  const std::vector<std::string> lines = withoutEffect();
  ASSERT_EQ(lines.size(), 3u);
  const auto has = [&](const char* text) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  EXPECT_TRUE(has("NCCL_NTHREADS=256 has no effect: kernels run with the number of threads"));
  EXPECT_TRUE(has("NCCL_NET_GDR_LEVEL=SYS has no effect: GPUs of a communicator are on one host"));
  EXPECT_TRUE(
      has("NCCL_NET_MERGE_LEVEL=SYS has no effect: devices of a network stay single, and channels take them in turn; `tutti topo` does"));
}

/// Who asks for what happens anyway is not told that it does not.
TEST(Effects, DefaultsAndNothingAreNoWishes) {
  const Variable rails("NCCL_CROSS_NIC", "0x2");
  const Variable shared("NCCL_NET_SHARED_COMMS", "7");  // a switch: on, as it is
  const Variable family("NCCL_IB_ADDR_FAMILY", "AF_INET");
  const Variable adapters("NCCL_IB_HCA", "");
  EXPECT_EQ(withoutEffect(), std::vector<std::string>());
  const Variable off("NCCL_NET_SHARED_COMMS", "0");
  EXPECT_EQ(withoutEffect().size(), 1u);
}

TEST(Effects, WhatIsNoNumberIsNamedWithWhatItIsReadAs) {
  EXPECT_EQ(misread(), std::vector<std::string>());
  const Variable size("NCCL_BUFFSIZE", "4M");
  const Variable word("NCCL_P2P_DISABLE", "true");
  const Variable fraction("TUTTI_TIMEOUT_MS", "1.5");
  const Variable hex("NCCL_MAX_NCHANNELS", "0x10");
  const Variable blanks("NCCL_MIN_NCHANNELS", " 4 ");
  const Variable nothing("TUTTI_WARN_MS", "");
  const Variable text("NCCL_ALGO", "ring");
  auto lines = misread();
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "NCCL_BUFFSIZE=4M is read as 4: it takes a whole number, and no unit or word");
  EXPECT_EQ(lines[1].rfind("NCCL_P2P_DISABLE=true is read as 0: ", 0), 0u);
  EXPECT_EQ(lines[2].rfind("TUTTI_TIMEOUT_MS=1.5 is read as 1: ", 0), 0u);
}

TEST(Effects, AGrantedWishIsNotInVain) {
  constexpr std::pair<const char*, const char*> kGranted[] = {{"NCCL_IB_DISABLE", "1"},     {"NCCL_NVLS_ENABLE", "0"},
                                                              {"NCCL_COLLNET_ENABLE", "0"}, {"NCCL_RAS_ENABLE", "0"},
                                                              {"NCCL_NET_MERGE_LEVEL", "LOC"}};
  for (const auto& [name, value] : kGranted) {
    const Variable set(name, value);
    EXPECT_EQ(withoutEffect(), std::vector<std::string>());
  }
  for (const auto& [name, value] : {std::pair{"NCCL_NVLS_ENABLE", "1"}, std::pair{"NCCL_COLLNET_ENABLE", "1"}}) {
    const Variable set(name, value);
    EXPECT_EQ(withoutEffect().size(), 1u) << name;
  }
}

TEST(Effects, WhatOthersReadOrAnotherPartHonoursIsNotCalledVain) {
  const Variable blocking("CUDA_LAUNCH_BLOCKING", "1");
  const Variable rails("NCCL_CROSS_NIC", "0");
  const Variable cards("NCCL_NETDEVS_POLICY", "MAX:1");
  EXPECT_EQ(withoutEffect(), std::vector<std::string>());
}

TEST(Effects, EveryVariableWithoutEffectHasAReason) {
  for (const Entry& entry : table()) EXPECT_EQ(whyWithoutEffect(entry).empty(), entry.effect == Effect::Honoured) << entry.name;
}

}  // namespace
}  // namespace tutti::config::effects_test
