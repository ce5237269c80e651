#include "observe/log_settings.h"

#include <array>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/format.h"

namespace tutti::observe {
namespace {

constexpr std::array<std::pair<std::string_view, Level>, 5> kLevels = {{
    {"VERSION", Level::Version}, {"WARN", Level::Warn}, {"INFO", Level::Info}, {"ABORT", Level::Abort}, {"TRACE", Level::Trace},
}};

constexpr std::array<std::pair<std::string_view, Subsys>, 17> kSubsystems = {{
    {"INIT", Subsys::Init},   {"COLL", Subsys::Coll},   {"P2P", Subsys::P2p},     {"SHM", Subsys::Shm},
    {"NET", Subsys::Net},     {"GRAPH", Subsys::Graph}, {"TUNING", Subsys::Tuning}, {"ENV", Subsys::Env},
    {"ALLOC", Subsys::Alloc}, {"CALL", Subsys::Call},   {"PROXY", Subsys::Proxy}, {"NVLS", Subsys::Nvls},
    {"BOOTSTRAP", Subsys::Bootstrap}, {"REG", Subsys::Reg}, {"PROFILE", Subsys::Profile}, {"RAS", Subsys::Ras},
    {"ALL", Subsys::All},
}};

constexpr char toUpper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool equalAnyCase(std::string_view word, std::string_view upper) {
  if (word.size() != upper.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    if (toUpper(word[i]) != upper[i]) return false;
  }
  return true;
}

/// A comma list of words, each some bits; a leading ^ takes them out of everything instead.
template <class BitsOf>
uint64_t parseBits(std::string_view text, BitsOf bitsOf) {
  const bool inverted = text.starts_with('^');
  if (inverted) text.remove_prefix(1);
  uint64_t bits = 0;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    bits |= bitsOf(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return inverted ? ~bits : bits;
}

/// Replaces the first %1f … %9f by digits, since strftime has no fraction of a second.
void expandFraction(std::string& text, int64_t nanoseconds) {
  for (size_t i = 0; i + 2 < text.size(); ++i) {
    if (text[i] != '%') continue;
    if (text[i + 1] >= '1' && text[i + 1] <= '9' && text[i + 2] == 'f') {
      const auto digits = static_cast<size_t>(text[i + 1] - '0');
      text.replace(i, 3, format("{:09}", nanoseconds).substr(0, digits));
      return;
    }
    ++i;  // the letter belongs to this %, also in %%
  }
}

}  // namespace

Level parseLevel(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (equalAnyCase(text, name)) return level;
  }
  return Level::None;
}

Subsys parseSubsys(std::string_view text) {
  return Subsys(parseBits(text, [](std::string_view word) {
    for (const auto& [name, bits] : kSubsystems) {
      if (equalAnyCase(word, name)) return uint64_t(bits);
    }
    return uint64_t{0};
  }));
}

uint32_t parseLevelSet(std::string_view text) {
  return static_cast<uint32_t>(parseBits(text, [](std::string_view word) {
    if (equalAnyCase(word, "ALL")) return ~uint64_t{0};
    const Level level = parseLevel(word);
    return level == Level::None ? uint64_t{0} : uint64_t{1} << static_cast<int>(level);
  }));
}

std::string expandPath(std::string_view text, std::string_view host, int pid) {
  std::string path;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
    switch (next) {
      case 'h': path += host; break;
      case 'p': path += format("{}", pid); break;
      case '%': path += '%'; break;
      default: path += text[i]; continue;
    }
    ++i;
  }
  return path;
}

std::string formatTimestamp(std::string_view text, int64_t seconds, int64_t nanoseconds) {
  if (text.empty()) return {};
  std::string pattern(text);
  for (char& c : pattern) {
    if (c == '_') c = ' ';
  }
  expandFraction(pattern, nanoseconds);
  const auto time = static_cast<time_t>(seconds);
  tm local{};
  if (!localtime_r(&time, &local)) return {};
  std::array<char, 256> buffer;
  return {buffer.data(), std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &local)};
}

std::string_view shortenPath(std::string_view path) {
  constexpr std::string_view kRoot = "/src/";
  if (const size_t root = path.rfind(kRoot); root != std::string_view::npos) return path.substr(root + kRoot.size());
  if (path.starts_with(kRoot.substr(1))) return path.substr(kRoot.size() - 1);
  return path.substr(path.rfind('/') + 1);
}

std::string_view shortenHost(std::string_view host) { return host.substr(0, host.find('.')); }

std::string layOutLine(Level level, bool isCall, std::string_view timestamp, const Origin& origin, Place place, double ms,
                       std::string_view message) {
  std::string line;
  if (level == Level::Warn) line += '\n';  // so that a warning stands out in the output of others
  line += timestamp;
  if (level != Level::Version) line += format("{}:{}:{} ", origin.host, origin.pid, origin.tid);
  switch (level) {
    case Level::None:
    case Level::Version: break;
    case Level::Warn: line += format("[{}] {}:{} NCCL WARN ", origin.device, place.file, place.line); break;
    case Level::Info:
    case Level::Abort: line += format("[{}] NCCL INFO ", origin.device); break;
    case Level::Trace:
      line += isCall ? std::string("NCCL CALL ") : format("[{}] {:.6f} {}:{} NCCL TRACE ", origin.device, ms, place.file, place.line);
      break;
  }
  line += message;
  if (line.size() > kMaxLineBytes - 1) line.resize(kMaxLineBytes - 1);
  line += '\n';
  return line;
}

}  // namespace tutti::observe
