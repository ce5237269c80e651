#include "topo/settings.h"

#include <strings.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

namespace tutti::topo {
namespace {

constexpr std::string_view kNames[] = {"NCCL_P2P_DISABLE",  "NCCL_P2P_LEVEL",   "NCCL_NET_GDR_LEVEL",     "NCCL_NET_GDR_READ",
                                       "NCCL_NET_GDR_C2C",  "NCCL_NVB_DISABLE", "NCCL_PXN_DISABLE",       "NCCL_PXN_C2C",
                                       "NCCL_SHM_DISABLE",  "NCCL_NETDEVS_POLICY", "NCCL_NET_DISABLE_INTRA"};
constexpr std::array kOldLevels = {PathType::Loc, PathType::Pix, PathType::Pxb, PathType::Phb, PathType::Sys, PathType::Sys};

Status refuse(std::string_view name, const std::string& value, std::string_view expected) {
  return error(Code::InvalidUsage, "{}=\"{}\"; expected {}", name, value, expected);
}

Status readFlag(std::string_view name, const std::string& value, bool& flag) {
  char* end = nullptr;
  const long long number = std::strtoll(value.c_str(), &end, 0);
  if (*end != '\0' || (number != 0 && number != 1)) return refuse(name, value, "0 or 1");
  flag = number == 1;
  return {};
}

Status readLevel(std::string_view name, const std::string& value, std::optional<PathType>& level) {
  level = parseLevel(value);
  if (!level.has_value()) return refuse(name, value, "LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS");
  return {};
}

Status readNetsPolicy(std::string_view name, const std::string& value, int& netsPerGpu) {
  if (strcasecmp(value.c_str(), "AUTO") == 0) {
    netsPerGpu = 0;
  } else if (strcasecmp(value.c_str(), "ALL") == 0) {
    netsPerGpu = -1;
  } else {
    const char* number = strncasecmp(value.c_str(), "MAX:", 4) == 0 ? value.c_str() + 4 : "";
    char* end = nullptr;
    const long long most = std::strtoll(number, &end, 10);
    if (end == number || *end != '\0' || most <= 0 || most > INT32_MAX) return refuse(name, value, "AUTO, ALL or MAX:n with n from 1 on");
    netsPerGpu = static_cast<int>(most);
  }
  return {};
}

}  // namespace

std::optional<PathType> parseLevel(std::string_view text) {
  if (const auto named = pathTypeFromName(text); named.has_value() && *named <= PathType::Sys) return named;
  if (text.empty() || text.size() > 9 || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  const auto number = static_cast<size_t>(std::strtoul(std::string(text).c_str(), nullptr, 10));
  return kOldLevels[std::min(number, kOldLevels.size() - 1)];
}

std::span<const std::string_view> pathVariables() { return kNames; }

Status applyPathVariable(std::string_view name, const std::string& value, PathSettings& settings) {
  if (value.empty()) return {};
  if (name == "NCCL_P2P_LEVEL") return readLevel(name, value, settings.p2pLevel);
  if (name == "NCCL_NET_GDR_LEVEL") return readLevel(name, value, settings.netGdrLevel);
  if (name == "NCCL_NVB_DISABLE") return readFlag(name, value, settings.nvbDisabled);
  if (name == "NCCL_PXN_DISABLE") return readFlag(name, value, settings.pxnDisabled);
  if (name == "NCCL_PXN_C2C") return readFlag(name, value, settings.pxnC2c);
  if (name == "NCCL_NET_GDR_C2C") return readFlag(name, value, settings.gdrC2c);
  if (name == "NCCL_NET_DISABLE_INTRA") return readFlag(name, value, settings.netIntraDisabled);
  if (name == "NCCL_SHM_DISABLE") return readFlag(name, value, settings.shmDisabled);
  if (name == "NCCL_NETDEVS_POLICY") return readNetsPolicy(name, value, settings.netsPerGpu);
  if (name == "NCCL_P2P_DISABLE") return readFlag(name, value, settings.p2pDisabled);
  if (name == "NCCL_NET_GDR_READ") {
    if (value != "0" && value != "1" && value != "-2") return refuse(name, value, "0, 1 or -2, which leaves the choice to the machine");
    settings.netGdrRead = value == "-2" ? std::nullopt : std::optional(value == "1");
  }
  return {};
}

}  // namespace tutti::topo
