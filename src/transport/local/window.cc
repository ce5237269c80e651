#include "transport/local/window.h"

#include <new>
#include <utility>

namespace tutti::transport::local {

Result<Window> Window::create(int32_t ranks, uint64_t cellBytes) {
  const auto cells = 2 * static_cast<uint64_t>(ranks);
  const uint64_t stride = (cellBytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  const uint64_t control = cells * sizeof(CellHead) + static_cast<uint64_t>(ranks) * sizeof(ReturnedEpoch);
  auto mapping = memory::Mapping::anonymous(Bytes(control + cells * stride));
  if (!mapping) return tl::unexpected(std::move(mapping).error().at("create window"));

  Window window;
  window.mapping_ = std::move(*mapping);
  window.view_.heads = new (window.mapping_.data()) CellHead[cells]{};
  window.view_.returned = new (window.mapping_.data() + cells * sizeof(CellHead)) ReturnedEpoch[static_cast<size_t>(ranks)]{};
  window.view_.payloads = window.mapping_.data() + control;
  window.view_.ranks = ranks;
  window.view_.cellBytes = stride;
  return window;
}

}  // namespace tutti::transport::local
