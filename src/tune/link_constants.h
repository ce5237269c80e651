// NCCL's terms for what the choice of an algorithm is about, and the constants that its model has for them.
//
// Plain values. Numbers of algorithms, protocols and tables are facts of the tuner ABI (tune/plugin/abi.h).
// 1. 0 stands for what is not to be had.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tutti::tune {

/// As tuner plugins and NCCL_ALGO know them.
enum class NcclAlgorithm : uint8_t { Tree, Ring, CollnetDirect, CollnetChain, Nvls, NvlsTree, Pat };
inline constexpr int kNcclAlgorithms = 7;
enum class NcclProtocol : uint8_t { LL, LL128, Simple };
inline constexpr int kNcclProtocols = 3;
/// What a hop goes over.
enum class LinkKind : uint8_t { NvLink, Pci, Net };
inline constexpr int kLinkKinds = 3;
/// The oldest GPU.
enum class Generation : uint8_t { Volta, Ampere, Hopper, Blackwell };
inline constexpr int kGenerations = 4;
/// 1 node, 2, more.
inline constexpr int kScales = 3;

/// "Tree", "CollnetDirect": as NCCL_ALGO takes it.
std::string_view name(NcclAlgorithm algorithm);
/// "LL128": as NCCL_PROTO takes it.
std::string_view name(NcclProtocol protocol);

using ByProtocol = std::array<double, kNcclProtocols>;
using ByScale = std::array<double, kScales>;

struct LinkConstants {
  std::array<ByProtocol, kNcclAlgorithms> baseUs{};  ///< a call without its hops
  std::array<std::array<ByProtocol, kNcclAlgorithms>, kLinkKinds> hopUs{};
  std::array<ByScale, kGenerations> llGBs{};  ///< LL, all channels together
  std::array<ByScale, kGenerations> ringLl128ChannelGBs{};
  std::array<ByScale, kGenerations> treeLl128ChannelGBs{};
  std::array<ByScale, kGenerations> treeChannelGBs{};
  std::array<ByScale, kGenerations> nvlsTreeChannelGBs{};
  /// What is left of the speed of the channels.
  double ringLl = 0;
  double ringLl128 = 0;
  double ringSimple = 0;
  double tree = 0;
  double treeLl = 0;          ///< and then
  double treeLl128 = 0;       ///< and then, on one node
  double treeLl128Nodes = 0;  ///< and then, on several
  double oneChain = 0;        ///< trees whose channels have one GPU for both ways of the net
  double pat = 0;
  double plateau = 0;  ///< by how much the latency of a large Simple ring over nodes grows
};

}  // namespace tutti::tune
