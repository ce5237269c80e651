// Asks a rank's GPU where the shares of its window of cells are to begin (exec/cuda/near_pages.h).
#pragma once

#include "transport/device/surroundings.h"

namespace tutti::transport::device {

/// Puts the answer into the rank's card: before any peer knows of the window, which is zero and on the GPU. `control` is the rank's control
/// memory. Nothing where shares have no pages to choose from.
Status findNearPages(const Surroundings& around, driver::cuda::DevicePtr window, driver::cuda::DevicePtr control,
                     const EndpointConfig& config, const Page& page, Rank rank);

}  // namespace tutti::transport::device
