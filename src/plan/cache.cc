#include "plan/cache.h"

namespace tutti::plan {

size_t ShapeHash::operator()(const Shape& shape) const {
  uint64_t hash = 0x9e3779b97f4a7c15;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0xff51afd7ed558ccd, hash ^= hash >> 32; };
  mix(static_cast<uint64_t>(shape.collective) << 16 | static_cast<uint64_t>(shape.type) << 8 | static_cast<uint64_t>(shape.op));
  mix(shape.count);
  mix(static_cast<uint64_t>(static_cast<uint32_t>(shape.root.value)) << 1 | (shape.receives ? 1 : 0));
  mix(shape.scaling.factor ^ static_cast<uint64_t>(static_cast<uint32_t>(shape.scaling.divisor)));
  return hash;
}

}  // namespace tutti::plan
