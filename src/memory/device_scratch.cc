#include "memory/device_scratch.h"

#include <utility>

namespace tutti::memory {

Bank& Bank::operator=(Bank&& other) noexcept {
  if (this == &other) return *this;
  release();
  pool_ = std::exchange(other.pool_, nullptr);
  segment_ = std::exchange(other.segment_, nullptr);
  offset_ = std::exchange(other.offset_, 0);
  size_ = std::exchange(other.size_, Bytes(0));
  purpose_ = std::exchange(other.purpose_, Purpose::Idle);
  return *this;
}

void Bank::release() {
  if (ScratchPool* pool = std::exchange(pool_, nullptr); pool != nullptr) pool->give(*this);
}

ScratchPool::~ScratchPool() { trim(); }

Result<Bank> ScratchPool::take(Purpose purpose, Bytes bytes) {
  if (bytes.value == 0 || bytes.value > gpu_.info().memory.value)
    return fail(Code::UnhandledCudaError, "device {}: {} bytes for {}: expected at least one, and no more than the device's {}",
                gpu_.device(), bytes.value, name(purpose), gpu_.info().memory.value);
  const uint64_t unit = kAlignment.value;
  const uint64_t size = (bytes.value + unit - 1) / unit * unit;
  const std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const auto& segment : segments_) {
      const auto offset = segment->parts.take(size, unit);
      if (!offset) continue;
      budget_.move(Purpose::Idle, purpose, Bytes(size));
      Bank bank;
      bank.pool_ = this;
      bank.segment_ = segment.get();
      bank.offset_ = *offset;
      bank.size_ = Bytes(size);
      bank.purpose_ = purpose;
      return bank;
    }
    if (attempt == 0) {
      if (Status status = grow(purpose, Bytes(size)); !status.ok()) return tl::unexpected(std::move(status));
    }
  }
  return fail(Code::InternalError, "device {}: a new segment has no room for {} bytes", gpu_.device(), size);
}

/// Adds a segment with at least that much room. All of it is charged before the driver is asked.
Status ScratchPool::grow(Purpose purpose, Bytes bytes) {
  const Bytes size = gpu_.roundUp(bytes);
  Status charged = budget_.charge(Purpose::Idle, size, purpose);
  if (!charged.ok()) {
    trimLocked();
    TUTTI_TRY(budget_.charge(Purpose::Idle, size, purpose));
  }
  const driver::cuda::Device own[] = {gpu_.device()};
  auto memory = DeviceMemory::allocate(gpu_, size, own);
  if (!memory) {
    budget_.credit(Purpose::Idle, size);
    return std::move(memory).error().at(format("{} bytes for {}; in use: {}", size.value, name(purpose), budget_.usage().text()));
  }
  auto segment = std::make_unique<Segment>();
  segment->memory = std::move(*memory);
  segment->number = ++lastNumber_;
  segment->parts = Offsets(size);
  segments_.push_back(std::move(segment));
  return {};
}

void ScratchPool::give(Bank& bank) {
  const std::lock_guard lock(mutex_);
  bank.segment_->parts.give(bank.offset_, bank.size_.value);
  budget_.move(bank.purpose_, Purpose::Idle, bank.size_);
}

void ScratchPool::trim() {
  const std::lock_guard lock(mutex_);
  trimLocked();
}

void ScratchPool::trimLocked() {
  std::erase_if(segments_, [this](const std::unique_ptr<Segment>& segment) {
    if (!segment->parts.empty()) return false;
    const Bytes size = segment->memory.size();
    segment->memory = DeviceMemory();  // gone before it no longer counts
    budget_.credit(Purpose::Idle, size);
    return true;
  });
}

size_t ScratchPool::segments() const {
  const std::lock_guard lock(mutex_);
  return segments_.size();
}

}  // namespace tutti::memory
