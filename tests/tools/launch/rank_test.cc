// Whatever a launcher leaves in the environment becomes a standing, or an error that names what is wrong; never a guess.
#include "launch/rank.h"

#include <gtest/gtest.h>

namespace tutti::launch::rank_test {
namespace {

using Changes = std::vector<std::pair<std::string, std::string>>;

/// An empty value takes the variable away.
Environment with(Environment environment, const Changes& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty())
      environment.erase(name);
    else
      environment.insert_or_assign(name, value);
  }
  return environment;
}

const Environment kTuttiRun = {{"RANK", "1"},         {"WORLD_SIZE", "4"},    {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
                               {"TUTTI_RUN_FD", "7"}, {"TUTTI_RUN_RANK", "1"}};
const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "head.example"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "0"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "1874788353"},
                              {"OMPI_MCA_orte_hnp_uri", "18.0;tcp://192.0.2.2,10.0.0.1:34929;tcp6://[fd00::2]:44933"},
                              {"OMPI_MCA_orte_local_daemon_uri", "18.0;tcp://192.0.2.2,10.0.0.1:34929;tcp6://[fd00::2]:44933"}};
const Environment kMpich = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "8"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "9"},
                            {"SLURM_NTASKS", "11"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NODEID", "2"},
                            {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                            {"SLURM_STEP_NODELIST", "node[07-09]"}};

Standing find(const Environment& environment) {
  const Result<Standing> standing = findStanding(environment);
  EXPECT_TRUE(standing) << standing.error().text();
  return standing.value_or(Standing());
}

void expectError(const Environment& environment, const std::vector<std::string>& words) {
  const Result<Standing> standing = findStanding(environment);
  ASSERT_FALSE(standing) << words.front();
  EXPECT_EQ(standing.error().code(), Code::InvalidUsage);
  for (const std::string& word : words) EXPECT_NE(standing.error().text().find(word), std::string::npos) << standing.error().text();
}

TEST(Standing, IsAloneWithoutALauncher) {
  for (const Environment& environment : {Environment(), Environment{{"PATH", "/bin"}, {"LOCAL_RANK", "3"}, {"RANK", ""}}}) {
    const Standing standing = find(environment);
    EXPECT_FALSE(standing.isLaunched());
    EXPECT_EQ(standing.rank, 0);
    EXPECT_EQ(standing.ranks, 1);
    EXPECT_TRUE(standing.isOneHost());
  }
}

TEST(Standing, OfTuttiRun) {
  const Standing standing = find(with(kTuttiRun, {{"TUTTI_RUN_NODES", "2"}}));
  EXPECT_EQ(standing.launcher, Launcher::TuttiRun);
  EXPECT_EQ(standing.rank, 1);
  EXPECT_EQ(standing.ranks, 4);
  EXPECT_EQ(standing.descriptor, 7);
  EXPECT_EQ(standing.nodes, 2);
  EXPECT_TRUE(standing.isOneHost());
}

TEST(Standing, OfTuttiRunGoesFirst) {
  Environment all = kTuttiRun;
  for (const Environment* other : {&kOpenMpi, &kMpich, &kSlurm}) all.insert(other->begin(), other->end());
  EXPECT_EQ(find(all).launcher, Launcher::TuttiRun);
}

TEST(Standing, ALauncherInsideTuttiRunIsNoticed) {
  expectError(with(kTuttiRun, {{"RANK", "2"}}), {"RANK=2", "TUTTI_RUN_RANK=1"});
  expectError(with(kTuttiRun, {{"TUTTI_RUN_RANK", ""}}), {"TUTTI_RUN_RANK"});
}

TEST(Standing, OfTorchrun) {
  const Standing standing = find(kTorchrun);
  EXPECT_EQ(standing.launcher, Launcher::Torchrun);
  EXPECT_EQ(standing.rank, 5);
  EXPECT_EQ(standing.ranks, 8);
  EXPECT_EQ(standing.localRank, 1);
  EXPECT_EQ(standing.localRanks, 4);
  EXPECT_EQ(standing.hosts, std::vector<std::string>{"head.example"});
  EXPECT_TRUE(find(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}})).hosts.empty());
}

TEST(Standing, JobsOfTorchrunDiffer) {
  const std::string key = find(kTorchrun).jobKey;
  EXPECT_EQ(find(with(kTorchrun, {{"RANK", "0"}, {"LOCAL_RANK", "0"}})).jobKey, key);
  for (const auto& [name, value] : Changes{{"MASTER_PORT", "29501"}, {"TORCHELASTIC_RUN_ID", "b"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}) {
    EXPECT_NE(find(with(kTorchrun, {{name, value}})).jobKey, key) << name;
  }
}

TEST(Standing, TorchVariablesWithoutLocalOnesAreSeveralHosts) {
  const Standing standing = find(with(kTorchrun, {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}}));
  EXPECT_EQ(standing.localRank, kUnknown);
  EXPECT_FALSE(standing.isOneHost());
  EXPECT_EQ(standing.hosts.size(), 1U);
}

TEST(Standing, HalfSetTorchVariables) {
  expectError(with(kTorchrun, {{"WORLD_SIZE", ""}}), {"RANK is set", "WORLD_SIZE is not", "--launcher none"});
  expectError(with(kTorchrun, {{"RANK", ""}}), {"WORLD_SIZE is set", "RANK is not"});
  expectError(with(kTorchrun, {{"LOCAL_RANK", ""}}), {"LOCAL_WORLD_SIZE is set", "LOCAL_RANK is not"});
  expectError(with(kTorchrun, {{"MASTER_ADDR", ""}}), {"MASTER_ADDR is not"});
  expectError(with(kTorchrun, {{"MASTER_PORT", ""}}), {"MASTER_PORT is not"});
}

