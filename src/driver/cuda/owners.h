// Owners of what the driver gives: each gives it back exactly once, in the reverse order of declaration.
//
// Owner: the holder (move-only); the Driver must outlive it. Not thread-safe, as any value.
// 1. An empty owner holds no driver, so that any number may be a handle.
// 2. A ContextScope belongs to one thread and one block: scopes end in the reverse order of their beginning.
#pragma once

#include <utility>

#include "driver/cuda/driver.h"

namespace tutti::driver::cuda {

template <class Handle, void (Driver::*kClose)(Handle)>
class [[nodiscard]] Owned {
 public:
  Owned() = default;
  Owned(Driver& driver, Handle handle) : driver_(&driver), handle_(handle) {}
  Owned(Owned&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)), handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this == &other) return *this;
    reset();
    driver_ = std::exchange(other.driver_, nullptr);
    handle_ = std::exchange(other.handle_, Handle{});
    return *this;
  }
  ~Owned() { reset(); }

  explicit operator bool() const { return driver_ != nullptr; }
  Handle get() const { return handle_; }
  void reset() {
    if (Driver* driver = std::exchange(driver_, nullptr); driver != nullptr) (driver->*kClose)(std::exchange(handle_, Handle{}));
  }

  /// The owner of what a method of Driver has just given.
  static Result<Owned> of(Driver& driver, Result<Handle> handle) {
    if (!handle) return tl::unexpected(std::move(handle).error());
    return Owned(driver, *handle);
  }

 private:
  Driver* driver_ = nullptr;
  Handle handle_{};
};

using OwnedMemory = Owned<MemHandle, &Driver::releaseMemory>;  ///< a reference to physical memory: mappings keep it too
using OwnedAddresses = Owned<Range, &Driver::freeAddresses>;   ///< with nothing mapped in it
using OwnedMap = Owned<Range, &Driver::unmap>;
using OwnedStream = Owned<Stream, &Driver::destroyStream>;
using OwnedEvent = Owned<Event, &Driver::destroyEvent>;

/// A device that this process works on: keeps its primary context, which the CUDA runtime uses too.
class [[nodiscard]] PrimaryContext {
 public:
  PrimaryContext() = default;
  static Result<PrimaryContext> retain(Driver& driver, const DeviceInfo& info) {
    auto context = driver.retainPrimary(info.device);
    if (!context) return tl::unexpected(std::move(context).error());
    PrimaryContext result;
    result.context_ = *context;
    result.kept_ = Kept(driver, info.device);
    result.driver_ = &driver;
    result.info_ = info;
    return result;
  }
  Driver& driver() const { return *driver_; }
  Device device() const { return info_.device; }
  const DeviceInfo& info() const { return info_; }
  Context get() const { return context_; }

 private:
  using Kept = Owned<Device, &Driver::releasePrimary>;
  Driver* driver_ = nullptr;
  Context context_ = nullptr;
  Kept kept_;
  DeviceInfo info_;
};

/// A context is current in this thread as long as the scope lives; then the one before is again.
class [[nodiscard]] ContextScope {
 public:
  ContextScope(ContextScope&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ContextScope& operator=(ContextScope&&) = delete;
  ~ContextScope() {
    if (driver_ != nullptr) driver_->popContext();
  }
  static Result<ContextScope> enter(const PrimaryContext& context) {
    if (Status status = context.driver().pushContext(context.get()); !status.ok()) return tl::unexpected(std::move(status));
    return ContextScope(context.driver());
  }

 private:
  explicit ContextScope(Driver& driver) : driver_(&driver) {}
  Driver* driver_;
};

/// Captures that this thread or others have under way do not forbid what it does: for what no capture is to record.
class [[nodiscard]] OutsideCaptures {
 public:
  static Result<OutsideCaptures> enter(Driver& driver) {
    const auto mode = driver.exchangeCaptureMode(CaptureMode::Relaxed);
    if (!mode) return tl::unexpected(mode.error());
    return OutsideCaptures(driver, *mode);
  }
  OutsideCaptures(OutsideCaptures&& other) noexcept : driver_(std::exchange(other.driver_, nullptr)), before_(other.before_) {}
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(OutsideCaptures&&) = delete;
  ~OutsideCaptures() {
    if (driver_ == nullptr) return;
    if (const auto mode = driver_->exchangeCaptureMode(before_); !mode) driver_->tellLost(mode.error());
  }

 private:
  OutsideCaptures(Driver& driver, CaptureMode before) : driver_(&driver), before_(before) {}
  Driver* driver_;
  CaptureMode before_;
};

/// The same, and a context is current: for set-up.
class [[nodiscard]] SetUpScope {
 public:
  static Result<SetUpScope> enter(const PrimaryContext& context) {
    auto scope = ContextScope::enter(context);
    if (!scope) return tl::unexpected(std::move(scope).error());
    auto outside = OutsideCaptures::enter(context.driver());
    if (!outside) return tl::unexpected(std::move(outside).error());
    return SetUpScope(std::move(*scope), std::move(*outside));
  }

 private:
  SetUpScope(ContextScope scope, OutsideCaptures outside) : scope_(std::move(scope)), outside_(std::move(outside)) {}
  ContextScope scope_;
  OutsideCaptures outside_;
};

}  // namespace tutti::driver::cuda
