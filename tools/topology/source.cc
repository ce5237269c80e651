#include "topology/source.h"

#include <memory>
#include <utility>

#include "comm/net_facts.h"
#include "driver/cuda/real.h"
#include "driver/nvml/real.h"
#include "machine/place.h"
#include "machine/survey.h"
#include "topo/detect/machine.h"

namespace tutti::tool {
namespace {

using driver::cuda::Driver;
using topo::detect::GpuFacts;
using topo::detect::MachineFacts;
using topo::detect::Sysfs;

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
  return machine::findGpus(
      cuda, [] { return driver::nvml::openNvml(); }, false, notes);
}

Result<Source> detectHere(const std::string& recordPath) {
  const auto files = std::make_shared<topo::detect::RecordingFiles>(std::make_shared<topo::detect::RootFiles>());
  auto start = machine::startOf({.cuda = nullptr, .openNvml = {}, .files = files, .topoFile = ""});
  if (!start) return tl::unexpected(std::move(start).error());
  Source source{.machine = *std::move(start), .allowed = std::nullopt, .caches = {}, .notes = {}};
  auto gpus = findGpus(source.notes);
  if (!gpus) return tl::unexpected(std::move(gpus).error());
  auto nets = comm::findNets(source.notes);
  if (!nets) return tl::unexpected(std::move(nets).error());
  auto allowed = topo::detect::thisProcessMayUse();
  if (!allowed) return tl::unexpected(std::move(allowed).error());
  source.allowed = *allowed;
  source.caches = machine::cachesOf(*files, *allowed);

  MachineFacts facts{.gpus = *std::move(gpus), .nets = *std::move(nets), .allowed = *std::move(allowed)};
  if (!recordPath.empty()) topo::detect::hideGuids(facts);
  if (Status status = complete(source.machine, Sysfs(files), facts); !status.ok()) return tl::unexpected(std::move(status));
  addMemory(source.machine, Sysfs(files));
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
  auto start = machine::startOf({.cuda = nullptr, .openNvml = {}, .files = recording->files, .topoFile = ""});
  if (!start) return tl::unexpected(std::move(start).error());
  Source source{.machine = *std::move(start), .allowed = recording->facts.allowed, .caches = {}, .notes = {}};
  source.machine.file = path;
  source.caches = machine::cachesOf(*recording->files, recording->facts.allowed);
  if (Status status = complete(source.machine, Sysfs(recording->files), recording->facts); !status.ok())
    return tl::unexpected(std::move(status));
  addMemory(source.machine, Sysfs(recording->files));
  return source;
}

}  // namespace

Result<Source> openSource(const SourceOptions& options) {
  if (!options.replayPath.empty()) return replay(options.replayPath);
  if (options.file.empty()) return detectHere(options.recordPath);
  auto machine = topo::readXml(options.file);
  if (!machine) return tl::unexpected(std::move(machine).error());
  return Source{.machine = *std::move(machine), .allowed = std::nullopt, .caches = {}, .notes = {}};
}

}  // namespace tutti::tool
