#include "tune/probe.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "tune/fit.h"
#include "tutti.h"

namespace tutti::tool {
namespace {

/// What is measured: every collective that has several algorithms, small, middle and large.
constexpr std::pair<Collective, const char*> kCollectives[] = {
    {Collective::AllReduce, "all_reduce"}, {Collective::AllGather, "all_gather"}, {Collective::ReduceScatter, "reduce_scatter"},
    {Collective::Broadcast, "broadcast"},  {Collective::Reduce, "reduce"},
};
constexpr uint64_t kSizes[] = {8, 1024, 16384, 131072, 1 << 20, 8 << 20};
constexpr int kBatches = 12;
constexpr double kBatchUs = 2000;
constexpr int kMostCalls = 2000;
constexpr int32_t kMostProbeRanks = 16;

/// As bench/gpu names calls.
constexpr std::pair<std::string_view, Collective> kNames[] = {
    {"all_reduce", Collective::AllReduce}, {"all_gather", Collective::AllGather}, {"reduce_scatter", Collective::ReduceScatter},
    {"broadcast", Collective::Broadcast},  {"reduce", Collective::Reduce},        {"alltoall", Collective::AllToAll},
    {"gather", Collective::Gather},        {"scatter", Collective::Scatter},      {"sendrecv", Collective::SendRecv},
};

/// Whether the larger buffer holds a block of every rank.
bool hasBlocks(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
    case Collective::Broadcast:
    case Collective::Reduce:
    case Collective::SendRecv: return false;
    default: return true;
  }
}

using Json = nlohmann::json;

Probe probeOf(const Json& json) {
  Probe probe;
  const auto call = json.at("call").get<std::string>();
  const auto* const known = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) { return n.first == call; });
  if (known == std::end(kNames)) throw std::invalid_argument("call " + call + " is none that there is");
  probe.collective = known->second;
  if (!json.at("bytes").is_number_unsigned()) throw std::invalid_argument("bytes: expected a whole number from 1");
  probe.bytes = json.at("bytes").get<uint64_t>();
  probe.ranks = json.at("ranks").get<int32_t>();
  probe.algorithm = json.at("algorithm").get<std::string>();
  probe.protocol = json.at("protocol").get<std::string>();
  probe.blocks = json.at("blocks").get<int32_t>();
  probe.us = json.at("us").get<double>();
  if (probe.bytes == 0 || probe.ranks < 2 || probe.ranks > kMostProbeRanks || probe.blocks < 1 || !(probe.us > 0))
    throw std::invalid_argument("expected bytes, blocks and us above 0 and 2 to 16 ranks");
  return probe;
}

ncclResult_t call(Collective collective, const Memory& memory, size_t count, ncclComm_t comm) {
  const auto* const in = static_cast<const float*>(memory.in);
  auto* const out = static_cast<float*>(memory.out);
  const auto stream = static_cast<cudaStream_t>(memory.stream);
  switch (collective) {
    case Collective::AllGather: return ncclAllGather(in, out, count, ncclFloat, comm, stream);
    case Collective::ReduceScatter: return ncclReduceScatter(in, out, count, ncclFloat, ncclSum, comm, stream);
    case Collective::Broadcast: return ncclBroadcast(in, out, count, ncclFloat, 0, comm, stream);
    case Collective::Reduce: return ncclReduce(in, out, count, ncclFloat, ncclSum, 0, comm, stream);
    default: return ncclAllReduce(in, out, count, ncclFloat, ncclSum, comm, stream);
  }
}

