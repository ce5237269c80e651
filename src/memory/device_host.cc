#include "memory/device_host.h"

#include <utility>

namespace tutti::memory {

using driver::cuda::ContextScope;

RegisteredHost& RegisteredHost::operator=(RegisteredHost&& other) noexcept {
  if (this == &other) return *this;
  release();
  gpu_ = std::exchange(other.gpu_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, Bytes(0));
  return *this;
}

void RegisteredHost::release() {
  void* const data = std::exchange(data_, nullptr);
  if (data == nullptr) return;
  const auto scope = driver::cuda::SetUpScope::enter(gpu_->context());
  if (!scope) gpu_->driver().tellLost(scope.error());
  gpu_->driver().unregisterHost(data);
}

Result<RegisteredHost> RegisteredHost::make(const Gpu& gpu, void* data, Bytes bytes) {
  if (!gpu.info().hostRegister) return fail(Code::UnhandledCudaError, "device {} cannot address memory of the host", gpu.device());
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  if (Status status = gpu.driver().registerHost(data, bytes); !status.ok()) return tl::unexpected(std::move(status));
  RegisteredHost made;
  made.gpu_ = &gpu;
  made.data_ = data;
  made.size_ = bytes;
  return made;
}

Result<driver::cuda::DevicePtr> RegisteredHost::addressFor(const Gpu& gpu) const {
  const auto scope = ContextScope::enter(gpu.context());
  if (!scope) return tl::unexpected(scope.error());
  return gpu.driver().devicePointer(data_);
}

}  // namespace tutti::memory
