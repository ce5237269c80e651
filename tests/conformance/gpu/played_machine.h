// Fake GPUs on a machine of tests/data/topologies: rings and trees follow its links, in the library and in the reference.
//
// Owner: the test; one at a time, made before communicators and before their FakeGpus, gone after them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "conformance/harness.h"
#include "conformance/reference.h"
#include "core/format.h"
#include "machine/gpu_layout.h"

namespace tutti::conformance {

/// The GPUs are those of the topology of that name; an empty name plays nothing.
class PlayedMachine {
 public:
  explicit PlayedMachine(const std::string& name) {
    if (name.empty()) return;
    const std::string path = TUTTI_SOURCE_DIR "/tests/data/topologies/" + name + ".xml";
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
    // Of threads, again and again: found once for each number of ranks.
    layoutOf() = [file = file_, mutex = std::make_shared<std::mutex>(),
                  known = std::make_shared<std::map<int, connect::Layout>>()](int ranks) {
      const std::scoped_lock lock(*mutex);
      if (const auto at = known->find(ranks); at != known->end()) return at->second;
      const auto machine =
          machine::survey({.cuda = nullptr, .openNvml = {}, .files = std::make_shared<topo::detect::RootFiles>(), .topoFile = file});
      std::vector<int> devs(static_cast<size_t>(ranks));
      std::iota(devs.begin(), devs.end(), 0);
      const auto found = machine::findGpuLayout(*machine, devs, {});
      EXPECT_TRUE(found) << found.error().text();
      return found ? known->emplace(ranks, found->layout).first->second : connect::Layout::natural(ranks);
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

}  // namespace tutti::conformance
