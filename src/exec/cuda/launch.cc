#include "exec/cuda/launch.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "exec/cuda/brief.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch_table.h"
#include "exec/cuda/lone.h"
#include "exec/cuda/lone_message.h"

namespace tutti::exec::cuda {
namespace {

const KernelEntry& entryOf(KernelId kernel) {
  switch (kernel) {
    case KernelId::Window: return windowEntry();
    case KernelId::Cells: return cellsEntry();
    case KernelId::Lines: return linesEntry();
    case KernelId::Simple: return simpleEntry();
    case KernelId::Bulk:
    case KernelId::LineWindow: break;  // the latter has none: its calls are alone
  }
  return bulkEntry();
}

Status checkCuda(cudaError_t error, const char* what, const char* kernel) {
  return error == cudaSuccess ? Status()
                              : tutti::error(Code::UnhandledCudaError, "{} of kernel {}: {}", what, kernel, cudaGetErrorString(error));
}

struct Footprint {
  const char* name;
  const void* function;
  int32_t threads;
  int32_t sharedBytes;
};

/// Loads the kernel, and makes `most` what it takes where that is more.
Status load(const Footprint& kernel, KernelUse& most, LaunchTable* table) {
  cudaError_t error = cudaSuccess;
  if (kernel.sharedBytes > 0)
    error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.sharedBytes);
  if (error != cudaSuccess) return checkCuda(error, "setting the shared memory", kernel.name);
  cudaFuncAttributes attributes{};
  error = cudaFuncGetAttributes(&attributes, kernel.function);
  if (error != cudaSuccess) return checkCuda(error, "loading", kernel.name);
  if (table != nullptr) table->add(kernel.function);
  int blocks = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, kernel.threads, static_cast<size_t>(kernel.sharedBytes));
  if (error != cudaSuccess) return checkCuda(error, "asking for the occupancy", kernel.name);
  most.registers = std::max(most.registers, attributes.numRegs);
  most.localBytes = std::max(most.localBytes, static_cast<int32_t>(attributes.localSizeBytes));
  most.sharedBytes = std::max(most.sharedBytes, static_cast<int32_t>(attributes.sharedSizeBytes));
  most.blocksPerMultiprocessor = most.blocksPerMultiprocessor == 0 ? blocks : std::min(most.blocksPerMultiprocessor, blocks);
  return {};
}

/// How many clusters of the kernel are on the device at once, by kClusterSizes; none where the driver cannot tell.
void countClusters(const Footprint& kernel, KernelUse& use) {
  for (size_t i = 0; i < kClusterSizes.size(); ++i) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(kClusterSizes[i]);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(kClusterSizes[i]));
    config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
    config.dynamicSmemBytes = static_cast<size_t>(kernel.sharedBytes);
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &config) != cudaSuccess) {
      cudaGetLastError();  // nobody else is to find it
      clusters = 0;
    }
    use.clusters[i] = clusters;
  }
}

