// The platform files that the library carries, as text.
#pragma once

#include <span>
#include <string_view>

namespace tutti::tune {

struct Embedded {
  std::string_view name;
  std::string_view text;
};

std::span<const Embedded> embeddedPlatforms();

}  // namespace tutti::tune
