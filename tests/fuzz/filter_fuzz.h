// What a fuzzer hands to the grammar of NCCL_ALGO, NCCL_PROTO and TUTTI_ALGO.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::fuzz {

/// Parses the bytes as each of the three variables has them; what is accepted must hold what its own text says. Aborts if it does not.
void parseFilters(const uint8_t* data, size_t size);

}  // namespace tutti::fuzz
