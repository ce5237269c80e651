#include "topo/settings.h"

#include <gtest/gtest.h>

namespace tutti::topo::settings_test {
namespace {

TEST(Settings, LevelsAreNamesOrTheOldNumbers) {
  EXPECT_EQ(parseLevel("NVL"), PathType::Nvl);
  EXPECT_EQ(parseLevel("P2C"), PathType::P2c);
  EXPECT_EQ(parseLevel("0"), PathType::Loc);
  EXPECT_EQ(parseLevel("1"), PathType::Pix);
  EXPECT_EQ(parseLevel("3"), PathType::Phb);
  EXPECT_EQ(parseLevel("9"), PathType::Sys);
  EXPECT_EQ(parseLevel("NET"), std::nullopt) << "no level: it is never direct";
  EXPECT_EQ(parseLevel("sys"), std::nullopt);
  EXPECT_EQ(parseLevel(""), std::nullopt);
}

TEST(Settings, DisablingPeerAccessWinsOverItsLevel) {
  PathSettings settings;
  ASSERT_TRUE(applyPathVariable("NCCL_P2P_LEVEL", "SYS", settings).ok());
  EXPECT_EQ(settings.p2pLevel, PathType::Sys);
  ASSERT_TRUE(applyPathVariable("NCCL_P2P_DISABLE", "1", settings).ok());
  EXPECT_TRUE(settings.p2pDisabled);
  ASSERT_TRUE(applyPathVariable("NCCL_P2P_LEVEL", "LOC", settings).ok());
  EXPECT_TRUE(settings.p2pDisabled);
}

TEST(Settings, WhatComesLaterTakesBackWhatCameBefore) {
  PathSettings settings;
  for (const char* const level : {"LOC", "SYS"}) ASSERT_TRUE(applyPathVariable("NCCL_P2P_LEVEL", level, settings).ok());
  EXPECT_EQ(settings.p2pLevel, PathType::Sys);
  for (const char* const flag : {"1", "0"}) ASSERT_TRUE(applyPathVariable("NCCL_P2P_DISABLE", flag, settings).ok());
  EXPECT_FALSE(settings.p2pDisabled);
  for (const char* const read : {"1", "-2"}) ASSERT_TRUE(applyPathVariable("NCCL_NET_GDR_READ", read, settings).ok());
  EXPECT_EQ(settings.netGdrRead, std::nullopt);
}

TEST(Settings, RefusalsNameVariableValueAndWhatIsTaken) {
  PathSettings settings;
  EXPECT_EQ(applyPathVariable("NCCL_P2P_LEVEL", "far", settings).text(),
            "NCCL_P2P_LEVEL=\"far\"; expected LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS");
  EXPECT_EQ(applyPathVariable("NCCL_PXN_DISABLE", "yes", settings).text(), "NCCL_PXN_DISABLE=\"yes\"; expected 0 or 1");
  EXPECT_FALSE(applyPathVariable("NCCL_NETDEVS_POLICY", "MAX:0", settings).ok());
  EXPECT_FALSE(applyPathVariable("NCCL_NETDEVS_POLICY", "MAX:2x", settings).ok());
  EXPECT_FALSE(applyPathVariable("NCCL_P2P_DISABLE", "2", settings).ok()) << "neither on nor off";
  EXPECT_FALSE(applyPathVariable("NCCL_NET_GDR_READ", "-1", settings).ok());
  EXPECT_TRUE(applyPathVariable("NCCL_DEBUG", "far", settings).ok());
  EXPECT_TRUE(applyPathVariable("NCCL_P2P_LEVEL", "", settings).ok());
}

TEST(Settings, TheRest) {
  PathSettings settings;
  for (const auto& [name, value] : std::vector<std::pair<std::string_view, std::string>>{{"NCCL_NETDEVS_POLICY", "max:2"},
                                                                                        {"NCCL_NET_GDR_READ", "0"},
                                                                                        {"NCCL_NET_GDR_C2C", "0"},
                                                                                        {"NCCL_NET_DISABLE_INTRA", "1"},
                                                                                        {"NCCL_NVB_DISABLE", "0x1"}}) {
    EXPECT_TRUE(applyPathVariable(name, value, settings).ok()) << name;
  }
  EXPECT_EQ(settings.netsPerGpu, 2);
  EXPECT_EQ(settings.netGdrRead, false);
  EXPECT_FALSE(settings.gdrC2c);
  EXPECT_TRUE(settings.netIntraDisabled);
  EXPECT_TRUE(settings.nvbDisabled);
  EXPECT_TRUE(applyPathVariable("NCCL_NETDEVS_POLICY", "ALL", settings).ok());
  EXPECT_EQ(settings.netsPerGpu, -1);
  for (const std::string_view name : pathVariables()) {
    PathSettings fresh;
    EXPECT_FALSE(applyPathVariable(name, "?", fresh).ok()) << name << " is listed, so it is read";
  }
}

}  // namespace
}  // namespace tutti::topo::settings_test
