// Where each node of a topology stands in its picture.
//
// Pure function; any thread. Units are those of SVG.
// 1. Trees hang below their CPUs, leaves in columns of equal width from left to right; GPUs and NICs share a row, nets stand below it
//    (one row farther where GPUs are linked directly), NVSwitches below the nets. More than eight nets of one NIC are a block of
//    several rows. Every node has a place, and no two have the same.
#pragma once

#include <vector>

#include "topo/graph.h"

namespace tutti::tool {

struct Place {
  double x = 0;  ///< Of its centre.
  double y = 0;
};

struct Layout {
  static constexpr double kColumn = 128;
  static constexpr double kRow = 96;
  static constexpr double kBoxWidth = 112;
  static constexpr double kBoxHeight = 36;

  std::vector<Place> places;       ///< By node.
  std::vector<bool> isTreeLink;    ///< By link: it leads down a tree.
  double width = 0;
  double height = 0;
};

/// `top`: the space above the CPUs.
Layout layOut(const topo::System& system, double top);

}  // namespace tutti::tool
