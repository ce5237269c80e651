#include "comm/peer_paths.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/params.h"
#include "core/format.h"
#include "driver/nvml/nvml.h"
#include "driver/nvml/real.h"
#include "machine/survey.h"
#include "observe/log.h"
#include "topo/detect/machine.h"
#include "topo/reach.h"
#include "topo/settings.h"

namespace tutti::comm {

using topo::NodeId;
using topo::NodeKind;

Result<std::optional<topo::PathType>> readPeerLevel() {
  const std::string text = config::get<config::Param::P2pLevel>();
  if (text.empty()) return std::nullopt;
  const auto level = topo::parseLevel(text);
  if (!level) return fail(Code::InvalidUsage, "NCCL_P2P_LEVEL={}: expected LOC, NVL, PIX, PXB, PHB, SYS or a number", text);
  return level;
}

Result<topo::Document> PeerPaths::detectHost(driver::cuda::Driver& driver) {
  std::vector<std::string> notes;  // told when the machine is looked at for layouts
  auto gpus = machine::findGpus(driver, [] { return driver::nvml::openNvml(); }, false, notes);
  if (!gpus) return tl::unexpected(std::move(gpus).error());
  const auto files = std::make_shared<topo::detect::RootFiles>();
  auto machine = machine::startOf({.cuda = nullptr, .openNvml = {}, .files = files, .topoFile = config::get<config::Param::TopoFile>()});
  if (!machine) return machine;
  Status status = topo::detect::complete(*machine, topo::detect::Sysfs(files), {.gpus = *std::move(gpus), .nets = {}, .allowed = {}});
  if (!status.ok()) return tl::unexpected(std::move(status));
  return machine;
}

/// Under mutex_.
const topo::View* PeerPaths::view(driver::cuda::Driver& driver) {
  if (std::exchange(isDetected_, true)) return view_ ? &*view_ : nullptr;
  const auto look = [&]() -> Result<topo::View> {
    const auto machine = detect_(driver);
    if (!machine) return tl::unexpected(machine.error());
    const auto request = topo::identicalNodes(*machine, 1, false, {});
    if (!request) return tl::unexpected(request.error());
    return topo::makeView(*machine, *request);
  };
  auto made = look();
  if (made) {
    view_ = std::move(*made);
    return &*view_;
  }
  observe::warn("how far GPUs are from each other is not known, so that the driver alone decides which use each other's memory: {}",
                made.error().text());
  return nullptr;
}

namespace {

NodeId gpuAt(const topo::System& system, const std::string& busId) {
  for (const NodeId gpu : system.all(NodeKind::Gpu))
    if (driver::nvml::canonicalBusId(topo::busIdText(system.at(gpu).id).c_str()) == busId) return gpu;
  return topo::kNoNode;
}

}  // namespace

Result<bool> PeerPaths::allow(driver::cuda::Driver& driver, std::optional<topo::PathType> level, driver::cuda::Device one,
                              driver::cuda::Device other) {
  if (level && *level < topo::PathType::Nvl) return false;
  const auto atomics = driver.peerAttribute(driver::cuda::PeerAttribute::NativeAtomics, one, other);
  if (!atomics) return tl::unexpected(atomics.error());
  if (*atomics != 0) return true;
  const std::lock_guard lock(mutex_);
  const topo::View* const host = view(driver);
  if (host == nullptr) return true;
  NodeId gpus[] = {topo::kNoNode, topo::kNoNode};
  for (const auto& [gpu, device] : {std::pair(&gpus[0], one), std::pair(&gpus[1], other)}) {
    const auto info = driver.describe(device);
    if (!info) return tl::unexpected(info.error());
    *gpu = gpuAt(host->system, info->pciBusId);
    if (*gpu == topo::kNoNode) return true;
  }
  topo::PathSettings settings;
  settings.p2pLevel = level;
  const auto access = topo::peerAccess(host->system, host->paths, settings, gpus[0], gpus[1]);
  if (!access) return tl::unexpected(access.error());
  return access->direct;
}

}  // namespace tutti::comm