/// Bulk needs what only code for sm_90 has: one that was compiled for older devices moves nothing, and newer devices may have less shared
/// memory.
bool canRun(KernelId kernel, int device) {
  if (kernel != KernelId::Bulk) return true;
  const KernelEntry& entry = bulkEntry();
  cudaFuncAttributes attributes{};
  int sharedBytes = 0;
  return cudaFuncGetAttributes(&attributes, entry.function[0]) == cudaSuccess && attributes.ptxVersion >= 90 &&
         cudaDeviceGetAttribute(&sharedBytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
         entry.block.sharedBytes + static_cast<int>(attributes.sharedSizeBytes) <= sharedBytes;
}

/// In kLoopTypes.
int placeOf(DataType type) { return loopOf(type, ReduceOp::Sum) / kNumLoopOps; }

const void* functionOf(const LoneEntry& kernels, const Work& work, bool isInHalves = false) {
  if (isLoneReduction(work.algorithm)) return kernels.combine.function[placeOf(work.type)];
  return isInHalves && kernels.moveHalves != nullptr ? kernels.moveHalves : kernels.move;
}
Status loadAll(const LoneEntry& kernels, KernelUse& most, LaunchTable* table) {
  const int32_t threads = kernels.combine.block.threads;
  for (const void* function : {kernels.move, kernels.moveHalves}) {
    if (function == nullptr) continue;
    if (Status status = load({kernels.name, function, threads, 0}, most, table); !status.ok()) return status;
  }
  for (const void* function : kernels.combine.function)
    if (Status status = load({kernels.name, function, threads, 0}, most, table); !status.ok()) return status;
  return {};
}

Status loadMapped(int major, KernelUse& use, LaunchTable* table) {
  const KernelEntry& entry = mappedEntry();
  Footprint kernel{"mapped", nullptr, 0, 0};
  for (int i = 0; i < kNumLoopTypes; ++i) {
    kernel.function = entry.function[i];
    kernel.threads = mappedThreads(kLoopTypes[i]);
    if (Status status = load(kernel, use, table); !status.ok()) return status;
  }
  if (Status status = load({"moved", movedTogetherFunction(), kMovedTogetherThreads, 0}, use, table); !status.ok()) return status;
  if (major >= 9) countClusters(kernel, use);
  return {};
}

template <class... Algorithms>
bool reducesAmong(algo::TypeList<Algorithms...>, uint8_t algorithm) {
  static constexpr bool kReduces[] = {reduces(Algorithms::kTraits.collective)...};
  return algorithm < sizeof...(Algorithms) && kReduces[algorithm];
}

/// Those works that lie in device memory are not looked at.
Status checkTypes(const Launch& launch) {
  for (int32_t w = 0; w < std::min(launch.works, kInlineWorks); ++w) {
    const Work& work = launch.work[w];
    if (loopType(work.type) != loopType(launch.type) && reducesAmong(algo::AllAlgorithms{}, work.algorithm))
      return error(Code::InternalError, "work {} combines {} in a launch of {}", w, name(work.type), name(launch.type));
  }
  return {};
}

/// Captures hold such launches from CUDA 12.3 on.
bool canOverlap() {
  static const bool can = [] {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12030;
  }();
  return can;
}

/// The stream, and what launches onto it; null: the runtime.
struct Target {
  void* stream;
  const LaunchTable* table;
};

Status enqueue(const Footprint& kernel, void** arguments, const Grid& grid, bool isEarly, const Target& to) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<size_t>(kernel.sharedBytes);
  config.stream = static_cast<cudaStream_t>(to.stream);
  config.attrs = attributes;
  if (isEarly) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.clusterBlocks > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(grid.clusterBlocks);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  }
  const cudaError_t error = to.table == nullptr ? cudaLaunchKernelExC(&config, kernel.function, arguments)
                                                : to.table->launch(config, kernel.function, arguments);
  return checkCuda(error, "launching", kernel.name);
}
/// Of a kernel with one parameter.
Status enqueue(const Footprint& kernel, void* parameter, const Grid& grid, bool isEarly, const Target& to) {
  void* arguments[] = {parameter};
  return enqueue(kernel, arguments, grid, isEarly, to);
}

}  // namespace

