#include "transport/local/window.h"

#include <utility>

namespace tutti::transport::local {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t strideOf(uint64_t cellBytes) { return (cellBytes + kCacheLine - 1) / kCacheLine * kCacheLine; }
uint64_t payloadsAt(uint64_t ranks) {
  return (2 * ranks * sizeof(CellHead) + ranks * sizeof(ReturnedEpoch) + kPage - 1) / kPage * kPage;
}

}  // namespace

uint64_t windowBytes(int32_t ranks, uint64_t cellBytes) {
  const auto n = static_cast<uint64_t>(ranks);
  return payloadsAt(n) + 2 * n * strideOf(cellBytes);
}

WindowView windowIn(std::byte* memory, int32_t ranks, uint64_t cellBytes) {
  const auto n = static_cast<uint64_t>(ranks);
  WindowView view;
  view.heads = reinterpret_cast<CellHead*>(memory);
  view.returned = reinterpret_cast<ReturnedEpoch*>(memory + 2 * n * sizeof(CellHead));
  view.payloads = memory + payloadsAt(n);
  view.ranks = ranks;
  view.cellBytes = strideOf(cellBytes);
  return view;
}

Result<Window> Window::create(int32_t ranks, uint64_t cellBytes) {
  auto mapping = memory::Mapping::anonymous(Bytes(windowBytes(ranks, cellBytes)));
  if (!mapping) return tl::unexpected(std::move(mapping).error().at("create window"));
  Window window;
  window.mapping_ = std::move(*mapping);
  window.view_ = windowIn(window.mapping_.data(), ranks, cellBytes);
  for (int32_t r = 0; r < ranks; ++r) window.view_.returned[r].reach.store(kReachesAll, std::memory_order_relaxed);
  return window;
}

}  // namespace tutti::transport::local
