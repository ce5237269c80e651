// Division of finished integer sums by one divisor, as multiplications: processors divide one element at a time, and slowly.
#include <cstring>

#include "core/element.h"
#include "exec/host/reduce/kernels.h"

namespace tutti::exec::host {
namespace {

/// Applies `quotient`, defined on magnitudes, to every element; the sign goes around it, which truncates towards zero.
template <DataType type, class Quotient>
void divideEach(void* data, size_t elems, Quotient quotient) {
  using Element = ElementOf<type>;
  using Unsigned = element::UnsignedOf<Element>::Type;
  auto* const bytes = static_cast<char*>(data);
  for (size_t i = 0; i < elems; ++i) {
    Element x;
    std::memcpy(&x, bytes + i * sizeof x, sizeof x);
    const auto bits = static_cast<Unsigned>(x);
    const auto sign = static_cast<Unsigned>(x < 0 ? ~Unsigned{0} : Unsigned{0});
    const auto magnitude = static_cast<Unsigned>((bits ^ sign) - sign);
    const auto result = static_cast<Unsigned>(quotient(magnitude));
    x = static_cast<Element>(static_cast<Unsigned>((result ^ sign) - sign));
    std::memcpy(bytes + i * sizeof x, &x, sizeof x);
  }
}

/// Exact for x < 2^8: the reciprocal is too large by at most 1, so x/d by less than 2^-8 < 1/d. Beyond d = 255 all is 0.
template <DataType type>
void divideBytes(void* data, size_t elems, uint32_t divisor) {
  const auto reciprocal = static_cast<uint16_t>(divisor > 255 ? 0 : 65536u / divisor + 1);
  divideEach<type>(data, elems, [reciprocal](uint8_t x) { return static_cast<uint32_t>(x) * reciprocal >> 16; });
}

/// Exact for x < 2^32: the error is less than 2^-32, and 1/d is at least 2^-31.
template <DataType type>
void divideWords(void* data, size_t elems, uint32_t divisor) {
  const uint64_t reciprocal = ~uint64_t{0} / divisor + 1;
  divideEach<type>(data, elems, [reciprocal](uint32_t x) {
    const uint64_t high = (reciprocal >> 32) * x, low = (reciprocal & 0xffffffffu) * x;
    return (high + (low >> 32)) >> 32;
  });
}

template <DataType type>
void divideLongs(void* data, size_t elems, uint32_t divisor) {
  divideEach<type>(data, elems, [divisor](uint64_t x) { return x / divisor; });
}

}  // namespace

void divideInPlace(void* data, size_t elems, DataType type, int32_t divisor) {
  const auto by = static_cast<uint32_t>(divisor);
  switch (type) {
    case DataType::I8: return divideBytes<DataType::I8>(data, elems, by);
    case DataType::U8: return divideBytes<DataType::U8>(data, elems, by);
    case DataType::I32: return divideWords<DataType::I32>(data, elems, by);
    case DataType::U32: return divideWords<DataType::U32>(data, elems, by);
    case DataType::I64: return divideLongs<DataType::I64>(data, elems, by);
    case DataType::U64: return divideLongs<DataType::U64>(data, elems, by);
    case DataType::F16: case DataType::F32: case DataType::F64: case DataType::BF16: case DataType::F8E4M3:
    case DataType::F8E5M2: return;  // floats have no divisor: their Avg scales each contribution
  }
}

}  // namespace tutti::exec::host
