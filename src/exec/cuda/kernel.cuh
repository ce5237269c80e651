// The kernel of every algorithm: one thread block runs one lane of one channel, slice after slice.
//
// Grid: channels × lanes blocks, all of which must be resident at once, since they wait for each other across ranks.
#pragma once

#include "exec/cuda/arch/sync.cuh"
#include "exec/cuda/launch.h"

namespace tutti::exec::cuda {

template <class Algorithm, class Lane>
__global__ void __launch_bounds__(Lane::kThreads, 1) runLanes(const __grid_constant__ typename Lane::Launch launch) {
  __shared__ typename Lane::Shared shared;
  const int32_t lanes = Algorithm::lanes(launch.call.view.ranks);
  const int32_t channel = static_cast<int32_t>(blockIdx.x) / lanes;
  const int32_t laneIndex = static_cast<int32_t>(blockIdx.x) % lanes;
  arch::waitForPrecedingGrids();
  arch::allowNextGrid();
  Lane lane(launch, shared, channel, laneIndex, lanes);
  for (int32_t slice = 0; slice < launch.call.geometry.slices; ++slice) {
    lane.beginSlice(slice);
    Algorithm::run(lane, launch.call.view, laneIndex);
  }
  lane.finish();
}

}  // namespace tutti::exec::cuda
