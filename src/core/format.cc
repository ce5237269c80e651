#include "core/format.h"

#include <fmt/format.h>

namespace tutti {

std::string formatArgs(fmt::string_view text, fmt::format_args args) { return fmt::vformat(text, args); }

}  // namespace tutti
