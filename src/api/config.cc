#include "api/config.h"

#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "api/guard.h"
#include "comm/process.h"
#include "config/params.h"
#include "observe/log.h"

namespace tutti::api {
namespace {

constexpr unsigned int kMagic = 0xcafebeef;
constexpr int kUndef = NCCL_CONFIG_UNDEF_INT;
constexpr int kMostCtas = 64;

/// Copies what caller and library both know over the defaults, and drops fields that the caller's version did not have: whatever
/// bytes stand there, it did not mean them.
Result<ncclConfig_t> adopt(const ncclConfig_t& given) {
  ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  const ncclConfig_t defaults = own;
  if (given.size < offsetof(ncclConfig_t, magic) + sizeof given.magic || given.magic != kMagic)
    return fail(Code::InvalidArgument, "the ncclConfig_t argument was not initialized via NCCL_CONFIG_INITIALIZER (size {}, magic 0x{:x})",
                given.size, given.size < offsetof(ncclConfig_t, magic) + sizeof given.magic ? 0 : given.magic);
  std::memcpy(&own, &given, std::min(given.size, sizeof own));
  if (own.version < NCCL_VERSION(2, 14, 0)) own.blocking = defaults.blocking;
  if (own.version < NCCL_VERSION(2, 17, 0)) {
    own.cgaClusterSize = defaults.cgaClusterSize;
    own.minCTAs = defaults.minCTAs;
    own.maxCTAs = defaults.maxCTAs;
    own.netName = defaults.netName;
  }
  if (own.version < NCCL_VERSION(2, 25, 0)) own.trafficClass = defaults.trafficClass;
  if (own.version < NCCL_VERSION(2, 27, 0)) {
    own.collnetEnable = defaults.collnetEnable;
    own.CTAPolicy = defaults.CTAPolicy;
    own.shrinkShare = defaults.shrinkShare;
    own.nvlsCTAs = defaults.nvlsCTAs;
  }
  if (own.version < NCCL_VERSION(2, 28, 0)) {
    own.nChannelsPerNetPeer = defaults.nChannelsPerNetPeer;
    own.nvlinkCentricSched = defaults.nvlinkCentricSched;
  }
  return own;
}

/// UNDEF, or a value from `least` to `most`.
Status checkRange(const char* field, int value, int least, int most) {
  if (value == kUndef || (value >= least && value <= most)) return {};
  if (most == INT32_MAX) return error(Code::InvalidArgument, "config field {} is {}: at least {} is allowed", field, value, least);
  return error(Code::InvalidArgument, "config field {} is {}: {} to {} is allowed", field, value, least, most);
}

/// Names that every installation knows are accepted where no network is needed; others must be those of plugins.
Status checkNetwork(const char* name) {
  if (name == nullptr || strcasecmp(name, "Socket") == 0 || strcasecmp(name, "IB") == 0) return {};
  const auto network = comm::openNetwork(name);
  return network ? Status() : Status(network.error()).at("config field netName");
}

Status checkFields(const ncclConfig_t& c) {
  TUTTI_TRY(checkRange("blocking", c.blocking, 0, 1));
  TUTTI_TRY(checkRange("cgaClusterSize", c.cgaClusterSize, 0, INT32_MAX));
  TUTTI_TRY(checkRange("minCTAs", c.minCTAs, 1, INT32_MAX));
  TUTTI_TRY(checkRange("maxCTAs", c.maxCTAs, 1, INT32_MAX));
  TUTTI_TRY(checkRange("splitShare", c.splitShare, 0, 1));
  TUTTI_TRY(checkRange("collnetEnable", c.collnetEnable, 0, 1));
  TUTTI_TRY(checkRange("CTAPolicy", c.CTAPolicy, NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_ZERO));
  TUTTI_TRY(checkRange("shrinkShare", c.shrinkShare, 0, 1));
  TUTTI_TRY(checkRange("nvlsCTAs", c.nvlsCTAs, 1, INT32_MAX));
  TUTTI_TRY(checkRange("nChannelsPerNetPeer", c.nChannelsPerNetPeer, 1, kMostCtas));
  TUTTI_TRY(checkRange("nvlinkCentricSched", c.nvlinkCentricSched, 0, 1));
  TUTTI_TRY(checkNetwork(c.netName));
  if (c.minCTAs != kUndef && c.maxCTAs != kUndef && c.minCTAs > c.maxCTAs)
    return error(Code::InvalidArgument, "config field minCTAs is {}, more than maxCTAs, which is {}", c.minCTAs, c.maxCTAs);
  return {};
}

/// The environment wins over the struct; a value that makes no sense is ignored, as any number out of range, and INFO says so.
template <config::Param P>
int override(int least, int most, int field) {
  const int64_t environment = config::get<P>();
  if (environment >= least && environment <= most) return static_cast<int>(environment);
  const config::Entry& entry = config::table()[static_cast<size_t>(P)];
  if (environment != entry.number)
    observe::info(observe::Subsys::Init | observe::Subsys::Env, "{}={}: expected {} to {}: ignored", entry.name, environment, least, most);
  return field;
}

}  // namespace

Result<comm::Config> readConfig(const ncclConfig_t* config, const comm::Config* inherited) {
  if (config == nullptr && inherited != nullptr) return *inherited;
  ncclConfig_t own = NCCL_CONFIG_INITIALIZER;
  if (config != nullptr) {
    auto adopted = adopt(*config);
    if (!adopted) return tl::unexpected(std::move(adopted).error());
    own = *adopted;
    if (Status status = checkFields(own); !status.ok()) return tl::unexpected(std::move(status));
  }
  using config::Param;
  own.blocking = override<Param::CommBlocking>(0, 1, own.blocking);
  own.minCTAs = override<Param::MinCtas>(1, kMostCtas, own.minCTAs);
  own.maxCTAs = override<Param::MaxCtas>(1, kMostCtas, own.maxCTAs);
  own.cgaClusterSize = override<Param::CgaClusterSize>(0, 8, own.cgaClusterSize);
  own.CTAPolicy = override<Param::CtaPolicy>(NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_ZERO, own.CTAPolicy);
  own.splitShare = override<Param::CommSplitShareResources>(0, 1, own.splitShare);
  own.shrinkShare = override<Param::CommShrinkShareResources>(0, 1, own.shrinkShare);

  comm::Config result;
  if (own.maxCTAs != kUndef) result.maxCtas = std::min(own.maxCTAs, kMostCtas);
  if (own.minCTAs != kUndef) result.minCtas = std::min(own.minCTAs, kMostCtas);  // above maxCtas: told by readSettings()
  if (own.cgaClusterSize != kUndef) result.clusterBlocks = own.cgaClusterSize;
  if (own.CTAPolicy != kUndef) result.ctaPolicy = own.CTAPolicy;
  result.blocking = own.blocking != 0;  // undefined: blocking
  result.splitShare = own.splitShare == 1;
  result.shrinkShare = own.shrinkShare == 1;
  if (own.commName != nullptr) result.name = own.commName;
  if (own.trafficClass != kUndef) result.trafficClass = own.trafficClass;
  if (own.netName != nullptr) result.network = own.netName;
  return result;
}

}  // namespace tutti::api
