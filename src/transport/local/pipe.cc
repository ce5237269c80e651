#include "transport/local/pipe.h"

#include <new>
#include <utility>

namespace tutti::transport::local {

Result<Pipe> Pipe::create(uint32_t slots, uint64_t slotBytes) {
  constexpr uint64_t kPage = 4096;
  const uint64_t control = sizeof(FreedCount) + slots * sizeof(SlotHead);
  const uint64_t staging = (control + kPage - 1) / kPage * kPage;
  const uint64_t stride = (slotBytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  auto mapping = memory::Mapping::anonymous(Bytes(staging + slots * stride));
  if (!mapping) return tl::unexpected(std::move(mapping).error().at("create pipe"));

  Pipe pipe;
  pipe.mapping_ = std::move(*mapping);
  std::byte* base = pipe.mapping_.data();
  pipe.view_.freed = new (base) FreedCount{};
  pipe.view_.heads = new (base + sizeof(FreedCount)) SlotHead[slots]{};
  pipe.view_.memory = base + staging;
  pipe.view_.slots = slots;
  pipe.view_.slotBytes = stride;
  return pipe;
}

}  // namespace tutti::transport::local
