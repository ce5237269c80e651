// NICs that work as one: nets of a machine's XML replaced by virtual ones, as NCCL_NET_MERGE_LEVEL and NCCL_NET_FORCE_MERGE say.
//
// Functions that change a tree which the caller owns; any thread.
// 1. A virtual net is a <net> with devs="0,1", the numbers of its members, and a dev of its own above all that there were. It hangs where
//    the ways of its members part, over their links together; its members are gone.
// 2. What is sent over it is cut evenly: its speed is that of the slowest member times their number. It has GPUDirect RDMA, and reduces, if
//    all members do. It has at most kMostMerged, as plugins do.
// 3. By level only PCI devices of one host that state the same speed are merged, in the order of the file.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "topo/xml.h"

namespace tutti::topo {

/// How far nets may be from one another to be merged, nearest first.
enum class MergeLevel : uint8_t {
  None,  ///< LOC: none are.
  Port,  ///< Ports of one PCI device.
  Pix,   ///< Below one switch.
  Pxb,   ///< Below several.
  Phb,   ///< Of one CPU.
  Sys,   ///< Of one host.
};

struct MergeSettings {
  MergeLevel level = MergeLevel::None;
  std::vector<std::vector<std::string>> groups;  ///< By name; whatever their distance.
};

inline constexpr size_t kMostMerged = 4;

/// The names that applyMergeVariable knows.
std::span<const std::string_view> mergeVariables();

/// Puts one variable into the settings; other names do nothing, and so do empty values. Levels are PORT or those of paths, of which the
/// ones nearer than PIX mean PORT, and those between PIX and PHB that no two NICs have mean PXB. Error: a value that the variable does not
/// take.
Status applyMergeVariable(std::string_view name, const std::string& value, MergeSettings& settings);

/// Names, and devs, count within a host: a group is merged on each host of a fused XML that has one of its nets. Error: a group that names
/// a net twice, or one that the machine, or that host, has not.
Status mergeNets(Document& machine, const MergeSettings& settings);

}  // namespace tutti::topo
