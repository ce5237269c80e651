// What `tutti doctor` says of machines that a test makes up.
#include "doctor/doctor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "core/format.h"
#include "driver/cuda/fake.h"

namespace tutti::tool::doctor::doctor_test {
namespace {

using Kind = Finding::Kind;

/// A folder with libnccl.so.2 in some of its folders.
class DoctorLibraries : public testing::Test {
 protected:
  void SetUp() override {
    root = "/tmp/tutti_doctor_" + std::string(6, 'X');
    ASSERT_NE(mkdtemp(root.data()), nullptr);
    for (const char* folder : {"/ours", "/theirs", "/cached", "/site/nvidia/nccl/lib"}) {
      ASSERT_EQ(std::system(format("mkdir -p {}{}", root, folder).c_str()), 0);
      std::ofstream(root + folder + "/libnccl.so.2") << folder;
    }
  }
  void TearDown() override { EXPECT_EQ(std::system(("rm -r " + root).c_str()), 0); }

  std::vector<Candidate> find(const std::map<std::string, std::string>& env) const {
    return findLibraries(
        [&env](const char* name) -> const char* {
          const auto found = env.find(name);
          return found == env.end() ? nullptr : found->second.c_str();
        },
        format("2 libs found in cache\n\tlibnccl.so.2 (libc6,x86-64) => {}/cached/libnccl.so.2\n\tlibnccl-net.so (libc6) => /x\n", root),
        {root + "/site", root + "/nothing"},
        [](const std::string& path) {
          Candidate c;
          c.path = path;
          if (path.find("broken") == std::string::npos) c.version = 22809;
          if (path.find("ours") != std::string::npos) c.tutti = "0.1.0";
          return c;
        });
  }
  std::string root;
};

TEST_F(DoctorLibraries, AreInTheLinkersOrder) {
  const auto found = find({{"LD_PRELOAD", "/lib/libother.so " + root + "/ours/libnccl.so.2"}, {"LD_LIBRARY_PATH", root + "/theirs:/none"}});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].from, "LD_PRELOAD");
  EXPECT_EQ(found[1].from, "LD_LIBRARY_PATH");
  EXPECT_EQ(found[2].from, "ld.so.cache");
  EXPECT_EQ(found[3].from, "a Python package");
  const auto judged = judgeLibraries(found, "/own");
  EXPECT_EQ(judged[0].kind, Kind::Fine);
  for (const Finding& f : judged) EXPECT_NE(f.kind, Kind::Wrong) << f.what;
  EXPECT_EQ(find({{"LD_LIBRARY_PATH", root + "/theirs:" + root + "/theirs"}}).size(), 3u) << "each file once";
}

TEST_F(DoctorLibraries, AnotherLibraryInFrontIsWrongAndSoIsAWheel) {
  const auto judged = judgeLibraries(find({{"LD_LIBRARY_PATH", root + "/theirs"}}), "/own/libnccl.so.2");
  EXPECT_EQ(judged[0].kind, Kind::Wrong);
  EXPECT_NE(judged[0].what.find("/theirs/libnccl.so.2 (LD_LIBRARY_PATH): NCCL 2.28.9, not tutti"), std::string::npos) << judged[0].what;
  EXPECT_NE(judged[0].remedy.find("LD_PRELOAD=/own/libnccl.so.2"), std::string::npos) << judged[0].remedy;
  EXPECT_EQ(judged.back().kind, Kind::Wrong);
  EXPECT_NE(judged.back().what.find("Python"), std::string::npos);
  const auto ours = judgeLibraries(find({{"LD_LIBRARY_PATH", root + "/ours"}}), "/own");
  EXPECT_EQ(ours[0].kind, Kind::Fine);
  EXPECT_EQ(ours.back().kind, Kind::Wrong) << "a framework finds its wheel first";
}

