#include "launch/rank.h"

#include <algorithm>
#include <array>

#include "launch/hostlist.h"
#include "launch/variables.h"

namespace tutti::launch {
namespace {

constexpr int64_t kMostRanks = 1 << 24;
constexpr int64_t kMostDescriptors = 1 << 30;
constexpr int64_t kFirstSpecialStep = 0xfffffff0;  // Slurm's steps for batch scripts and interactive shells lie above

/// How a launcher calls the four numbers.
struct Names {
  Launcher launcher;
  std::string_view rank;
  std::string_view ranks;
  std::string_view localRank;
  std::string_view localRanks;
};

constexpr Names kTuttiRun = {Launcher::TuttiRun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kTorchrun = {Launcher::Torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {Launcher::Pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

constexpr const char* kEscape = "--launcher none ignores the variables of launchers";

/// An index and how many there are, of which both or none must be set; kUnknown for both when none is.
struct Pair {
  int index = kUnknown;
  int count = kUnknown;
};

Result<Pair> readPair(const Environment& env, const Names& names, std::string_view index, std::string_view count) {
  const Result<int64_t> place = readNumber(env, index, 0, kMostRanks - 1);
  if (!place) return tl::unexpected(place.error());
  const Result<int64_t> total = readNumber(env, count, 1, kMostRanks);
  if (!total) return tl::unexpected(total.error());
  if ((*place == kNotSet) != (*total == kNotSet)) {
    const bool hasPlace = *place != kNotSet;
    return fail(Code::InvalidUsage, "{}: {} is set, {} is not ({})", name(names.launcher), hasPlace ? index : count,
                hasPlace ? count : index, kEscape);
  }
  if (*place != kNotSet && *place >= *total) {
    return fail(Code::InvalidUsage, "{}: {}={} contradicts {}={} ({})", name(names.launcher), index, *place, count, *total, kEscape);
  }
  return Pair{static_cast<int>(*place), static_cast<int>(*total)};
}
static_assert(kNotSet == kUnknown);

Result<Standing> readNumbers(const Environment& env, const Names& names) {
  Standing standing;
  standing.launcher = names.launcher;
  const Result<Pair> global = readPair(env, names, names.rank, names.ranks);
  if (!global) return tl::unexpected(global.error());
  if (global->count == kUnknown) {
    return fail(Code::InvalidUsage, "{}: {} and {} are not set ({})", name(names.launcher), names.rank, names.ranks, kEscape);
  }
  const Result<Pair> local = readPair(env, names, names.localRank, names.localRanks);
  if (!local) return tl::unexpected(local.error());
  standing.rank = global->index;
  standing.ranks = global->count;
  standing.localRank = local->index;
  standing.localRanks = local->count;
  if (standing.localRanks > standing.ranks) {
    return fail(Code::InvalidUsage, "{}: {}={} contradicts {}={} ({})", name(names.launcher), names.localRanks, standing.localRanks,
                names.ranks, standing.ranks, kEscape);
  }
  return standing;
}

Result<Standing> findTuttiRun(const Environment& env) {
  Result<Standing> standing = readNumbers(env, kTuttiRun);
  if (!standing) return standing;
  const Result<int64_t> descriptor = readNumber(env, "TUTTI_RUN_FD", 0, kMostDescriptors);
  if (!descriptor) return tl::unexpected(descriptor.error());
  const Result<int64_t> rank = readNumber(env, "TUTTI_RUN_RANK", 0, kMostRanks);
  if (!rank) return tl::unexpected(rank.error());
  const Result<int64_t> nodes = readNumber(env, "TUTTI_RUN_NODES", 1, kMostRanks);
  if (!nodes) return tl::unexpected(nodes.error());
  if (*rank == kNotSet) return fail(Code::InvalidUsage, "tutti run: TUTTI_RUN_FD is set, TUTTI_RUN_RANK is not ({})", kEscape);
  if (*rank != standing->rank) {
    return fail(Code::InvalidUsage,
                "RANK={} contradicts TUTTI_RUN_RANK={}: was another launcher started by tutti run? Unset TUTTI_RUN_FD then", standing->rank,
                *rank);
  }
  standing->descriptor = static_cast<int>(*descriptor);
  standing->nodes = static_cast<int>(std::max<int64_t>(*nodes, 0));
  standing->jobKey = "tutti run";
  return standing;
}

Result<Standing> findTorchrun(const Environment& env) {
  Result<Standing> standing = readNumbers(env, kTorchrun);
  if (!standing) return standing;
  const Result<int64_t> port = readNumber(env, "MASTER_PORT", 1, 65535);
  if (!port) return tl::unexpected(port.error());
  const std::string address = textOf(env, "MASTER_ADDR");
  if (address.empty() || *port == kNotSet) {
    return fail(Code::InvalidUsage, "torchrun: RANK and WORLD_SIZE are set, {} is not ({})",
                address.empty() ? "MASTER_ADDR" : "MASTER_PORT", kEscape);
  }
  standing->jobKey =
      format("torchrun {} {} {} {}", textOf(env, "TORCHELASTIC_RUN_ID"), textOf(env, "TORCHELASTIC_RESTART_COUNT"), address, *port);
  if (!standing->isOneHost()) standing->hosts = {address};
  return standing;
}

/// The addresses in "123.0;tcp://192.0.2.2,10.0.0.1:34929;tcp6://[fd00::2]:44933".
std::vector<std::string> addressesOf(std::string_view uri) {
  std::vector<std::string> addresses;
  for (size_t at = uri.find("://"); at != std::string_view::npos; at = uri.find("://", at)) {
    at += 3;
    std::string_view list = uri.substr(at, uri.find(';', at) - at);
    list = list.substr(0, list.rfind(':'));
    for (size_t begin = 0; begin < list.size();) {
      const size_t comma = std::min(list.find(',', begin), list.size());
      std::string_view address = list.substr(begin, comma - begin);
      if (address.starts_with('[')) address.remove_prefix(1);
      if (address.ends_with(']')) address.remove_suffix(1);
      if (!address.empty()) addresses.emplace_back(address);
      begin = comma + 1;
    }
  }
  return addresses;
}

Result<Standing> findOpenMpi(const Environment& env) {
  Result<Standing> standing = readNumbers(env, kOpenMpi);
  if (!standing) return standing;
  if (!has(env, "PMIX_NAMESPACE")) {
    return fail(Code::InvalidUsage, "Open MPI: {} is set, PMIX_NAMESPACE is not ({})", kOpenMpi.rank, kEscape);
  }
  const std::string head = textOf(env, "OMPI_MCA_orte_hnp_uri");
  standing->jobKey = format("openmpi {} {} {}", textOf(env, "PMIX_NAMESPACE"), textOf(env, "OMPI_MCA_orte_precondition_transports"), head);
  if (standing->isOneHost()) return standing;
  // Rank 0 alone can tell whether it is on mpirun's host; the others believe it and try.
  const std::string daemon = textOf(env, "OMPI_MCA_orte_local_daemon_uri");
  if (head.empty()) {
    standing->hostProblem = "Open MPI does not tell where rank 0 is";
  } else if (standing->rank == 0 && daemon != head) {
    standing->hostProblem = "rank 0 is not on the host of mpirun, the only one that Open MPI tells all ranks of";
  } else {
    standing->hosts = addressesOf(head);
    if (standing->hosts.empty()) standing->hostProblem = format("OMPI_MCA_orte_hnp_uri='{}' holds no address", head);
  }
  return standing;
}

Result<Standing> findPmi(const Environment& env) {
  Result<Standing> standing = readNumbers(env, kPmi);
  if (!standing) return standing;
  const Result<int64_t> descriptor = readNumber(env, "PMI_FD", 0, kMostDescriptors);
  if (!descriptor) return tl::unexpected(descriptor.error());
  if (*descriptor != kNotSet) standing->descriptor = static_cast<int>(*descriptor);
  standing->hostProblem = "PMI_FD is not set";
  return standing;
}

/// A batch script or the shell of an allocation sees variables of Slurm without being one of the tasks.
Result<bool> isSlurmTask(const Environment& env) {
  if (!has(env, "SLURM_JOB_ID") || !has(env, "SLURM_STEP_ID")) return false;
  const Result<int64_t> step = readNumber(env, "SLURM_STEP_ID", 0, 0xffffffff);
  if (!step) return tl::unexpected(step.error());
  return *step < kFirstSpecialStep;
}

Result<Standing> findSlurm(const Environment& env) {
  const bool namesStep = has(env, "SLURM_STEP_NUM_TASKS");
  const Names names = {Launcher::Slurm, "SLURM_PROCID", namesStep ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "", ""};
  Result<Standing> standing = readNumbers(env, names);
  if (!standing) return standing;
  const Result<int64_t> localRank = readNumber(env, "SLURM_LOCALID", 0, kMostRanks);
  if (!localRank) return tl::unexpected(localRank.error());
  const Result<int64_t> node = readNumber(env, "SLURM_NODEID", 0, kMostRanks);
  if (!node) return tl::unexpected(node.error());
  const std::string counts = textOf(env, has(env, "SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE");
  if (*localRank != kNotSet && *node != kNotSet && !counts.empty()) {
    const Result<int> tasks = tasksOfNode(counts, *node);
    if (!tasks) return tl::unexpected(tasks.error());
    if (*localRank >= *tasks || *tasks > standing->ranks) {
      return fail(Code::InvalidUsage, "Slurm: SLURM_LOCALID={} and SLURM_NODEID={} contradict {} tasks, {} on the nodes ({})", *localRank,
                  *node, standing->ranks, counts, kEscape);
    }
    standing->localRank = static_cast<int>(*localRank);
    standing->localRanks = *tasks;
  }
  const std::string restart = textOf(env, "SLURM_RESTART_COUNT");
  standing->jobKey =
      format("slurm {} {}.{} {}", textOf(env, "SLURM_CLUSTER_NAME"), textOf(env, "SLURM_JOB_ID"), textOf(env, "SLURM_STEP_ID"), restart);
  if (standing->isOneHost()) return standing;
  const std::string list = textOf(env, "SLURM_STEP_NODELIST");
  if (list.empty()) {
    standing->hostProblem = "SLURM_STEP_NODELIST is not set";
    return standing;
  }
  Result<std::string> host = firstHost(list);
  if (!host) return tl::unexpected(std::move(host).error().at("SLURM_STEP_NODELIST"));
  standing->hosts = {*std::move(host)};
  return standing;
}

}  // namespace

std::string_view name(Launcher launcher) {
  switch (launcher) {
    case Launcher::None: return "no launcher";
    case Launcher::TuttiRun: return "tutti run";
    case Launcher::Torchrun: return "torchrun";
    case Launcher::OpenMpi: return "Open MPI";
    case Launcher::Pmi: return "MPICH";
    case Launcher::Slurm: return "Slurm";
  }
  return "no launcher";
}

Result<Standing> findStanding(const Environment& env) {
  if (has(env, "TUTTI_RUN_FD")) return findTuttiRun(env);
  if (has(env, "RANK") || has(env, "WORLD_SIZE")) return findTorchrun(env);
  if (has(env, kOpenMpi.rank) || has(env, kOpenMpi.ranks)) return findOpenMpi(env);
  if (has(env, kPmi.rank) || has(env, kPmi.ranks)) return findPmi(env);
  const Result<bool> isTask = isSlurmTask(env);
  if (!isTask) return tl::unexpected(isTask.error());
  if (*isTask) return findSlurm(env);
  return Standing();
}

}  // namespace tutti::launch
