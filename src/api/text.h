// Text into memory of the caller, as tutti.h promises it under "Text".
// Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/status.h"

namespace tutti::api {

/// Copies what fits, always terminated; `needed` counts the terminating zero.
inline void writeText(std::string_view from, char* text, size_t capacity, size_t* needed) {
  if (needed != nullptr) *needed = from.size() + 1;
  if (capacity == 0) return;
  const size_t fits = std::min(from.size(), capacity - 1);
  std::memcpy(text, from.data(), fits);
  text[fits] = '\0';
}

inline Status checkText(const char* text, size_t capacity) {
  if (text == nullptr && capacity > 0) return error(Code::InvalidArgument, "text is NULL, but its capacity is {} bytes", capacity);
  return {};
}

}  // namespace tutti::api
