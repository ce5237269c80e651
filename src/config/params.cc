#include "config/params.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstdlib>
#include <mutex>

#include "config/files.h"
#include "core/format.h"

namespace tutti::config {
namespace {

// A template, so that the literal 0 is a number and not a null pointer.
template <std::integral Number>
constexpr Entry makeEntry(Param param, const char* name, Type type, Number number, Group group, Effect effect, const char* doc) {
  return {param, name, type, number, "", group, effect, doc};
}
constexpr Entry makeEntry(Param param, const char* name, Type type, const char* text, Group group, Effect effect, const char* doc) {
  return {param, name, type, 0, text, group, effect, doc};
}

constexpr std::array<Entry, kNumParams> kTable = {{
#define TUTTI_PARAM(id, name, type, fallback, group, effect, doc) \
  makeEntry(Param::id, name, Type::type, fallback, Group::group, Effect::effect, doc),
#include "config/params.def"
#undef TUTTI_PARAM
}};

struct Cached {
  std::atomic<int64_t> number{0};
  std::atomic<bool> known{false};     ///< Set under State::mutex after `number` (release); pairs with the acquire in getNumber().
  std::atomic<bool> reported{false};  ///< Whoever sets it first reports; orders nothing.
};

struct State {
  std::mutex mutex;                       ///< Taken by first reads only, never while a notice goes out.
  std::atomic<bool> loaded{false};        ///< Set under mutex after the files were read (release); pairs with the acquire in load().
  std::atomic<NoticeSink> sink{nullptr};  ///< A function: nothing else has to become visible with it.
  std::array<Cached, kNumParams> cached;
};

constinit State state;

const Entry& entryOf(Param param) { return kTable[static_cast<size_t>(param)]; }
Cached& cachedOf(Param param) { return state.cached[static_cast<size_t>(param)]; }

void notify(std::string_view line) {
  if (const NoticeSink sink = state.sink.load(std::memory_order_relaxed)) sink(line);
}

void reportSet(const Entry& entry, std::string_view value) {
  if (state.sink.load(std::memory_order_relaxed) == nullptr) return;
  if (cachedOf(entry.param).reported.exchange(true, std::memory_order_relaxed)) return;
  notify(format("{} set by environment to {}.", entry.name, value));
}

int64_t readNumber(Param param) {
  load();
  const Entry& entry = entryOf(param);
  int64_t number = entry.number;
  bool outOfRange = false;
  std::string seen;
  {
    std::lock_guard lock(state.mutex);
    Cached& cached = cachedOf(param);
    if (cached.known.load(std::memory_order_relaxed)) return cached.number.load(std::memory_order_relaxed);
    if (const char* text = std::getenv(entry.name); text && *text) {
      seen = text;
      errno = 0;
      const long long parsed = std::strtoll(text, nullptr, 0);
      outOfRange = errno == ERANGE;
      if (!outOfRange) number = parsed;
    }
    cached.number.store(number, std::memory_order_relaxed);
    cached.known.store(true, std::memory_order_release);
  }
  if (outOfRange) {
    notify(format("{}: value {} is out of range, using the default {}.", entry.name, seen, describeDefault(entry)));
  } else if (!seen.empty()) {
    reportSet(entry, format("{}", number));
  }
  return number;
}

}  // namespace

std::span<const Entry> table() { return kTable; }

const Entry* findEntry(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (name == entry.name) return &entry;
  }
  return nullptr;
}

int64_t getNumber(Param param) {
  const Cached& cached = cachedOf(param);
  if (cached.known.load(std::memory_order_acquire)) [[likely]] return cached.number.load(std::memory_order_relaxed);
  return readNumber(param);
}

std::string getText(Param param) {
  const std::optional<std::string> value = findText(param);
  if (!value || value->empty()) return entryOf(param).text;
  reportSet(entryOf(param), *value);
  return *value;
}

std::optional<std::string> findText(Param param) {
  load();
  const char* text = std::getenv(entryOf(param).name);
  if (!text) return std::nullopt;
  return std::string(text);
}

void load() {
  if (state.loaded.load(std::memory_order_acquire)) [[likely]] return;
  std::lock_guard lock(state.mutex);
  if (state.loaded.load(std::memory_order_relaxed)) return;
  if (const std::string user = findUserFile(); !user.empty()) loadFile(user.c_str());
  loadFile(kSystemFile);
  state.loaded.store(true, std::memory_order_release);
}

void setNoticeSink(NoticeSink sink) { state.sink.store(sink, std::memory_order_relaxed); }

void resetForTest() {
  std::lock_guard lock(state.mutex);
  for (Cached& cached : state.cached) {
    cached.known.store(false, std::memory_order_relaxed);
    cached.reported.store(false, std::memory_order_relaxed);
  }
  state.loaded.store(false, std::memory_order_relaxed);
}

}  // namespace tutti::config
