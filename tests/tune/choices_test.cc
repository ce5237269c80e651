#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "connect/connections.h"
#include "plan/device_planner.h"
#include "plan/planner.h"

namespace tutti::plan::choices_test {
namespace {

constexpr Collective kCalls[] = {Collective::Broadcast, Collective::Reduce,   Collective::AllGather, Collective::ReduceScatter,
                                 Collective::AllReduce, Collective::AllToAll, Collective::Scatter,   Collective::Gather};
constexpr uint64_t kCounts[] = {1, 8, 1000, 16384, 65536, 262144, 1 << 20, 4 << 20, 64 << 20};

std::string line(std::string_view where, int32_t ranks, const Shape& shape, const Result<Summary>& s) {
  if (!s) return format("{},{},{},{},{}\n", where, ranks, name(shape.collective), shape.count, s.error().text());
  return format("{},{},{},{},{},{},{},{:.6g}\n", where, ranks, name(shape.collective), shape.count, s->algorithm,
                s->kernel.empty() ? "threads" : s->kernel, s->channels, s->estimatedUs);
}

Shape shapeOf(Collective collective, uint64_t count) {
  Shape shape;
  shape.collective = collective;
  shape.count = count;
  return shape;
}

enum class Where : uint8_t { Host, Processes, Hosts };

/// `hosts`: so many, of as many ranks each.
std::string hostChoices(int32_t ranks, int32_t cores, Where where, int32_t hosts = 2) {
  constexpr std::string_view kNames[] = {"host", "processes", "hosts"};
  const bool isFar = where == Where::Hosts;
  const auto hub = *transport::local::Hub::make(ranks);
  const connect::Layout layout = connect::Layout::natural(ranks, isFar ? ranks / hosts : 0);
  connect::Connections connections(*hub, Rank(0));
  Settings settings;
  settings.machine.cores = cores;
  settings.spansHosts = settings.machine.spansHosts = isFar;
  settings.spansProcesses = where != Where::Host;
  Planner planner(layout, connections, Rank(0), settings);
  std::string text;
  const std::string name = format("{}{}-cores{}", hosts == 2 ? "" : format("{}", hosts), kNames[static_cast<int>(where)], cores);
  for (const Collective collective : kCalls)
    for (const uint64_t count : kCounts)
      text += line(name, ranks, shapeOf(collective, count), planner.summarize(shapeOf(collective, count)));
  return text;
}

std::string deviceChoices(int32_t ranks) {
  const connect::Layout layout = connect::Layout::natural(ranks);
  DeviceSettings settings;
  settings.mostBlocks.fill(132);
  settings.hasWindows = settings.hasLines = true;
  DevicePlanner planner(layout, Rank(0), settings);
  std::string text;
  for (const Collective collective : kCalls)
    for (const uint64_t count : kCounts)
      text += line("gpus", ranks, shapeOf(collective, count), planner.summarize(shapeOf(collective, count)));
  return text;
}

/// The built-in constants come to these choices. After a change of constants or of a model that is meant, copy what the test has written
/// over the golden file, and look at the difference.
TEST(Choices, AreThoseOfTheGoldenFile) {
  std::string text = "where,ranks,collective,count,algorithm,kernel,channels,us\n";
  for (const int32_t ranks : {2, 4, 7}) text += hostChoices(ranks, 2, Where::Host) + hostChoices(ranks, 16, Where::Host);
  text += hostChoices(100, 16, Where::Host) + hostChoices(8, 16, Where::Hosts);
  text += hostChoices(2, 16, Where::Hosts) + hostChoices(16, 16, Where::Hosts, 16) + hostChoices(256, 64, Where::Hosts, 16) +
          hostChoices(96, 64, Where::Hosts, 8);
  for (const int32_t ranks : {2, 4}) text += hostChoices(ranks, 2, Where::Processes) + hostChoices(ranks, 16, Where::Processes);
  for (const int32_t ranks : {1, 2, 4, 8}) text += deviceChoices(ranks);

  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/choices.csv");
  std::stringstream golden;
  golden << file.rdbuf();
  if (golden.str() == text) return;
  std::ofstream("choices.csv") << text;
  std::istringstream was(golden.str());
  std::istringstream is(text);
  std::string before;
  std::string now;
  while (std::getline(is, now)) {
    if (!std::getline(was, before)) before.clear();
    if (before != now) break;
  }
  ADD_FAILURE() << "was " << before << "\n is " << now << "\nall of them: choices.csv in the test's folder";
}

}  // namespace
}  // namespace tutti::plan::choices_test
