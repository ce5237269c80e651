#include "launch/variables.h"

#include <unistd.h>

#include <charconv>

namespace tutti::launch {

Environment readEnvironment(const char* const* list) {
  Environment environment;
  for (; list != nullptr && *list != nullptr; ++list) {
    const std::string_view entry = *list;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    // The first of two entries is what getenv finds.
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

Environment readEnvironment() { return readEnvironment(environ); }

const std::string* find(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

bool has(const Environment& environment, std::string_view name) { return find(environment, name) != nullptr; }

std::string textOf(const Environment& environment, std::string_view name) {
  const std::string* text = find(environment, name);
  return text ? *text : std::string();
}

Result<int64_t> readNumber(const Environment& environment, std::string_view name, int64_t least, int64_t most) {
  const std::string* text = find(environment, name);
  if (!text) return kNotSet;
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (problem != std::errc() || end != text->data() + text->size() || value < least || value > most) {
    return fail(Code::InvalidUsage, "{}='{}' is not a whole number from {} to {}", name, *text, least, most);
  }
  return value;
}

}  // namespace tutti::launch
