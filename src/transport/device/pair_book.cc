#include "transport/device/pair_book.h"

#include <algorithm>

namespace tutti::transport::device {

std::optional<bool> PairBook::find(const Gpu& one, const Gpu& other) const {
  const std::lock_guard lock(mutex_);
  const auto found = works_.find(ordered(one, other));
  return found == works_.end() ? std::nullopt : std::optional(found->second);
}

void PairBook::note(const Gpu& one, const Gpu& other, bool works) {
  const std::lock_guard lock(mutex_);
  works_[ordered(one, other)] = works;
}

Result<std::optional<driver::cuda::Device>> PairBook::deviceOf(driver::cuda::Driver& driver, const Gpu& gpu) {
  const std::lock_guard lock(mutex_);
  if (!devices_) {
    const auto count = driver.countDevices();
    if (!count) return tl::unexpected(count.error());
    std::vector<Gpu> devices;
    for (driver::cuda::Device device = 0; device < *count; ++device) {
      const auto uuid = driver.uuidOf(device);
      if (!uuid) return tl::unexpected(uuid.error());
      devices.push_back(uuid->bytes);
    }
    devices_ = std::move(devices);
  }
  const auto found = std::ranges::find(*devices_, gpu);
  if (found == devices_->end()) return std::nullopt;
  return static_cast<driver::cuda::Device>(found - devices_->begin());
}

void PairBook::clear() {
  const std::lock_guard lock(mutex_);
  works_.clear();
  devices_.reset();
}

}  // namespace tutti::transport::device
