#include "memory/device_scratch.h"

#include <algorithm>
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
  if (bytes.value == 0 || (place_ == Place::Device && bytes.value > gpu_.info().memory.value))
    return fail(Code::UnhandledCudaError, "device {}: {} bytes for {}: expected at least one, and no more than the device's {}",
                gpu_.device(), bytes.value, name(purpose), gpu_.info().memory.value);
  const uint64_t unit = kAlignment.value;
  const uint64_t size = (bytes.value + unit - 1) / unit * unit;
  const std::lock_guard lock(mutex_);
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const auto& segment : segments_) {
      const auto offset = segment->parts.take(size, purpose == Purpose::Windows ? kWindowAlignment.value : unit);
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
  auto memory = place_ == Place::Host ? DeviceMemory::onHost(gpu_, size) : DeviceMemory::allocate(gpu_, size, own);
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

Result<Segment*> ScratchPool::find(uint64_t number) const {
  const auto found = std::ranges::find(segments_, number, [](const auto& segment) { return segment->number; });
  if (found != segments_.end()) return found->get();
  return fail(Code::InvalidArgument, "device {} has no segment {} of scratch{}", gpu_.device(), number,
              number != 0 && number <= lastNumber_ ? " any more" : "");
}

Result<Shared> ScratchPool::share(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto segment = find(number);
  if (!segment) return tl::unexpected(segment.error());
  const DeviceMemory& memory = (*segment)->memory;
  if (memory.localKind() == ShareKind::None)
    return fail(Code::UnhandledCudaError, "device {}: its memory cannot be shared with other processes of this host (no file descriptors)",
                gpu_.device());
  return memory.share(memory.localKind());
}

Result<driver::cuda::DevicePtr> ScratchPool::allow(uint64_t number, const Gpu& reader) {
  const std::lock_guard lock(mutex_);
  const auto found = find(number);
  if (!found) return tl::unexpected(found.error());
  Segment& segment = **found;
  if (place_ == Place::Host) return segment.memory.hostAddressFor(reader);
  const driver::cuda::DevicePtr address = segment.memory.address();
  if (reader.device() == gpu_.device() || std::ranges::count(segment.readers, reader.device()) != 0) return address;
  Status allowed;
  if (segment.memory.isVirtual()) {
    // Changes what the devices of the list may do, and no other.
    const driver::cuda::AccessDesc access[] = {driver::cuda::readWriteFrom(reader.device())};
    allowed = gpu_.driver().setAccess({address, segment.memory.size()}, access);
  } else {
    allowed = allowPlainAccess(reader, gpu_);
  }
  if (!allowed.ok())
    return tl::unexpected(std::move(allowed).at(format("scratch of device {} for device {}", gpu_.device(), reader.device())));
  segment.readers.push_back(reader.device());
  return address;
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
