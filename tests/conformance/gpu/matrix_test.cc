// The conformance matrix on GPUs: every algorithm on every protocol that carries it out, ranks as threads with a GPU each, bit for bit. By
// default a sample by fixed seed; TUTTI_TEST_SAMPLE sets its size, TUTTI_TEST_RANKS the rank counts ("5" or "1-8").
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>

#include "conformance/gpu/fake_gpus.h"
#include "conformance/reference.h"
#include "conformance/run_case.h"
#include "core/format.h"
#include "machine/gpu_layout.h"

namespace tutti::conformance {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr const char* kProtocols[] = {"LL", "LL128", "Simple"};

int sampleSize() {
  const char* text = std::getenv("TUTTI_TEST_SAMPLE");
  return text == nullptr ? 2 : std::atoi(text);
}

bool isWanted(int ranks) {
  const char* text = std::getenv("TUTTI_TEST_RANKS");
  if (text == nullptr) return true;
  const std::string range = text;
  const size_t dash = range.find('-');
  return ranks >= std::atoi(range.c_str()) && ranks <= std::atoi(range.c_str() + (dash == std::string::npos ? 0 : dash + 1));
}

/// What the planner says to a call of the column; "error: …" where it cannot be.
std::string explained(const Column& column, int ranks, ncclComm_t comm) {
  const Case c = caseAt(column, ranks, 0);
  return explainAlgorithm(comm, explainName(column.kind), 1000, static_cast<ncclDataType_t>(c.type), ncclSum, 0);
}

/// TUTTI_TEST_TOPOLOGY names a topology of tests/data: the GPUs are those of that machine, and rings and trees follow its links.
class PlayedMachine {
 public:
  PlayedMachine() {
    const char* const name = std::getenv("TUTTI_TEST_TOPOLOGY");
    if (name == nullptr) return;
    const std::string path = std::string(TUTTI_SOURCE_DIR "/tests/data/topologies/") + name + ".xml";
    auto file = topo::readXml(path);
    EXPECT_TRUE(file) << file.error().text();
    std::string text = topo::writeXml(file->root);
    std::vector<std::string> busIds;
    collect(file->root, busIds);
    for (size_t i = 0; i < busIds.size(); ++i) {  // those of the fake driver; none of them is in the file
      const std::string fake = format("0000:{:02x}:00.0", 0x1a + i);
      EXPECT_EQ(text.find(fake), std::string::npos);
      for (size_t at = 0; (at = text.find(busIds[i], at)) != std::string::npos;) text.replace(at, fake.size(), fake);
    }
    file_ = testing::TempDir() + "tutti_played_" + std::to_string(getpid()) + ".xml";
    EXPECT_TRUE(topo::writeText(file_, text).ok());
    use_ = std::make_unique<ScopedEnv>("NCCL_TOPO_FILE", file_);
    layoutOf() = [file = file_](int ranks) {
      const auto machine =
          machine::survey({.cuda = nullptr, .openNvml = {}, .files = std::make_shared<topo::detect::RootFiles>(), .topoFile = file});
      std::vector<int> devs(static_cast<size_t>(ranks));
      std::iota(devs.begin(), devs.end(), 0);
      const auto found = machine::findGpuLayout(*machine, devs, {});
      EXPECT_TRUE(found) << found.error().text();
      return found ? found->layout : connect::Layout::natural(ranks);
    };
  }
  ~PlayedMachine() {
    if (!file_.empty()) std::remove(file_.c_str());
  }
  PlayedMachine(const PlayedMachine&) = delete;
  PlayedMachine& operator=(const PlayedMachine&) = delete;

 private:
  static void collect(const topo::Element& element, std::vector<std::string>& busIds) {
    if (element.child("gpu") != nullptr) busIds.push_back(*element.find("busid"));
    for (const topo::Element& child : element.children) collect(child, busIds);
  }

  std::string file_;
  std::unique_ptr<ScopedEnv> use_;
};

class GpuMatrix : public testing::TestWithParam<int> {};

TEST_P(GpuMatrix, EveryResultIsRightBitForBit) {
  const int ranks = GetParam();
  if (!isWanted(ranks)) GTEST_SKIP() << "not in TUTTI_TEST_RANKS";
  const PlayedMachine played;
  FakeGpus gpus(ranks);
  std::map<std::string, int> protocolsOf;  // by algorithm, with its collective
  std::atomic<int> failures = 0;
  int cases = 0;
  for (const Column& column : columns()) {
    for (const char* const protocol : kProtocols) {
      const ScopedEnv proto("NCCL_PROTO", protocol);
      RankThreads threads(ranks, std::string(column.force), [&](int rank) { return std::make_shared<UseGpu>(gpus, rank); });
      ASSERT_TRUE(threads.created());
      std::string first;
      threads.run([&](int rank, ncclComm_t comm) {
        if (rank == 0) first = explained(column, ranks, comm);
      });
      if (first.starts_with("error: ")) continue;
      ++protocolsOf[column.force];
      const std::vector<Case> sampled = sampleCases(column, ranks, sampleSize(), mix(kSeed, hashBytes(protocol, 2)));
      threads.run([&](int rank, ncclComm_t comm) {
        for (const Case& c : sampled) {
          if (rank == 0) threads.announce(describe(c) + " " + protocol);
          const std::string problem = runCaseAlone(c, rank, comm, true, [&] { synchronize(gpus); });
          if (!problem.empty() && ++failures < 20)
            ADD_FAILURE() << "rank " << rank << ": " << problem << "\n  in: " << describe(c) << " " << protocol;
        }
      });
      cases += static_cast<int>(sampled.size());
    }
  }
  RecordProperty("cases", std::to_string(cases));
  EXPECT_EQ(failures, 0) << "of " << cases << " cases";
  if (ranks == 1) return;  // one alone has no windows
  for (const Column& column : columns()) EXPECT_GT(protocolsOf[column.force], 0) << column.force << " runs on no protocol";
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuMatrix, testing::Range(1, 9));

}  // namespace
}  // namespace tutti::conformance