TEST(Standing, NumbersThatAreNone) {
  for (const char* text : {"-1", "x", "1.5", "99999999999999999999", " 1", "1 "})
    expectError(with(kTorchrun, {{"RANK", text}}), {"RANK", text});
  expectError(with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE"});
  expectError(with(kTorchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT"});
}

TEST(Standing, NumbersThatContradict) {
  expectError(with(kTorchrun, {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8"});
  expectError(with(kTorchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"});
  expectError(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"LOCAL_WORLD_SIZE=9", "WORLD_SIZE=8"});
  expectError(with(kMpich, {{"PMI_RANK", "3"}}), {"PMI_RANK=3", "PMI_SIZE=3"});
}

TEST(Standing, OfOpenMpi) {
  const Standing standing = find(kOpenMpi);
  EXPECT_EQ(standing.launcher, Launcher::OpenMpi);
  EXPECT_EQ(standing.ranks, 4);
  EXPECT_EQ(standing.hosts, (std::vector<std::string>{"192.0.2.2", "10.0.0.1", "fd00::2"}));
  const Standing other =
      find(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_MCA_orte_local_daemon_uri", "18.1;tcp://192.0.2.3:1"}}));
  EXPECT_EQ(other.hosts, standing.hosts);
  EXPECT_EQ(other.jobKey, standing.jobKey);
}

TEST(Standing, OpenMpiWithRankZeroElsewhereSaysSo) {
  const Standing away = find(with(kOpenMpi, {{"OMPI_MCA_orte_local_daemon_uri", "18.1;tcp://192.0.2.3:1"}}));
  EXPECT_TRUE(away.hosts.empty());
  EXPECT_NE(away.hostProblem.find("not on the host of mpirun"), std::string::npos);
  const Standing silent = find(with(kOpenMpi, {{"OMPI_MCA_orte_hnp_uri", ""}}));
  EXPECT_TRUE(silent.hosts.empty());
  EXPECT_FALSE(silent.hostProblem.empty());
  EXPECT_FALSE(
      find(with(kOpenMpi, {{"OMPI_MCA_orte_hnp_uri", "nonsense"}, {"OMPI_MCA_orte_local_daemon_uri", "nonsense"}})).hostProblem.empty());
}

TEST(Standing, HalfSetOpenMpiVariables) {
  expectError(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), {"OMPI_COMM_WORLD_RANK is set", "OMPI_COMM_WORLD_SIZE is not"});
  expectError(with(kOpenMpi, {{"PMIX_NAMESPACE", ""}}), {"PMIX_NAMESPACE"});
}

TEST(Standing, OfMpich) {
  const Standing standing = find(kMpich);
  EXPECT_EQ(standing.launcher, Launcher::Pmi);
  EXPECT_EQ(standing.rank, 2);
  EXPECT_EQ(standing.descriptor, 8);
  EXPECT_TRUE(standing.isOneHost());
  EXPECT_EQ(find(with(kMpich, {{"PMI_FD", ""}})).descriptor, -1);
}

TEST(Standing, OfSlurm) {
  const Standing standing = find(kSlurm);
  EXPECT_EQ(standing.launcher, Launcher::Slurm);
  EXPECT_EQ(standing.rank, 9);
  EXPECT_EQ(standing.ranks, 11);
  EXPECT_EQ(standing.localRank, 1);
  EXPECT_EQ(standing.localRanks, 3);
  EXPECT_EQ(standing.hosts, std::vector<std::string>{"node07"});
  EXPECT_NE(find(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).jobKey, standing.jobKey);
}

TEST(Standing, TheStepsTasksCountNotTheJobs) {
  EXPECT_EQ(find(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "11"}, {"SLURM_NTASKS", "64"}})).ranks, 11);
}

TEST(Standing, AShellOfAnAllocationIsNoTask) {
  const Environment salloc = {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "node[1-2]"}};
  EXPECT_FALSE(find(salloc).isLaunched());
  EXPECT_FALSE(find(with(salloc, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}})).isLaunched()) << "a batch script";
  EXPECT_FALSE(find(with(salloc, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}})).isLaunched()) << "an interactive step";
}

TEST(Standing, SlurmVariablesThatContradict) {
  expectError(with(kSlurm, {{"SLURM_PROCID", "11"}}), {"SLURM_PROCID=11", "SLURM_NTASKS=11"});
  expectError(with(kSlurm, {{"SLURM_PROCID", ""}}), {"SLURM_NTASKS is set", "SLURM_PROCID is not"});
  expectError(with(kSlurm, {{"SLURM_LOCALID", "3"}}), {"SLURM_LOCALID=3"});
  expectError(with(kSlurm, {{"SLURM_NODEID", "3"}}), {"node 3"});
  expectError(with(kSlurm, {{"SLURM_STEP_NODELIST", "node[07"}}), {"node[07", "SLURM_STEP_NODELIST"});
  EXPECT_FALSE(find(with(kSlurm, {{"SLURM_STEP_NODELIST", ""}})).hostProblem.empty());
}

}  // namespace
}  // namespace tutti::launch::rank_test
