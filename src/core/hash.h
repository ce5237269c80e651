// A hash that is the same in every process, on every machine and in every version: for what is compared between ranks or kept in files.
//
// Pure function; any thread. Not for data that somebody may have made to collide.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

/// FNV-1a of 64 bits. `hash`: of what came before, to go on with.
constexpr uint64_t hashText(std::string_view text, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// The same where 0 means that nothing is known.
constexpr uint64_t hashOfKnown(std::string_view text) {
  const uint64_t hash = hashText(text);
  return hash == 0 ? 1 : hash;
}

}  // namespace tutti
