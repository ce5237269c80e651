#include "machine/survey.h"

#include <utility>

#include "core/format.h"
#include "core/hash.h"
#include "driver/nvml/nvml.h"
#include "topo/detect/driver.h"
#include "topo/detect/machine.h"

namespace tutti::machine {
namespace {

using driver::nvml::Nvml;
using topo::Document;
using topo::Element;
using topo::detect::GpuFacts;

const Element* findGpu(const Element& element, const std::string& busId) {
  if (const std::string* own = element.find("busid"); element.name == "pci" && own != nullptr && *own == busId) {
    if (const Element* gpu = element.child("gpu")) return gpu;
  }
  for (const Element& child : element.children)
    if (const Element* found = findGpu(child, busId)) return found;
  return nullptr;
}

}  // namespace

Result<std::vector<GpuFacts>> findGpus(driver::cuda::Driver& cuda, const decltype(Sources::openNvml)& openNvml, bool hiddenToo,
                                       std::vector<std::string>& notes) {
  auto library = openNvml();
  auto nvml = library ? Nvml::start(*std::move(library)) : Result<std::unique_ptr<Nvml>>(tl::unexpected(library.error()));
  if (!nvml) notes.push_back(format("no NVLinks, and CUDA's numbers of GPUs: {}", nvml.error().text()));
  return topo::detect::askDrivers(cuda, nvml ? nvml->get() : nullptr, hiddenToo);
}

Result<Document> startOf(const Sources& sources) {
  if (!sources.topoFile.empty()) return topo::readXml(sources.topoFile);
  const auto text = sources.files->text(kVirtualTopology);
  return text ? topo::parseXml(kVirtualTopology, *text) : topo::detect::emptyMachine();
}

Result<Machine> survey(const Sources& sources) {
  auto document = startOf(sources);
  if (!document) return tl::unexpected(std::move(document).error());
  Machine machine{.document = *std::move(document), .hash = 0, .gpus = {}, .files = sources.files, .notes = {}};
  if (machine.document.root.name != "system")
    return fail(Code::InvalidUsage, "{}: the root is <{}>; expected <system version=\"1\">",
                topo::placeOf(machine.document, machine.document.root), machine.document.root.name);
  if (const auto version = topo::needInteger(machine.document, machine.document.root, "version", 1, 2); !version)
    return tl::unexpected(version.error());
  if (sources.cuda != nullptr) {
    auto gpus = findGpus(*sources.cuda, sources.openNvml, true, machine.notes);
    if (!gpus) return tl::unexpected(std::move(gpus).error());
    machine.gpus = *std::move(gpus);
  }
  const topo::detect::MachineFacts facts{.gpus = machine.gpus, .nets = {}, .allowed = {}};
  if (Status status = complete(machine.document, topo::detect::Sysfs(sources.files), facts); !status.ok())
    return tl::unexpected(std::move(status));
  machine.hash = hashOfKnown(topo::writeXml(machine.document.root));
  return machine;
}

std::optional<int> devOf(const Machine& machine, const std::string& busId) {
  const Element* const gpu = findGpu(machine.document.root, busId);
  if (gpu == nullptr) return std::nullopt;
  const auto dev = topo::needInteger(machine.document, *gpu, "dev", 0, INT32_MAX);
  return dev ? std::optional(static_cast<int>(*dev)) : std::nullopt;
}

}  // namespace tutti::machine
