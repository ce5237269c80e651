// Environment variables: one line each in params.def, read here and nowhere else.
//
// Owner of the cached values: one object in params.cc, the documented exception to "process-wide state lives in comm/process.h":
// the environment is process-wide already. Every function may be called by any thread, but, as with every getenv, not while
// another thread changes the environment; load() does so itself, hence call it early (ncclGetVersion does).
// 1. Process environment before NCCL_CONF_FILE (else ~/.nccl.conf) before /etc/nccl.conf, which are read once, before the first value.
// 2. A number is read once per process, at first use: base 0; empty is unset; no number at all is 0; out of range is the default.
// 3. A string is read anew at each call: keep what you got.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti::config {

enum class Type : uint8_t { Int, Bool, String };
enum class Effect : uint8_t { Honoured, Later, Ignored };
enum class Group : uint8_t { Tutti, Socket, InfiniBand, Network, Topology, Tuning, Memory, Execution, Debugging };

enum class Param : uint16_t {
#define TUTTI_PARAM(id, name, type, fallback, group, effect, doc) id,
#include "config/params.def"
#undef TUTTI_PARAM
};

namespace detail {
inline constexpr Type kTypes[] = {
#define TUTTI_PARAM(id, name, type, fallback, group, effect, doc) Type::type,
#include "config/params.def"
#undef TUTTI_PARAM
};
}  // namespace detail

inline constexpr size_t kNumParams = std::size(detail::kTypes);

/// Default of variables that win over a field of ncclConfig_t: not set, so the field counts. Equal to NCCL_CONFIG_UNDEF_INT.
inline constexpr int64_t kUndefined = INT32_MIN;

/// One line of params.def.
struct Entry {
  Param param;
  const char* name;
  Type type;
  int64_t number;    ///< Default of Int and Bool.
  const char* text;  ///< Default of String; "" is "not set".
  Group group;
  Effect effect;
  const char* doc;
};

/// All variables, in the order of params.def: table()[static_cast<size_t>(param)].
std::span<const Entry> table();

/// The variable of that name; null when there is none.
const Entry* findEntry(std::string_view name);

/// Int and Bool: the cached value, or the default.
int64_t getNumber(Param param);

/// String: the value now, or the default when it is unset or empty.
std::string getText(Param param);

/// Any type: what the variable holds now, with nothing cached or reported; nullopt when unset, "" when set to nothing.
std::optional<std::string> findText(Param param);

/// `get<Param::TuttiSlots>()`: int64_t, bool or std::string, as params.def says.
template <Param kParam>
auto get() {
  constexpr Type kType = detail::kTypes[static_cast<size_t>(kParam)];
  if constexpr (kType == Type::String) {
    return getText(kParam);
  } else if constexpr (kType == Type::Bool) {
    return getNumber(kParam) != 0;
  } else {
    return getNumber(kParam);
  }
}

/// Reads the configuration files into the environment, once per process; every getter calls it first. Costs one load afterwards.
void load();

/// Gets, once per variable that is set, `NAME set by environment to VALUE.`, and a line on each number out of range.
using NoticeSink = void (*)(std::string_view line);

/// Installed by observe/. What was read before is not reported any more.
void setNoticeSink(NoticeSink sink);

/// docs/env.md, from params.def.
std::string documentMarkdown();

/// The default of a variable, in words: "auto", "1024", "undefined", "not set".
std::string describeDefault(const Entry& entry);

/// Forgets cached numbers, reported names and that the files were read. For tests; nobody else may be reading.
void resetForTest();

}  // namespace tutti::config
