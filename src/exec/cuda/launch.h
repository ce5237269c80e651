// The parameters of one kernel launch of one rank. Plain value, passed by value; no user pointer outlives the launch.
#pragma once

#include <cstddef>
#include <type_traits>

#include "algo/geometry.h"
#include "algo/layout.h"
#include "exec/cuda/pipe.h"
#include "exec/cuda/verdict.h"
#include "exec/cuda/window.h"

namespace tutti::exec::cuda {

/// What every lane needs, whatever its capability.
struct Call {
  algo::LayoutView view;  ///< ring.order points to device memory, or is null
  algo::Geometry geometry;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  WaitControl wait;
};

struct PipeLaunch {
  Call call;
  PipeView pipes;
};
struct PeerLaunch {
  Call call;
  WindowView window;
};
static_assert(std::is_trivially_copyable_v<PipeLaunch> && std::is_trivially_copyable_v<PeerLaunch>);

}  // namespace tutti::exec::cuda