Status loadKernels(KernelUses* uses, LaunchTable* table) {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (error != cudaSuccess) return checkCuda(error, "asking for the architecture", "any");
  KernelUses found;
  for (int k = 0; k < kNumKernels; ++k) {
    const KernelInfo& info = kKernels[k];
    if (10 * major + minor < info.minimumArch) continue;
    if (static_cast<KernelId>(k) == KernelId::LineWindow || !canRun(static_cast<KernelId>(k), device)) continue;
    const KernelEntry& entry = entryOf(static_cast<KernelId>(k));
    Footprint kernel{info.name, nullptr, entry.block.threads, entry.block.sharedBytes};
    const void* largest = nullptr;
    for (const void* function : entry.function) {
      const int32_t registers = found.of[k].registers;
      kernel.function = function;
      if (Status status = load(kernel, found.of[k], table); !status.ok()) return status;
      if (found.of[k].registers > registers) largest = function;
    }
    if (!info.runsPipes || major < 9) continue;
    kernel.function = largest;
    countClusters(kernel, found.of[k]);
  }
  KernelUse& ofLines = found.of[static_cast<int>(KernelId::LineWindow)];
  if (Status status = loadAll(loneCellsEntry(), found.lone, table); !status.ok()) return status;
  if (Status status = loadAll(loneLinesEntry(), ofLines, table); !status.ok()) return status;
  for (const bool isPair : {false, true}) {
    if (Status status = loadAll(briefCellsEntry(isPair), found.lone, table); !status.ok()) return status;
    if (Status status = loadAll(briefLinesEntry(isPair), ofLines, table); !status.ok()) return status;
  }
  const Footprint messages{"messages", loneMessages(), mostLoneThreads(Protocol::Cells), 0};
  if (Status status = load(messages, found.of[static_cast<int>(KernelId::Cells)], table); !status.ok()) return status;
  const Footprint lineMessages{"linemessages", loneLineMessages(), mostLoneThreads(Protocol::Lines), 0};
  if (Status status = load(lineMessages, found.of[static_cast<int>(KernelId::Lines)], table); !status.ok()) return status;
  KernelUse ofProbe;
  if (Status status = load({"probe", probeFunction(), kProbeThreads, 0}, ofProbe, table); !status.ok()) return status;
  KernelUse ofNearPages;
  if (Status status = load({"nearpages", nearPagesFunction(), kNearPagesThreads, 0}, ofNearPages, table); !status.ok()) return status;
  if (Status status = loadMapped(major, found.mapped, table); !status.ok()) return status;
  KernelUse ofCopies;
  if (Status status = load({"copies", copiesFunction(), kCopyThreads, 0}, ofCopies, table); !status.ok()) return status;
  if (Status status = load({"moved", movedFunction(), kMovedThreads, 0}, ofCopies, table); !status.ok()) return status;
  if (uses != nullptr) *uses = found;
  return {};
}

Status launchKernel(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream, const LaunchTable* table) {
  const Work& first = launch.work[0];
  const Grid asItIs{options.blocks, 1};
  const bool isEarly = options.mayOverlap && options.blocks <= kMostEarlyBlocks && canOverlap();
  const bool isLone = launch.works == 1 && mayBeLone(first.algorithm);
  if (kernel == KernelId::LineWindow && !isLone)
    return tutti::error(Code::InvalidArgument, "kernel linewindow runs one call a launch, of an algorithm that it holds");
  if (kernel == KernelId::LineWindow || (kernel == KernelId::Window && isLone && options.mayBeLone)) {
    const Protocol protocol = kernelInfo(kernel).protocol;
    const int32_t threads = loneThreads(first.geometry, first.type, protocol);
    const bool isPair = launch.comm.ranks == 2;
    const Rounds rounds = makeRounds(first.algorithm, launch.comm.rank, launch.comm.ranks, first.root);
    const bool hasLines = protocol == Protocol::Lines;
    if (BriefLaunch brief; options.blocks == first.geometry.channels && makeBrief(launch, rounds, hasLines, brief)) {
      const LoneEntry kernels = hasLines ? briefLinesEntry(isPair) : briefCellsEntry(isPair);
      const void* const function = functionOf(kernels, first, brief.isInHalves);
      const Footprint footprint{kernels.name, function, std::min(threads, kernels.combine.block.threads), 0};
      return enqueue(footprint, &brief, asItIs, isEarly, {stream, table});
    }
    LoneLaunch parameters{launch.comm, first, numbersOf(first.type, first.op, first.scaling), rounds};
    const LoneEntry kernels = hasLines ? loneLinesEntry() : loneCellsEntry();
    return enqueue({kernels.name, functionOf(kernels, first), threads, 0}, &parameters, asItIs, isEarly, {stream, table});
  }
  if ((kernel == KernelId::Cells || kernel == KernelId::Lines) && options.mayBeLone && areLoneMessages(launch)) {
    LoneMessages parameters = makeMessages(launch);
    const bool hasLines = kernel == KernelId::Lines;
    const int threads = messageThreads(launch, kernelInfo(kernel).protocol);
    return enqueue({hasLines ? "linemessages" : "messages", hasLines ? loneLineMessages() : loneMessages(), threads, 0}, &parameters,
                   asItIs, isEarly, {stream, table});
  }
  if (Status status = checkTypes(launch); !status.ok()) return status;
  const KernelEntry& entry = entryOf(kernel);
  Launch parameters = launch;
  const void* const function = entry.function[placeOf(launch.type)];
  // A grid of roles gains nothing by being there early.
  return enqueue({kernelInfo(kernel).name, function, entry.block.threads, entry.block.sharedBytes}, &parameters,
                 options.grid.blocks >= options.blocks ? options.grid : asItIs, false, {stream, table});
}