/// Ranks of one communicator, a thread each, that make the same calls at the same time.
class Ranks {
 public:
  explicit Ranks(MemoryOf memory) : memory_(std::move(memory)) {}
  ~Ranks() {
    for (const ncclComm_t comm : comms_)
      if (comm != nullptr) (void)ncclCommAbort(comm);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Status open(int32_t ranks) {
    comms_.resize(static_cast<size_t>(ranks));
    return check(ncclCommInitAll(comms_.data(), ranks, nullptr), "ncclCommInitAll");
  }

  /// What a probe will run with.
  Status explain(const char* name, Probe& probe) {
    std::string text(1 << 16, '\0');
    const ncclResult_t result =
        tuttiExplain(comms_.front(), name, countOf(probe), ncclFloat, ncclSum, 0, text.data(), text.size(), nullptr);
    TUTTI_TRY(check(result, "tuttiExplain"));
    const auto json = Json::parse(text.c_str(), nullptr, false);
    if (!json.is_object() || !json.contains("algorithm")) return error(Code::InternalError, "tuttiExplain: {}", text.c_str());
    probe.algorithm = json["algorithm"].get<std::string>();
    if (json["protocol"].is_string()) probe.protocol = json["protocol"].get<std::string>();
    probe.blocks = json["channels"].get<int32_t>() * json["lanes"].get<int32_t>();
    return {};
  }

  /// The fastest batch, in us a call: what else runs on the machine only adds.
  Result<double> time(const Probe& probe) {
    const auto ranks = static_cast<std::ptrdiff_t>(comms_.size());
    std::barrier<> start(ranks);
    std::vector<double> batches;
    std::atomic<int> calls{0};
    std::atomic<int> failed{ncclSuccess};
    std::vector<std::thread> threads;
    for (std::ptrdiff_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        const auto memory = memory_(static_cast<int32_t>(r), probe.bytes + sizeof(float));
        if (!memory->status.ok()) failed.store(ncclUnhandledCudaError);
        const auto batch = [&](int count) {
          start.arrive_and_wait();
          const auto begin = std::chrono::steady_clock::now();
          for (int i = 0; i < count && failed.load() == ncclSuccess; ++i) {
            const ncclResult_t result = call(probe.collective, *memory, countOf(probe), comms_[static_cast<size_t>(r)]);
            if (result != ncclSuccess) failed.store(result);
          }
          if (!memory->finish().ok()) failed.store(ncclUnhandledCudaError);
          // All ranks have made their calls: a root that only sends returns before the others have what it sent.
          start.arrive_and_wait();
          return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
        };
        (void)batch(3);
        const double one = batch(5);
        if (r == 0) calls.store(static_cast<int>(std::clamp(kBatchUs / std::max(one, 0.1), 3.0, static_cast<double>(kMostCalls))));
        start.arrive_and_wait();
        for (int i = 0; i < kBatches; ++i) {
          const double us = batch(calls.load());
          if (r == 0) batches.push_back(us);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (Status status = check(static_cast<ncclResult_t>(failed.load()), "a call"); !status.ok()) return tl::unexpected(std::move(status));
    return *std::min_element(batches.begin(), batches.end());
  }

 private:
  static Status check(ncclResult_t result, const char* what) {
    if (result == ncclSuccess) return {};
    return error(static_cast<Code>(result), "{}: {}", what, ncclGetLastError(nullptr));
  }

  MemoryOf memory_;
  std::vector<ncclComm_t> comms_;
};

}  // namespace

uint64_t countOf(const Probe& probe) {
  const uint64_t blocks = hasBlocks(probe.collective) ? static_cast<uint64_t>(probe.ranks) : 1;
  return std::max<uint64_t>(1, probe.bytes / blocks / sizeof(float));
}

double meanFactor(const std::vector<double>& estimatesUs, const std::vector<Probe>& probes) {
  double sum = 0;
  for (size_t i = 0; i < probes.size(); ++i) sum += std::abs(std::log(estimatesUs[i] / probes[i].us));
  return std::exp(sum / static_cast<double>(std::max<size_t>(1, probes.size())));
}

double lossOf(const std::vector<double>& estimatesUs, const std::vector<Probe>& probes) {
  double sum = 0;
  for (size_t i = 0; i < probes.size(); ++i) sum += boundedLogError(estimatesUs[i], probes[i].us);
  return sum;
}

Result<std::vector<Probe>> parseProbes(std::string_view where, const std::string& text) {
  std::vector<Probe> probes;
  try {
    const Json json = Json::parse(text);
    if (!json.is_array() || json.empty()) throw std::invalid_argument("expected a list of calls");
    for (const Json& one : json) probes.push_back(probeOf(one));
  } catch (const std::exception& e) {
    return fail(Code::InvalidUsage, "{}: entry {}: {}", where, probes.size(), e.what());
  }
  return probes;
}

Result<std::vector<Probe>> measureCalls(int32_t ranks, MemoryOf memory) {
  Ranks team(std::move(memory));
  if (Status status = team.open(ranks); !status.ok()) return tl::unexpected(std::move(status));
  std::vector<Probe> probes;
  for (const auto& [collective, name] : kCollectives) {
    for (const uint64_t bytes : kSizes) {
      Probe probe;
      probe.collective = collective;
      probe.bytes = bytes;
      probe.ranks = ranks;
      if (Status status = team.explain(name, probe); !status.ok()) return tl::unexpected(std::move(status));
      const auto us = team.time(probe);
      if (!us) return tl::unexpected(us.error());
      probe.us = *us;
      probes.push_back(std::move(probe));
    }
  }
  return probes;
}

}  // namespace tutti::tool