TEST_F(DoctorLibraries, APreloadThatIsNotThereIsWrong) {
  const auto judged = judgeLibraries(find({{"LD_PRELOAD", "/broken/libnccl.so.2"}}), "/own");
  size_t wrong = 0;
  for (const Finding& f : judged) wrong += f.kind == Kind::Wrong && f.what.find("/broken") != std::string::npos ? 1 : 0;
  EXPECT_EQ(wrong, 1u);
}

TEST(DoctorGpus, AreNamedAndSoIsWhatTheyLack) {
  driver::cuda::FakeApi fake({.devices = 3, .cut = {{0, 2}}});
  const auto judged = judgeGpus(&fake, "", 13000);
  ASSERT_EQ(judged.size(), 6u) << "the driver, three GPUs, two of which lack a peer";
  EXPECT_EQ(judged[0].what, "CUDA driver 13.0, 3 GPUs");
  EXPECT_NE(judged[1].what.find("GPU 0: Fake GPU, sm_90"), std::string::npos) << judged[1].what;
  EXPECT_EQ(judged[2].what, "GPU 0 cannot access the memory of GPU 2: data between them goes through host memory");
  EXPECT_EQ(judgeGpus(&fake, "", 0)[1].kind, Kind::Wrong);
}

TEST(DoctorGpus, ADriverThatIsTooOldForTheKernelsIsWrong) {
  driver::cuda::FakeApi old({.devices = 1, .version = 12080});
  const auto judged = judgeGpus(&old, "", 13000);
  ASSERT_EQ(judged.size(), 3u);
  EXPECT_EQ(judged[1].kind, Kind::Wrong);
  EXPECT_EQ(judged[1].what, "the kernels of this build are CUDA 13.0's, which this driver does not run");
  EXPECT_EQ(judged[1].remedy, "install a driver for CUDA 13, or build with a toolkit of CUDA 12");
  for (const int32_t runtime : {12060, 12090}) EXPECT_EQ(judgeGpus(&old, "", runtime).size(), 2u) << "of the same major version";
  driver::cuda::FakeApi young({.devices = 1, .version = 13020});
  EXPECT_EQ(judgeGpus(&young, "", 12080).size(), 2u) << "a newer driver runs older kernels";
}

TEST(DoctorGpus, ADriverThatFailsIsWrongAndNoneIsNot) {
  EXPECT_EQ(judgeGpus(nullptr, "no CUDA driver: x", 13000)[0].kind, Kind::Note);
  driver::cuda::FakeApi fake;
  for (size_t call = 1; call <= 5; ++call) {
    fake.failAt(call, driver::cuda::Error::SystemNotReady);
    size_t wrong = 0;
    for (const Finding& f : judgeGpus(&fake, "", 13000))
      wrong += f.kind == Kind::Wrong && f.what.find("CUDA_ERROR_SYSTEM_NOT_READY (802)") != std::string::npos ? 1 : 0;
    EXPECT_EQ(wrong, 1u) << "call " << call;
  }
}

TEST(DoctorLimits, EachHasItsRemedy) {
  const auto kinds = [](const Limits& limits) {
    std::map<Kind, size_t> counts;
    for (const Finding& f : judgeLimits(limits)) {
      ++counts[f.kind];
      EXPECT_EQ(f.remedy.empty(), f.kind == Kind::Fine) << f.what;
    }
    return counts;
  };
  constexpr uint64_t kMuch = ~uint64_t{0};
  EXPECT_EQ(kinds({kMuch, kMuch, kMuch, true, 0, 1}), (std::map<Kind, size_t>{{Kind::Fine, 2}}));
  EXPECT_EQ(kinds({1024, 4096, 65536, false, uint64_t{256} << 20, 2}),
            (std::map<Kind, size_t>{{Kind::Note, 4}, {Kind::Wrong, 2}}));
  EXPECT_GT(readLimits().files, 0u);
  EXPECT_TRUE(readLimits().hasMemfd);
}

}  // namespace
}  // namespace tutti::tool::doctor::doctor_test
