// The scalar definition of core/element.h applied to whole buffers, one element after the other: what every ReduceFn must equal.
#pragma once

#include <cstring>
#include <vector>

#include "core/element.h"

namespace tutti::exec::host {

using Buffer = std::vector<unsigned char>;

template <DataType type, ReduceOp op>
void referenceOf(unsigned char* dst, const std::vector<const unsigned char*>& sources, size_t elems, const Scaling& scaling,
                 uint32_t scaled, bool finish) {
  using Element = ElementOf<type>;
  const auto at = [&](size_t k, size_t i) {
    Element x;
    std::memcpy(&x, sources[k] + i * sizeof x, sizeof x);
    const bool isScaled = scaling.hasFactor && (scaled >> k & 1u) != 0;
    return isScaled ? scale<type>(widen<type>(x), widen<type>(factorOf<type>(scaling))) : widen<type>(x);
  };
  const bool isMove = sources.size() == 1 && !(scaling.hasFactor && (scaled & 1u));
  for (size_t i = 0; i < elems; ++i) {
    auto acc = at(0, i);
    for (size_t k = 1; k < sources.size(); ++k) acc = reduce<op>(acc, at(k, i));
    Element result = narrow<type>(acc);
    if (isMove) std::memcpy(&result, sources[0] + i * sizeof result, sizeof result);
    if (finish) result = divide<type>(result, scaling.divisor);
    std::memcpy(dst + i * sizeof result, &result, sizeof result);
  }
}

template <DataType type>
void referenceOfType(ReduceOp op, unsigned char* dst, const std::vector<const unsigned char*>& sources, size_t elems,
                     const Scaling& scaling, uint32_t scaled, bool finish) {
  switch (op) {
    case ReduceOp::Sum: return referenceOf<type, ReduceOp::Sum>(dst, sources, elems, scaling, scaled, finish);
    case ReduceOp::Prod: return referenceOf<type, ReduceOp::Prod>(dst, sources, elems, scaling, scaled, finish);
    case ReduceOp::Max: return referenceOf<type, ReduceOp::Max>(dst, sources, elems, scaling, scaled, finish);
    case ReduceOp::Min: return referenceOf<type, ReduceOp::Min>(dst, sources, elems, scaling, scaled, finish);
  }
}

inline void reference(const Reduction& reduction, unsigned char* dst, const std::vector<const unsigned char*>& sources,
                      size_t elems, uint32_t scaled = 0, bool finish = false) {
  const auto run = [&]<DataType type>() {
    referenceOfType<type>(reduction.op, dst, sources, elems, reduction.scaling, scaled, finish);
  };
  switch (reduction.type) {
    case DataType::I8: return run.operator()<DataType::I8>();
    case DataType::U8: return run.operator()<DataType::U8>();
    case DataType::I32: return run.operator()<DataType::I32>();
    case DataType::U32: return run.operator()<DataType::U32>();
    case DataType::I64: return run.operator()<DataType::I64>();
    case DataType::U64: return run.operator()<DataType::U64>();
    case DataType::F16: return run.operator()<DataType::F16>();
    case DataType::F32: return run.operator()<DataType::F32>();
    case DataType::F64: return run.operator()<DataType::F64>();
    case DataType::BF16: return run.operator()<DataType::BF16>();
    case DataType::F8E4M3: return run.operator()<DataType::F8E4M3>();
    case DataType::F8E5M2: return run.operator()<DataType::F8E5M2>();
  }
}

}  // namespace tutti::exec::host
