#include "explain/modelled.h"

#include "comm/settings.h"
#include "config/params.h"

namespace tutti::tool {

namespace {

/// Of an H100 and an H200; blocks of a kernel that is one on each: enough for every number of blocks that anybody asks for.
constexpr int32_t kMultiprocessors = 132;

}  // namespace

Result<std::unique_ptr<ModelledGpus>> ModelledGpus::make(int32_t gpus, const comm::Config& config,
                                                         const std::function<void(plan::DeviceSettings&)>& adjust,
                                                         const tune::Platform* measured) {
  const auto host = comm::readSettings(config);
  if (!host) return tl::unexpected(host.error());
  exec::cuda::KernelUses uses;
  for (exec::cuda::KernelUse& use : uses.of) use.blocksPerMultiprocessor = 1;
  uses.lone.blocksPerMultiprocessor = 1;
  comm::Place place;
  place.ranks = gpus;
  place.multiprocessors = kMultiprocessors;
  place.keepsLines = true;
  place.streams = true;
  auto settings = comm::readDeviceSettings(*host, config, place, uses, measured);
  if (!settings) return tl::unexpected(std::move(settings).error());
  if (config::get<config::Param::P2pDisable>()) settings->hasLines = false;  // they do not arrive in order in host memory
  if (adjust) adjust(*settings);
  return std::unique_ptr<ModelledGpus>(new ModelledGpus(gpus, *settings));
}

Result<ModelledCall> ModelledGpus::plan(const plan::Shape& shape, std::vector<plan::Rejected>* rejected) {
  auto summary = planner_.summarize(shape, rejected);
  if (!summary) return tl::unexpected(std::move(summary).error());
  return ModelledCall{*std::move(summary), planner_.settings().constants};
}

}  // namespace tutti::tool