Status launchProbe(const ProbeLaunch& launch, void* stream, const LaunchTable* table) {
  ProbeLaunch parameters = launch;
  return enqueue({"probe", probeFunction(), kProbeThreads, 0}, &parameters, {launch.pairs, 1}, false, {stream, table});
}

Status launchNearPages(const NearLaunch& launch, void* stream, const LaunchTable* table) {
  NearLaunch parameters = launch;
  return enqueue({"nearpages", nearPagesFunction(), kNearPagesThreads, 0}, &parameters, {nearBlocks(launch), 1}, false, {stream, table});
}

Status launchMapped(const MappedLaunch& launch, const Grid& grid, void* stream, const LaunchTable* table) {
  MappedLaunch parameters = launch;
  const void* function = mappedEntry().function[placeOf(launch.type)];
  return enqueue({"mapped", function, mappedThreads(launch.type), 0}, &parameters, grid, false, {stream, table});
}

Status launchMoved(const MovedLaunch& launch, const Grid& grid, void* stream, const LaunchTable* table) {
  MovedLaunch parameters = launch;
  const bool areSeveral = grid.blocks > 1;
  return enqueue({"moved", areSeveral ? movedTogetherFunction() : movedFunction(), areSeveral ? kMovedTogetherThreads : kMovedThreads, 0},
                 &parameters, grid, false, {stream, table});
}

Status launchCopies(const CopyLaunch& launch, CopyStage stage, void* stream, const LaunchTable* table) {
  CopyLaunch parameters = launch;
  void* arguments[] = {&parameters, &stage};
  return enqueue({"copies", copiesFunction(), kCopyThreads, 0}, arguments, {1, 1}, false, {stream, table});
}

namespace {

class Kernels final : public Executor {
 public:
  Status load(KernelUses& uses) override { return loadKernels(&uses, &table_); }
  Status launch(KernelId kernel, const Launch& launch, const LaunchOptions& options, void* stream) override {
    return launchKernel(kernel, launch, options, stream, &table_);
  }
  Status probe(const ProbeLaunch& launch, void* stream) override { return launchProbe(launch, stream, &table_); }
  Status nearPages(const NearLaunch& launch, void* stream) override { return launchNearPages(launch, stream, &table_); }
  Status copies(const CopyLaunch& launch, CopyStage stage, void* stream) override { return launchCopies(launch, stage, stream, &table_); }
  Status moved(const MovedLaunch& launch, const Grid& grid, void* stream) override { return launchMoved(launch, grid, stream, &table_); }
  Status mapped(const MappedLaunch& launch, const Grid& grid, void* stream) override { return launchMapped(launch, grid, stream, &table_); }

 private:
  LaunchTable table_;
};

}  // namespace

std::unique_ptr<Executor> makeExecutor() { return std::make_unique<Kernels>(); }
int32_t builtRuntime() { return CUDART_VERSION; }

}  // namespace tutti::exec::cuda
