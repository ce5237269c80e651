#include "tune/plugin/tuner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

namespace tutti::tune::plugin::tuner_test {
namespace {

/// Sets a variable for a while.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::shared_ptr<Tuner> open(const std::string& wanted, int32_t ranks = 4) {
  Libraries libraries;
  return libraries.open(wanted, {}, {1, ranks, 1});
}

/// What is written to stdout, where warnings go.
template <class Body>
std::string outputOf(Body&& body) {
  testing::internal::CaptureStdout();
  body();
  fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

size_t occurrences(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

CostTable fullTable() {
  CostTable table;
  for (auto& row : table) row.fill(100);
  table[static_cast<size_t>(NcclAlgorithm::Nvls)].fill(kNotThere);
  return table;
}

TEST(TunerLibrary, IsFoundByShortNameAndByFileInItsNewestVersion) {
  for (const char* name : {"example", "libnccl-tuner-example.so"}) {
    const auto library = Library::load(name, "nccl-tuner");
    ASSERT_TRUE(library) << library.error().text();
    EXPECT_EQ((*library)->tunerName(), "Example");
    EXPECT_EQ((*library)->version().number, 5);
  }
  for (int newest = 3; newest <= 5; ++newest) EXPECT_EQ((*Library::load("example", "nccl-tuner", newest))->version().number, newest);
  EXPECT_FALSE(Library::load("example", "nccl-tuner", 2)) << "too old";
}

TEST(TunerLibrary, OfEveryVersionAnswers) {
  const Variable rules("TUNER_EXAMPLE", "allreduce 0 0 tree simple 3");
  for (const auto& [name, newest] : {std::pair{"example", 5}, {"example", 4}, {"example", 3}, {"old3", 5}, {"old2", 5}}) {
    auto library = Library::load(name, "nccl-tuner", newest);
    ASSERT_TRUE(library) << name << ": " << library.error().text();
    auto tuner = start(std::move(*library), {7, 4, 2});
    ASSERT_TRUE(tuner) << name << ": " << tuner.error().text();
    Adviser adviser(*tuner);
    const Advice advice = adviser.ask(Collective::AllReduce, 1000, fullTable());
    EXPECT_TRUE(advice.isChanged) << name;
    EXPECT_EQ(advice.channels, 3) << name;
    EXPECT_EQ(advice.said, (*tuner)->name() + ": Tree Simple, 3 channels");
    const Advice other = adviser.ask(Collective::Broadcast, 1000, fullTable());
    EXPECT_FALSE(other.isChanged) << name;
    EXPECT_EQ(other.said, (*tuner)->name() + ": no wish");
    EXPECT_FALSE(adviser.isAsked(Collective::SendRecv));
    EXPECT_FALSE(adviser.isAsked(Collective::AllToAll));
  }
}

TEST(TunerLibrary, ThatIsNoneIsOneWarningThatNamesIt) {
  for (const auto& [name, word] :
       {std::pair{"there-is-none", "there-is-none"}, {"libm.so.6", "exports no tuner"}, {"hollow", "lacks functions"}}) {
    Libraries libraries;
    const std::string out = outputOf([&] {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(libraries.open(name, {}, {1, 4, 1}), nullptr);
    });
    EXPECT_EQ(occurrences(out, "WARN"), 1u) << out;
    EXPECT_NE(out.find(word), std::string::npos) << out;
    EXPECT_NE(out.find(name), std::string::npos) << out;
  }
  const std::string out = outputOf([] {
    EXPECT_EQ(open("none"), nullptr);
    EXPECT_EQ(open(""), nullptr) << "nobody has asked for one";
  });
  EXPECT_EQ(out, "");
}

TEST(TunerLibrary, ThatFailsAtTheStartIsOneWarning) {
  const Variable breaks("TUNER_EXAMPLE_BREAK", "init");
  Libraries libraries;
  const std::string out = outputOf([&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(libraries.open("example", {}, {1, 4, 1}), nullptr);
  });
  EXPECT_EQ(occurrences(out, "tuner Example: init failed with 3"), 1u) << out;
}

TEST(Adviser, IgnoresNonsenseWithOneWarning) {
  for (const auto& [where, word] :
       {std::pair{"ask", "getCollInfo failed with 3"}, {"channels", "-5 channels"}, {"nan", "nan"}, {"absent", "not there"}}) {
    const Variable breaks("TUNER_EXAMPLE_BREAK", where);
    const std::string out = outputOf([&] {
      Adviser adviser(open("example"));
      for (int i = 0; i < 3; ++i) {
        if (!adviser.isAsked(Collective::AllReduce)) continue;
        const Advice advice = adviser.ask(Collective::AllReduce, 1000, fullTable());
        EXPECT_FALSE(advice.isChanged) << where;
        EXPECT_EQ(advice.channels, 0) << where;
        EXPECT_EQ(advice.said, "");
      }
      EXPECT_EQ(adviser.hasFailed(), std::string_view(where) == "ask");
    });
    EXPECT_EQ(occurrences(out, "WARN"), 1u) << out;
    EXPECT_NE(out.find("tuner Example"), std::string::npos) << out;
    EXPECT_NE(out.find(word), std::string::npos) << out;
  }
}

struct Draft {
  std::optional<Row> row;
  double estimatedUs;
};

TEST(Advice, PicksTheRowThatIsWantedAndWithinItTheBestEstimate) {
  const auto rowOf = [](const Draft& d) { return d.row; };
  const Row ring{NcclAlgorithm::Ring, NcclProtocol::LL};
  const Row tree{NcclAlgorithm::Tree, NcclProtocol::LL};
  const std::vector<Draft> drafts = {{std::nullopt, 5}, {ring, 20}, {ring, 10}, {tree, 7}};
  Advice advice;
  EXPECT_EQ(advice.pick<Draft>(drafts, rowOf), &drafts[0]) << "nobody was asked";
  advice.isChanged = true;
  advice.table = emptyTable();
  offer(advice.table, ring, 0);
  offer(advice.table, tree, 7);
  EXPECT_EQ(advice.pick<Draft>(drafts, rowOf), &drafts[2]);
  advice.table = emptyTable();
  offer(advice.table, ring, 10);
  offer(advice.table, tree, 100);
  EXPECT_EQ(advice.pick<Draft>(drafts, rowOf), &drafts[0]) << "what has no row keeps its estimate";
  EXPECT_EQ(advice.pick<Draft>({}, rowOf), nullptr);
}

}  // namespace
}  // namespace tutti::tune::plugin::tuner_test
