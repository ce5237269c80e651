#include "config/params.h"
#include "core/format.h"

namespace tutti::config {
namespace {

const char* titleOf(Group group) {
  switch (group) {
    case Group::Tutti: return "Variables of tutti itself";
    case Group::Socket: return "Bootstrap and sockets";
    case Group::InfiniBand: return "InfiniBand and RoCE";
    case Group::Network: return "Networks in general, GPUDirect";
    case Group::Topology: return "Topology and NVLink";
    case Group::Tuning: return "Algorithms, protocols, channels";
    case Group::Memory: return "Peer access, shared memory, registration";
    case Group::Execution: return "Execution and communicators";
    case Group::Debugging: return "Logging, reports, plugins";
  }
  return "";
}

const char* wordsOf(Type type) {
  switch (type) {
    case Type::Int: return "number";
    case Type::Bool: return "0 or 1";
    case Type::String: return "text";
  }
  return "";
}

const char* wordsOf(Effect effect) {
  switch (effect) {
    case Effect::Honoured: return "yes";
    case Effect::Later: return "not yet";
    case Effect::Ignored: return "never";
  }
  return "";
}

/// A cell of a Markdown table: `|` would end it.
std::string escapeCell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

constexpr const char* kIntroduction =
    "# Environment variables\n"
    "\n"
    "Made from `src/config/params.def` by `tutti env --markdown`; do not edit.\n"
    "\n"
    "**In effect** says what this version does with a variable: *yes*, it acts on it; *not yet*, it accepts it without effect\n"
    "because the part that it steers is not built; *never*, it accepts it for compatibility.\n"
    "\n"
    "How values are found and read:\n"
    "\n"
    "- The environment of the process comes first, then the file that `NCCL_CONF_FILE` names (if that is unset: `.nccl.conf` in the\n"
    "  home directory that the password database names), then `/etc/nccl.conf`. What the files add becomes part of the environment.\n"
    "- A file has lines `NAME=VALUE`. A line that starts with `#` is a comment. Nothing is trimmed, quotes mean nothing, names and\n"
    "  values are cut at 1,023 bytes.\n"
    "- Numbers may be decimal, hexadecimal (`0x`) or octal (`0`), and have no units. Empty means unset; text that is no number reads\n"
    "  as 0, `4M` as 4, with a warning; a number out of range gives the default and an `INFO` line. For *0 or 1*, every other number\n"
    "  counts as 1.\n"
    "- Numbers are read once per process, at first use; texts when a communicator is created or logging is set up.\n"
    "- With `NCCL_DEBUG=INFO` each variable that is set is reported: `NAME set by environment to VALUE.`\n"
    "- A variable without effect that is set to something else than its default is one warning, which says why.\n"
    "- A default *undefined* leaves the matching field of `ncclConfig_t` alone.\n";

}  // namespace

std::string describeDefault(const Entry& entry) {
  if (entry.type != Type::String) return entry.number == kUndefined ? std::string("undefined") : format("{}", entry.number);
  return *entry.text ? std::string(entry.text) : std::string("not set");
}

std::string documentMarkdown() {
  std::string text = kIntroduction;
  const Entry* previous = nullptr;
  for (const Entry& entry : table()) {
    if (!previous || previous->group != entry.group) {
      text += format("\n## {}\n\n| variable | value | default | in effect | meaning |\n|---|---|---|---|---|\n", titleOf(entry.group));
    }
    const bool literal = entry.type == Type::String && *entry.text;
    const std::string fallback = escapeCell(describeDefault(entry));
    text += format("| `{}` | {} | {} | {} | {} |\n", entry.name, wordsOf(entry.type), literal ? format("`{}`", fallback) : fallback,
                   wordsOf(entry.effect), escapeCell(entry.doc));
    previous = &entry;
  }
  return text;
}

}  // namespace tutti::config
