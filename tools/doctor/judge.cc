// What the findings are.
#include <algorithm>

#include "core/format.h"
#include "doctor/doctor.h"
#include "driver/cuda/real.h"

namespace tutti::tool::doctor {
namespace {

using Kind = Finding::Kind;

std::string describe(const Candidate& c) {
  if (c.version == 0) return format("{} ({}) cannot be loaded: {}", c.path, c.from, c.error);
  const std::string version = format("{}.{}.{}", c.version / 10000, c.version / 100 % 100, c.version % 100);
  const std::string id = c.buildId.empty() ? "no build id" : "build id " + c.buildId;
  return format("{} ({}): NCCL {}, {}, {}", c.path, c.from, version, c.tutti.empty() ? "not tutti" : "tutti " + c.tutti, id);
}

template <class... Args>
void ask(std::string& failed, driver::cuda::Error error, const char* call) {
  if (error == driver::cuda::Error::Success || !failed.empty()) return;
  const char* const name = driver::cuda::listedName(error);
  failed = format("{} returned {} ({})", call, name == nullptr ? "an unknown error" : name, static_cast<int>(error));
}

}  // namespace

std::vector<Finding> judgeLibraries(const std::vector<Candidate>& candidates, const std::string& own) {
  std::vector<Finding> findings;
  const auto isWheel = [](const Candidate& c) { return c.from == "a Python package"; };
  const auto first = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) { return !isWheel(c) && c.version != 0; });
  if (first == candidates.end()) {
    findings.push_back({Kind::Note, "a program that asks for libnccl.so.2 finds none, but for what its own files name",
                        format("start it with LD_PRELOAD={}", own)});
  } else if (first->tutti.empty()) {
    findings.push_back({Kind::Wrong, format("a program that asks for libnccl.so.2 gets {}", describe(*first)),
                        format("start it with LD_PRELOAD={}, or put the folder of that file first in LD_LIBRARY_PATH", own)});
  } else {
    findings.push_back({Kind::Fine, format("a program that asks for libnccl.so.2 gets {}", describe(*first)), ""});
  }
  const bool isPreloaded = first != candidates.end() && first->from == "LD_PRELOAD" && !first->tutti.empty();
  for (const Candidate& c : candidates) {
    if (first != candidates.end() && &c == &*first) continue;
    if (c.version == 0) {
      findings.push_back({c.from == "LD_PRELOAD" ? Kind::Wrong : Kind::Note, describe(c), "remove it, or mend what it lacks"});
    } else if (c.tutti.empty() && isWheel(c)) {
      findings.push_back({isPreloaded ? Kind::Note : Kind::Wrong, format("frameworks of that Python load {}", describe(c)),
                          isPreloaded ? "" : format("start them with LD_PRELOAD={}, or put it in that file's place", own)});
    } else {
      findings.push_back({Kind::Note, format("there is also {}", describe(c)), ""});
    }
  }
  return findings;
}

