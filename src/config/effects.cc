#include "config/effects.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "core/format.h"

namespace tutti::config {
namespace {

bool isDefault(const Entry& entry, const std::string& text) {
  if (text.empty()) return true;
  if (entry.type == Type::String) return text == entry.text;
  const int64_t number = std::strtoll(text.c_str(), nullptr, 0);
  return entry.type == Type::Bool ? (number != 0) == (entry.number != 0) : number == entry.number;
}

/// Whether what is asked for is what happens anyway, because the part that would do otherwise is not there.
bool isGranted(const Entry& entry, const std::string& text) {
  const int64_t number = std::strtoll(text.c_str(), nullptr, 0);
  switch (entry.param) {
    case Param::IbDisable: return number != 0;
    case Param::NvlsEnable:
    case Param::CollnetEnable:
    case Param::RasEnable: return number == 0;
    case Param::NetMergeLevel: return text == "LOC";
    default: return false;
  }
}

/// Whether somebody else reads the variable: no word of "no effect".
bool hasOtherEffects(Param param) { return param == Param::CudaLaunchBlocking; }

const char* reasonOf(Param param) {
  switch (param) {
    case Param::Nthreads:
    case Param::Ll128Nthreads:
    case Param::ThreadThresholds: return "kernels run with the number of threads that they are built for";
    case Param::NetMergeLevel:
    case Param::NetForceMerge: return "devices of a network stay single, and channels take them in turn; `tutti topo` does honour it";
    case Param::NetGdrLevel:
    case Param::NetGdrRead:
    case Param::NetGdrC2c: return "GPUs of a communicator are on one host and use no network; `tutti topo` does honour it";
    case Param::NchannelsPerNetPeer: return "GPUs of a communicator are on one host and use no network";
    case Param::CollnetEnable:
    case Param::CollnetNodeThreshold: return "nothing is reduced inside networks";
    default: return nullptr;
  }
}

const char* reasonOf(Group group) {
  switch (group) {
    case Group::InfiniBand: return "there is no verbs transport: networks are sockets and what NCCL_NET_PLUGIN loads";
    case Group::Network: return "GPUs of a communicator are on one host and use no network, and host devices send from their own memory";
    default: return "the part that it steers is not built";
  }
}

}  // namespace

std::string whyWithoutEffect(const Entry& entry) {
  if (entry.effect == Effect::Honoured) return {};
  if (entry.effect == Effect::Ignored) return "it is accepted for compatibility only";
  const char* const own = reasonOf(entry.param);
  return own != nullptr ? own : reasonOf(entry.group);
}

std::vector<std::string> withoutEffect() {
  std::vector<std::string> lines;
  for (const Entry& entry : table()) {
    if (entry.effect == Effect::Honoured || hasOtherEffects(entry.param)) continue;
    const auto text = findText(entry.param);
    if (!text || isDefault(entry, *text) || isGranted(entry, *text)) continue;
    lines.push_back(format("{}={} has no effect: {}", entry.name, *text, whyWithoutEffect(entry)));
  }
  return lines;
}

std::vector<std::string> misread() {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::vector<std::string> lines;
  for (const Entry& entry : table()) {
    if (entry.type == Type::String || entry.effect != Effect::Honoured) continue;
    const auto text = findText(entry.param);
    if (!text || text->empty()) continue;
    char* rest = nullptr;
    errno = 0;
    const int64_t number = std::strtoll(text->c_str(), &rest, 0);
    if (errno == ERANGE) continue;  // its default holds, as is said where it is read
    if (rest != text->c_str() && std::string_view(rest).find_first_not_of(kBlanks) == std::string_view::npos) continue;
    lines.push_back(format("{}={} is read as {}: it takes a whole number, and no unit or word", entry.name, *text, number));
  }
  return lines;
}

}  // namespace tutti::config
