#include "transport/device/near_pages.h"

namespace tutti::transport::device {

Status findNearPages(const Surroundings& around, driver::cuda::DevicePtr window, driver::cuda::DevicePtr control,
                     const EndpointConfig& config, const Page& page, Rank rank) {
  constexpr int kCells = exec::cuda::windowOf(exec::cuda::Protocol::Cells);
  if (!exec::cuda::hasNearPages(exec::cuda::Protocol::Cells, config.shareBytes[kCells])) return {};
  auto& pages = page.rank(rank.value).cellPages;
  const driver::cuda::DevicePtr found = control + ControlLayout(config, page.ranks()).nearPages;
  exec::cuda::NearLaunch launch;
  launch.window = reinterpret_cast<std::byte*>(window);
  launch.shareBytes = config.shareBytes[kCells];
  launch.rank = rank.value;
  launch.ranks = page.ranks();
  launch.channels = config.windowChannels[kCells];
  launch.pages = reinterpret_cast<exec::cuda::SharePages*>(found);
  TUTTI_TRY(around.executor->nearPages(launch, around.stream));
  driver::cuda::Driver& driver = around.gpu->driver();
  const Status copied = driver.copy(reinterpret_cast<driver::cuda::DevicePtr>(pages), found, Bytes(sizeof pages), around.stream);
  const Status ended = driver.synchronize(around.stream);  // also where nothing was copied: the kernel writes to memory that goes then
  return copied.ok() ? ended : copied;
}

}  // namespace tutti::transport::device