std::vector<Finding> judgeGpus(driver::cuda::Api* api, const std::string& why, int32_t runtime) {
  std::vector<Finding> findings;
  if (api == nullptr) {
    findings.push_back({Kind::Note, format("{}: ranks compute on CPUs", why), "in a container, see that it is started with its GPUs"});
    return findings;
  }
  std::string failed;
  int32_t version = 0;
  int32_t count = 0;
  ask(failed, api->driverGetVersion(&version), "cuDriverGetVersion");
  const driver::cuda::Error begun = api->init(0);
  if (begun == driver::cuda::Error::NoDevice) {
    findings.push_back({Kind::Note, "the CUDA driver has no GPU: ranks compute on CPUs", "see that CUDA_VISIBLE_DEVICES names some"});
    return findings;
  }
  ask(failed, begun, "cuInit");
  ask(failed, api->deviceGetCount(&count), "cuDeviceGetCount");
  if (!failed.empty()) {
    findings.push_back({Kind::Wrong, format("the CUDA driver does not work: {}", failed),
                        "nvidia-smi tells more; driver and kernel module must be of one version"});
    return findings;
  }
  findings.push_back({Kind::Fine, format("CUDA driver {}.{}, {} GPUs", version / 1000, version % 1000 / 10, count), ""});
  if (runtime == 0)
    findings.push_back({Kind::Wrong, "this build has no kernels for GPUs", "build it with TUTTI_CUDA=ON, or use TUTTI_DEVICE=host"});
  else if (version / 1000 < runtime / 1000)
    findings.push_back(
        {Kind::Wrong,
         format("the kernels of this build are CUDA {}.{}'s, which this driver does not run", runtime / 1000, runtime % 1000 / 10),
         format("install a driver for CUDA {}, or build with a toolkit of CUDA {}", runtime / 1000, version / 1000)});
  for (int32_t d = 0; d < count; ++d) {
    driver::cuda::Device device = 0;
    char name[128] = "";
    size_t bytes = 0;
    int32_t major = 0;
    int32_t minor = 0;
    std::string refused;
    ask(refused, api->deviceGet(&device, d), "cuDeviceGet");
    ask(refused, api->deviceGetName(name, sizeof name, device), "cuDeviceGetName");
    ask(refused, api->deviceTotalMem(&bytes, device), "cuDeviceTotalMem");
    ask(refused, api->deviceGetAttribute(&major, driver::cuda::Attribute::ComputeCapabilityMajor, device), "cuDeviceGetAttribute");
    ask(refused, api->deviceGetAttribute(&minor, driver::cuda::Attribute::ComputeCapabilityMinor, device), "cuDeviceGetAttribute");
    if (!refused.empty()) {
      findings.push_back({Kind::Wrong, format("GPU {}: {}", d, refused), "nvidia-smi tells more"});
      continue;
    }
    std::string apart;
    for (int32_t other = 0; other < count; ++other) {
      int32_t can = 0;
      if (other != d && (api->deviceCanAccessPeer(&can, device, other) != driver::cuda::Error::Success || can == 0))
        apart += format("{}{}", apart.empty() ? "" : ", ", other);
    }
    constexpr int32_t kOldest = 8;  // the kernels' (exec/cuda/launch.h)
    findings.push_back({major < kOldest ? Kind::Wrong : Kind::Fine,
                        format("GPU {}: {}, sm_{}{}, {} GiB", d, name, major, minor, bytes >> 30),
                        major < kOldest ? "the kernels need sm_80 or newer: TUTTI_DEVICE=host" : ""});
    if (!apart.empty())
      findings.push_back({Kind::Note,
                          format("GPU {} cannot access the memory of GPU {}: data between them goes through host memory", d, apart),
                          "an IOMMU or access control services (ACS) may forbid it; without them `nvidia-smi topo -p2p r` shows OK"});
  }
  return findings;
}

std::vector<Finding> judgeLimits(const Limits& limits) {
  std::vector<Finding> findings;
  constexpr uint64_t kFiles = 4096;
  if (limits.files < kFiles)
    findings.push_back({Kind::Note, format("a process may open {} files; large jobs on a host need more", limits.files),
                        format("ulimit -n {}", kFiles)});
  else
    findings.push_back({Kind::Fine, format("a process may open {} files", limits.files), ""});
  constexpr uint64_t kFileBytes = uint64_t{1} << 30;
  if (limits.fileBytes < kFileBytes)
    findings.push_back({Kind::Wrong, format("files may have {} bytes at most, and so may memory that ranks share", limits.fileBytes),
                        "ulimit -f unlimited"});
  if (!limits.hasMemfd)
    findings.push_back({Kind::Wrong, "memory cannot be shared between processes: memfd_create does not give any",
                        "a seccomp profile or a memory limit of the container forbids it"});
  else
    findings.push_back({Kind::Fine, "memory can be shared between processes (memfd; /dev/shm is not used)", ""});
  constexpr uint64_t kMemory = uint64_t{1} << 30;
  if (limits.memoryLimit != 0 && limits.memoryLimit < kMemory)
    findings.push_back({Kind::Note, format("this container may use {} MiB of memory", limits.memoryLimit >> 20),
                        "ranks on CPUs share about 100 MiB a pair"});
  constexpr uint64_t kLocked = uint64_t{64} << 20;
  if (limits.lockedBytes < kLocked)
    findings.push_back({Kind::Note, format("a process may lock {} KiB of memory; InfiniBand plugins need more", limits.lockedBytes >> 10),
                        "ulimit -l unlimited"});
  constexpr int32_t kNoAttach = 2;
  if (limits.ptraceScope >= kNoAttach)
    findings.push_back({Kind::Note, "processes may not read each other's memory (Yama): large messages on CPUs are copied twice",
                        "sysctl kernel.yama.ptrace_scope=1"});
  return findings;
}

}  // namespace tutti::tool::doctor
