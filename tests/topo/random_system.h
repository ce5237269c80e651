// Made-up machines: 1 to 16 GPUs, random PCI trees on one or two sockets, NVLink meshes, NVSwitches, NICs. The same seed, the same machine.
#pragma once

#include <random>
#include <vector>

#include "topo/graph.h"
#include "topo/paths.h"

namespace tutti::topo::test {

struct RandomMachine {
  System system;
  Paths paths;
};

class MachineMaker {
 public:
  explicit MachineMaker(uint32_t seed) : random_(seed) {}

  /// A machine with at most that many GPUs. Fewer where some reach rank 0 only through the network.
  Result<RandomMachine> make(int mostGpus) {
    RandomMachine made;
    System& system = made.system;
    const int gpus = pick(mostGpus > 1 ? 2 : 1, mostGpus);
    addSockets(system);
    addSwitches(system);
    for (int gpu = 0; gpu < gpus; ++gpu) addGpu(system, gpu);
    addNvLinks(system);
    const int nets = pick(0, 3);
    for (int net = 0; net < nets; ++net) addNet(system, net);
    system.ranks = nets > 0 && chance(60) ? 2 * gpus : gpus;
    PathSettings settings;
    settings.driverP2p = chance(85);
    settings.pxnDisabled = chance(20);
    settings.nvbDisabled = chance(20);
    auto first = computePaths(system, settings);
    if (!first) return tl::unexpected(std::move(first).error());
    auto paths = trim(system, *first, 0, settings);
    if (!paths) return tl::unexpected(std::move(paths).error());
    made.paths = *std::move(paths);
    setBandwidths(system, made.paths);
    return made;
  }

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + pick(0, static_cast<int>(values.size()) - 1));
  }

 private:
  static void both(System& system, NodeId a, NodeId b, LinkType type, float GBps) {
    system.connect(a, b, type, GBps);
    system.connect(b, a, type, GBps);
  }

  void addSockets(System& system) {
    const int sockets = pick(1, 2);
    const CpuVendor vendor = chance(50) ? CpuVendor::Intel : CpuVendor::Amd;
    for (int i = 0; i < sockets; ++i) {
      const NodeId cpu = system.addNode(NodeKind::Cpu, makeNodeId(0, static_cast<uint64_t>(i)));
      system.at(cpu).cpu = {.arch = CpuArch::X86, .vendor = vendor, .model = CpuModel::Skylake, .affinity = {}};
    }
    if (sockets == 2)
      both(system, system.all(NodeKind::Cpu)[0], system.all(NodeKind::Cpu)[1], LinkType::Sys, of({6.0F, 10.0F, 16.0F, 22.0F, 40.0F}));
    pciGBps_ = of({12.0F, 12.0F, 24.0F, 48.0F});
    sm_ = of({70, 70, 80, 89, 90});
  }

  void addSwitches(System& system) {
    const int switches = pick(0, 4);
    for (int i = 0; i < switches; ++i) {
      const NodeId above = place(system);
      const NodeId made = system.addNode(NodeKind::Pci, makeNodeId(0, 0x1000 + static_cast<uint64_t>(i) * 0x1000));
      both(system, made, above, LinkType::Pci, chance(70) ? pciGBps_ : pciGBps_ / 2);
    }
  }

  /// A CPU or a switch, to hang something on.
  NodeId place(const System& system) {
    const int cpus = system.count(NodeKind::Cpu);
    const int switches = system.count(NodeKind::Pci);
    const int index = pick(0, switches > 0 && chance(75) ? switches - 1 + cpus : cpus - 1);
    return index < cpus ? system.all(NodeKind::Cpu)[static_cast<size_t>(index)]
                        : system.all(NodeKind::Pci)[static_cast<size_t>(index - cpus)];
  }

  void addGpu(System& system, int number) {
    const NodeId gpu = system.addNode(NodeKind::Gpu, makeNodeId(0, 0x100000 + static_cast<uint64_t>(number) * 0x1000));
    system.at(gpu).gpu = {.dev = number, .rank = number, .sm = sm_, .gdr = true, .gcn = {}};
    both(system, gpu, place(system), LinkType::Pci, chance(85) ? pciGBps_ : pciGBps_ / 2);
  }

  void addNvLinks(System& system) {
    const auto& gpus = system.all(NodeKind::Gpu);
    const float lane = sm_ >= 80 ? 20.0F : of({20.0F, 18.0F});
    const int kind = pick(0, 9);
    if (kind < 3) return;
    if (kind == 3 && gpus.size() > 1) {
      const NodeId nvs = system.addNode(NodeKind::NvSwitch, makeNodeId(0, 0));
      const float GBps = lane * static_cast<float>(pick(4, 12));
      for (const NodeId gpu : gpus) both(system, gpu, nvs, LinkType::Nvl, GBps);
      return;
    }
    const int density = pick(25, 100);
    for (size_t a = 0; a < gpus.size(); ++a) {
      for (size_t b = a + 1; b < gpus.size(); ++b) {
        if (chance(density)) both(system, gpus[a], gpus[b], LinkType::Nvl, lane * static_cast<float>(pick(1, 3)));
      }
    }
  }

  void addNet(System& system, int number) {
    const float GBps = of({1.25F, 6.25F, 12.5F, 25.0F, 50.0F});
    const NodeId nic = system.addNode(NodeKind::Nic, makeNodeId(0, 0x200000 + static_cast<uint64_t>(number) * 0x1000));
    const NodeId net = system.addNode(NodeKind::Net, makeNodeId(0, static_cast<uint64_t>(number)));
    system.at(net).net = {.dev = number,
                          .port = 1,
                          .guid = 0x1000 + static_cast<uint64_t>(number),
                          .busId = 0,
                          .GBps = GBps,
                          .latencyUs = 0,
                          .maxChannels = 64,
                          .gdr = chance(70),
                          .coll = false,
                          .localGpu = kNoNode};
    both(system, nic, place(system), LinkType::Pci, pciGBps_);
    both(system, nic, net, LinkType::Net, GBps);
  }

  std::mt19937 random_;
  float pciGBps_ = 12;
  int sm_ = 70;
};

}  // namespace tutti::topo::test
