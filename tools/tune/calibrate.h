// Measures this machine's ranks, on host devices or on GPUs, and fits the constants of the models to them.
//
// One thread calls it; it starts its own. Takes some seconds.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "core/types.h"
#include "driver/cuda/driver.h"
#include "tune/platform.h"
#include "tune/probe.h"

namespace tutti::tool {

/// Times calls on threads of this process, through the library: `ranks` of them.
Result<std::vector<Probe>> measureHost(int32_t ranks);

/// The same on the first `gpus` GPUs. Fails without as many, and in a build without kernels. `cuda`: the driver that the library uses too,
/// initialised; without it, the machine's.
Result<std::vector<Probe>> measureGpus(int32_t gpus);
Result<std::vector<Probe>> measureGpus(int32_t gpus, driver::cuda::Driver& cuda);

/// What the model says of a probe on `cores` cores.
double estimateUs(const Probe& probe, const tune::Machine& machine, int32_t cores);

struct Calibration {
  tune::Machine machine;
  double before = 0;  ///< the mean error of the constants that it began with, as a factor: 1.3 is 30% off
  double after = 0;
};

/// The constants that come nearest to the probes, and what they were before. Those that no probe depends on stay.
Calibration fitHost(const std::vector<Probe>& probes, tune::Machine machine, int32_t cores);

/// What the model of devices says of a probe.
double estimateUs(const Probe& probe, const tune::DeviceMachine& machine);

struct DeviceCalibration {
  tune::DeviceMachine machine;
  double before = 0;
  double after = 0;
};

/// Of the kernels that the probes ran on; the constants of others stay, and so do those that are 0. `inGraphs`: the probes were replayed,
/// so what a launch costs is not in them, and stays as well.
DeviceCalibration fitDevices(const std::vector<Probe>& probes, tune::DeviceMachine machine, bool inGraphs = false);

}  // namespace tutti::tool
