// Text formatting for messages, with fmt's syntax checked at compile time.
// Cheap to include: the formatter itself is compiled once, in format.cc.
#pragma once

#include <fmt/core.h>

#include <string>

namespace tutti {

std::string formatArgs(fmt::string_view text, fmt::format_args args);

/// `format("rank {} of {}", 3, 8)`. Throws only std::bad_alloc.
template <class... Args>
std::string format(fmt::format_string<Args...> text, Args&&... args) {
  return formatArgs(text, fmt::make_format_args(args...));
}

}  // namespace tutti
