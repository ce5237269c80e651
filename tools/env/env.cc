#include "env/env.h"

#include <cstdio>
#include <string_view>

#include "config/params.h"
#include "core/format.h"
#include "env/origin.h"
#include "exit_codes.h"

namespace tutti::tool {
namespace {

constexpr size_t kTextWidth = 100;

std::string_view wordsOf(config::Type type) {
  switch (type) {
    case config::Type::Int: return "number";
    case config::Type::Bool: return "0 or 1";
    case config::Type::String: return "text";
  }
  return "";
}

std::string_view wordsOf(config::Effect effect) {
  switch (effect) {
    case config::Effect::Honoured: return "honoured by this version";
    case config::Effect::Later: return "accepted, without effect in this version";
    case config::Effect::Ignored: return "accepted for compatibility, never has an effect";
  }
  return "";
}

/// Breaks text into lines of at most kTextWidth, each indented; without the Markdown marks.
std::string wrap(std::string_view text) {
  std::string lines = "   ";
  size_t used = 3;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    std::string word(text.substr(begin, end - begin));
    std::erase(word, '`');
    if (used + 1 + word.size() > kTextWidth) {
      lines += "\n   ";
      used = 3;
    }
    lines += " " + word;
    used += 1 + word.size();
    begin = end + 1;
  }
  return lines + "\n";
}

/// What is shown of a value; of a secret only that there is one.
std::string describeValue(const config::Entry& entry, const std::string& value) {
  // An empty number counts as unset, an empty text as the default: say so instead of showing nothing.
  if (value.empty()) return "empty, that is, the default";
  return std::string_view(entry.name).ends_with("_SECRET") ? "set, not shown" : value;
}

std::string describeEntry(const config::Entry& entry, const Origins& origins) {
  const Held* held = origins.find(entry.name);
  const std::string value = held ? format("{} (from {})", describeValue(entry, held->value), held->source)
                                 : config::describeDefault(entry) + " (default)";
  std::string text = format("{}\n    {}; default {}; {}\n    now: {}\n", entry.name, wordsOf(entry.type), config::describeDefault(entry),
                            wordsOf(entry.effect), value);
  return text + wrap(entry.doc);
}

std::string withoutUnderscores(std::string text) {
  std::erase(text, '_');
  return text;
}

/// Known names that contain `part` or begin it, for a message.
std::string suggest(const std::string& part) {
  const std::string wanted = withoutUnderscores(part);
  std::string names;
  for (const config::Entry& entry : config::table()) {
    const std::string known = withoutUnderscores(entry.name);
    if (known.find(wanted) != std::string::npos || wanted.starts_with(known)) names += format("\n  {}", entry.name);
  }
  return names.empty() ? "; 'tutti env' lists all" : "; did you mean" + names;
}

std::string upper(std::string_view text) {
  std::string result;
  for (const char c : text) result += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

int showNamed(const EnvOptions& options, const Origins& origins) {
  int exitCode = 0;
  for (const std::string& asked : options.names) {
    const std::string name = upper(asked);
    if (const config::Entry* entry = config::findEntry(name)) {
      std::fputs(describeEntry(*entry, origins).c_str(), stdout);
      continue;
    }
    std::fprintf(stderr, "tutti env: no variable is named %s%s\n", name.c_str(), suggest(name).c_str());
    exitCode = kExitUsage;
  }
  return exitCode;
}

/// Variables that look like ours but are not: usually misspelled.
void warnOfStrangers(const Origins& origins) {
  for (const auto& [name, held] : origins.all()) {
    // What `tutti run` tells its ranks is none of the user's business.
    if (config::findEntry(name) || name.starts_with("TUTTI_RUN_")) continue;
    std::fprintf(stderr, "tutti env: %s is set (from %s), but no variable has that name\n", name.c_str(), held.source.c_str());
  }
}

}  // namespace

int runEnv(const EnvOptions& options) {
  if (options.writesMarkdown) {
    std::fputs(config::documentMarkdown().c_str(), stdout);
    return 0;
  }
  const Origins origins = Origins::load();
  if (!options.names.empty()) return showNamed(options, origins);
  for (const config::Entry& entry : config::table()) {
    if (options.onlySet && !origins.find(entry.name)) continue;
    std::fputs((describeEntry(entry, origins) + "\n").c_str(), stdout);
  }
  warnOfStrangers(origins);
  return 0;
}

}  // namespace tutti::tool
