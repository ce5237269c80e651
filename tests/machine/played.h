// Machines of tests: topology files, without anything of the machine that the test runs on.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "machine/survey.h"
#include "topo/data.h"

namespace tutti::machine::test {

inline std::shared_ptr<const topo::detect::Files> noFiles() {
  return std::make_shared<topo::detect::RecordedFiles>(topo::detect::Answers{}, topo::detect::Answers{});
}

/// One of the repository's own topologies.
inline Machine machineOf(const std::string& name) {
  auto machine = survey({.cuda = nullptr, .openNvml = {}, .files = noFiles(), .topoFile = topo::test::ownFile(name)});
  if (machine) return *std::move(machine);
  ADD_FAILURE() << machine.error().text();
  return {};
}

inline std::vector<int> firstDevs(int count) {
  std::vector<int> devs(static_cast<size_t>(count));
  std::iota(devs.begin(), devs.end(), 0);
  return devs;
}

}  // namespace tutti::machine::test
