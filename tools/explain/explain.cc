#include "explain/explain.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "comm/constants.h"
#include "comm/settings.h"
#include "config/params.h"
#include "exit_codes.h"
#include "explain/fabric.h"
#include "explain/modelled.h"
#include "plan/device_planner.h"
#include "plan/link_planner.h"
#include "tune/store.h"
#include "tutti.h"

namespace tutti::tool {
namespace {

/// As tuttiExplain calls it; a message is looked at from its sender's side.
std::string nameOf(const bench::Operation& operation) {
  switch (operation.op) {
    case bench::Op::AllToAll: return "all_to_all";
    case bench::Op::SendRecv: return "send";
    default: return std::string(operation.name);
  }
}

Collective collectiveOf(bench::Op op) {
  switch (op) {
    case bench::Op::AllReduce: return Collective::AllReduce;
    case bench::Op::AllGather: return Collective::AllGather;
    case bench::Op::ReduceScatter: return Collective::ReduceScatter;
    case bench::Op::Broadcast: return Collective::Broadcast;
    case bench::Op::Reduce: return Collective::Reduce;
    case bench::Op::AllToAll: return Collective::AllToAll;
    case bench::Op::Gather: return Collective::Gather;
    case bench::Op::Scatter: return Collective::Scatter;
    case bench::Op::SendRecv: break;
  }
  return Collective::SendRecv;
}

int rootOf(const ExplainOptions& options, int ranks) {
  return options.operation->op == bench::Op::SendRecv ? std::min(1, ranks - 1) : options.root;
}

plan::Shape shapeOf(const ExplainOptions& options, int ranks) {
  plan::Shape shape;
  shape.collective = collectiveOf(options.operation->op);
  shape.type = options.type;
  shape.count = countOf(options, ranks);
  shape.root = Rank(rootOf(options, ranks));
  return shape;
}

Status failed(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return {};
  const std::string_view text = ncclGetLastError(nullptr);
  const bool isNamed = text.starts_with(format("{}: ", what));
  return error(static_cast<Code>(result), "{}{}{}", isNamed ? "" : what, isNamed ? "" : ": ", text);
}

Result<std::string> askLibrary(const ExplainOptions& options, ncclComm_t comm) {
  const std::string name = nameOf(*options.operation);
  const auto ask = [&](char* text, size_t capacity, size_t* needed) {
    return failed(tuttiExplain(comm, name.c_str(), countOf(options, options.ranks), static_cast<ncclDataType_t>(options.type), ncclSum,
                               rootOf(options, options.ranks), text, capacity, needed),
                  "tuttiExplain");
  };
  size_t needed = 0;
  if (Status status = ask(nullptr, 0, &needed); !status.ok()) return tl::unexpected(std::move(status));
  std::string text(needed, '\0');
  if (Status status = ask(text.data(), text.size(), nullptr); !status.ok()) return tl::unexpected(std::move(status));
  text.pop_back();  // the NUL
  return text;
}

/// What the environment makes of a configuration that says nothing.
comm::Config configOfEnvironment() {
  comm::Config config;
  const auto replace = [](int32_t& value, int64_t given) {
    if (given != config::kUndefined) value = static_cast<int32_t>(std::clamp<int64_t>(given, 1, 64));
  };
  const auto among = [](int32_t& value, int64_t given, int64_t most) {
    if (given >= 0 && given <= most) value = static_cast<int32_t>(given);
  };
  replace(config.minCtas, config::get<config::Param::MinCtas>());
  replace(config.maxCtas, config::get<config::Param::MaxCtas>());
  among(config.clusterBlocks, config::get<config::Param::CgaClusterSize>(), 8);
  among(config.ctaPolicy, config::get<config::Param::CtaPolicy>(), NCCL_CTA_POLICY_ZERO);
  return config;
}

int tell(const Status& status) {
  std::fprintf(stderr, "tutti explain: %s\n", status.text().c_str());
  const bool isUsage = status.code() == Code::InvalidUsage || status.code() == Code::InvalidArgument;
  return isUsage ? kExitUsage : kExitError;
}

}  // namespace

uint64_t countOf(const ExplainOptions& options, int ranks) {
  const uint64_t one = options.operation->sizeCount(1, ranks) * sizeOf(options.type);
  return std::max<uint64_t>(1, options.bytes / one);
}

Result<std::string> explainHost(const ExplainOptions& options) {
  if (setenv("TUTTI_DEVICE", "host", 1) != 0) return fail(Code::SystemError, "setenv failed");
  std::vector<ncclComm_t> comms(static_cast<size_t>(options.ranks), nullptr);
  ncclUniqueId id;
  Status status = failed(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (status.ok()) status = failed(ncclGroupStart(), "ncclGroupStart");
  if (!status.ok()) return tl::unexpected(std::move(status));
  for (int rank = 0; rank < options.ranks && status.ok(); ++rank)
    status = failed(ncclCommInitRank(&comms[static_cast<size_t>(rank)], options.ranks, id, rank), "ncclCommInitRank");
  if (Status ended = failed(ncclGroupEnd(), "ncclGroupEnd"); status.ok()) status = std::move(ended);
  Result<std::string> text = status.ok() ? askLibrary(options, comms.front()) : Result<std::string>(tl::unexpected(std::move(status)));
  for (const ncclComm_t comm : comms)
    if (comm != nullptr) (void)ncclCommAbort(comm);
  return text;
}

Result<std::string> explainGpus(const ExplainOptions& options, int listed) {
  if (Status status = plan::fitRanks(options.gpus); !status.ok()) return tl::unexpected(std::move(status));
  plan::Explanation explanation;
  const std::string name = nameOf(*options.operation);
  explanation.collective = name;
  const uint64_t count = countOf(options, options.gpus);
  explanation.bytes = options.operation->sizeCount(count, options.gpus) * sizeOf(options.type);
  explanation.ranks = options.gpus;
  explanation.nodes = 1;
  comm::Constants kept;
  const auto gpus = ModelledGpus::make(options.gpus, configOfEnvironment(), {}, options.gpus <= listed ? kept.get() : nullptr);
  if (!gpus) return tl::unexpected(gpus.error());
  auto modelled = (*gpus)->plan(shapeOf(options, options.gpus), &explanation.rejected);
  if (!modelled) return tl::unexpected(std::move(modelled).error());
  explanation.constants = modelled->constants;
  explanation.chosen = std::move(modelled->summary);
  return plan::toJson(explanation);
}

Result<std::string> explainTopology(const ExplainOptions& options) {
  TopoOptions topo = options.topo;
  if (Status status = readVariables(topo); !status.ok()) return tl::unexpected(std::move(status));
  const auto source = openSource(topo.source);
  if (!source) return tl::unexpected(source.error());
  const auto fabric = fabricOf(source->machine, topo.facts, topo.graphs);
  if (!fabric) return tl::unexpected(fabric.error());
  if (options.operation->isRooted && options.root >= fabric->ranks)
    return fail(Code::InvalidArgument, "root {} is out of range: the {} nodes have ranks 0 to {}", options.root, fabric->nodes,
                fabric->ranks - 1);
  const comm::Config config = configOfEnvironment();
  const auto host = comm::readSettings(config);
  if (!host) return tl::unexpected(host.error());
  plan::LinkSettings settings;
  settings.restrictions = host->restrictions;
  settings.protocols = host->protocols;
  settings.deterministic = host->deterministic;
  settings.minChannels = host->channels;
  settings.maxChannels = host->maxChannels;
  plan::LinkPlanner planner(*fabric, tune::linkConstants(), std::move(settings));
  auto explanation = planner.explain(shapeOf(options, fabric->ranks));
  if (!explanation) return tl::unexpected(std::move(explanation).error());
  const std::string name = nameOf(*options.operation);
  explanation->collective = name;
  explanation->constants = "nccl";
  return plan::toJson(*explanation);
}

int runExplain(const ExplainOptions& options) {
  const auto text = !options.topo.source.file.empty() ? explainTopology(options)
                    : options.gpus > 0                ? explainGpus(options, tune::listedGpus())
                                                      : explainHost(options);
  if (!text) return tell(text.error());
  const auto shown = options.writesJson ? Result<std::string>(*text + "\n") : showExplanation(*text);
  if (!shown) return tell(shown.error());
  std::fputs(shown->c_str(), stdout);
  return 0;
}

}  // namespace tutti::tool
