#include "topology/source.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "comm/networks.h"
#include "driver/cuda/real.h"
#include "driver/nvml/real.h"
#include "topo/detect/driver.h"
#include "topo/detect/machine.h"

namespace tutti::tool {
namespace {

using driver::cuda::Driver;
using driver::nvml::Nvml;
using topo::detect::GpuFacts;
using topo::detect::MachineFacts;
using topo::detect::NetFacts;
using topo::detect::Sysfs;
using transport::net::MemoryKind;
using transport::net::Properties;

Result<std::vector<GpuFacts>> findGpus(std::vector<std::string>& notes) {
  auto api = driver::cuda::openDriver();
  if (!api) {
    notes.push_back(format("no GPUs: {}", api.error().text()));
    return std::vector<GpuFacts>();
  }
  const driver::cuda::Error begun = (*api)->init(0);
  if (begun == driver::cuda::Error::NoDevice || begun == driver::cuda::Error::StubLibrary) {
    notes.emplace_back("no GPUs: the CUDA driver has no device");
    return std::vector<GpuFacts>();
  }
  Driver cuda(*std::move(api));
  if (Status status = cuda.init(); !status.ok()) return tl::unexpected(std::move(status));
  auto library = driver::nvml::openNvml();
  auto nvml = library ? Nvml::start(*std::move(library)) : Result<std::unique_ptr<Nvml>>(tl::unexpected(library.error()));
  if (!nvml) notes.push_back(format("no NVLinks, and CUDA's numbers of GPUs: {}", nvml.error().text()));
  return topo::detect::askDrivers(cuda, nvml ? nvml->get() : nullptr);
}

bool reachesGpus(const Properties& net) {
  return (net.memoryKinds & (static_cast<int32_t>(MemoryKind::Cuda) | static_cast<int32_t>(MemoryKind::DmaBuf))) != 0;
}

Result<std::vector<NetFacts>> findNets(std::vector<std::string>& notes) {
  std::vector<NetFacts> nets;
  const auto network = comm::openNetwork("");
  if (!network) {
    notes.push_back(format("no nets: {}", network.error().text()));
    return nets;
  }
  for (int32_t device = 0; device < (*network)->devices(); ++device) {
    const auto net = (*network)->properties(device);
    if (!net) return tl::unexpected(net.error());
    nets.push_back({.name = net->name,
                    .pciPath = net->pciPath,
                    .dev = device,
                    .speedMbps = static_cast<int>(std::min<int64_t>(net->speedMbps, std::numeric_limits<int>::max())),
                    .port = net->port,
                    .latencyUs = net->latencyUs,
                    .guid = net->guid,
                    .maxConnections = net->maxComms,
                    .gdr = reachesGpus(*net)});
  }
  return nets;
}

Result<Source> detectHere(const std::string& recordPath) {
  Source source{.machine = topo::detect::emptyMachine(), .allowed = std::nullopt, .notes = {}};
  auto gpus = findGpus(source.notes);
  if (!gpus) return tl::unexpected(std::move(gpus).error());
  auto nets = findNets(source.notes);
  if (!nets) return tl::unexpected(std::move(nets).error());
  auto allowed = topo::detect::thisProcessMayUse();
  if (!allowed) return tl::unexpected(std::move(allowed).error());
  source.allowed = *allowed;

  MachineFacts facts{.gpus = *std::move(gpus), .nets = *std::move(nets), .allowed = *std::move(allowed)};
  if (!recordPath.empty()) topo::detect::hideGuids(facts);
  const auto files = std::make_shared<topo::detect::RecordingFiles>(std::make_shared<topo::detect::RootFiles>());
  if (Status status = complete(source.machine, Sysfs(files), facts); !status.ok()) return tl::unexpected(std::move(status));
  if (recordPath.empty()) return source;
  if (Status status = topo::writeXmlFile(recordPath, topo::detect::writeRecording(facts, *files)); !status.ok())
    return tl::unexpected(std::move(status));
  return source;
}

Result<Source> replay(const std::string& path) {
  const auto document = topo::readXml(path);
  if (!document) return tl::unexpected(document.error());
  auto recording = topo::detect::readRecording(*document);
  if (!recording) return tl::unexpected(std::move(recording).error());
  Source source{.machine = topo::detect::emptyMachine(), .allowed = recording->facts.allowed, .notes = {}};
  source.machine.file = path;
  if (Status status = complete(source.machine, Sysfs(recording->files), recording->facts); !status.ok())
    return tl::unexpected(std::move(status));
  return source;
}

}  // namespace

Result<Source> openSource(const SourceOptions& options) {
  if (!options.replayPath.empty()) return replay(options.replayPath);
  if (options.file.empty()) return detectHere(options.recordPath);
  auto machine = topo::readXml(options.file);
  if (!machine) return tl::unexpected(std::move(machine).error());
  return Source{.machine = *std::move(machine), .allowed = std::nullopt, .notes = {}};
}

}  // namespace tutti::tool
