// The steps of an algorithm, written down: one slice of every lane of one rank.
//
// An executor that does not compile the template (host threads, the prover, the cost model, the proxy) works from this.
// Owner: whoever recorded it; immutable afterwards, so any thread may read it.
// 1. A program does not depend on count, type, slots or slices: the same steps are repeated for every slice.
#pragma once

#include <cstdint>
#include <vector>

#include "algo/lane.h"
#include "algo/layout.h"

namespace tutti::exec::record {

using algo::Kind;
using algo::Step;

struct Program {
  std::vector<std::vector<Step>> lanes;

  size_t steps() const {
    size_t sum = 0;
    for (const auto& lane : lanes) sum += lane.size();
    return sum;
  }
};

/// The executor that writes steps down. Offers every capability.
class Recorder : public algo::LocalVerbs<Recorder>,
                 public algo::PipeVerbs<Recorder>,
                 public algo::HandOverVerbs<Recorder>,
                 public algo::PeerMemoryVerbs<Recorder> {
 public:
  explicit Recorder(std::vector<Step>& steps) : steps_(steps) {}
  void run(const Step& step) { steps_.push_back(step); }

 private:
  std::vector<Step>& steps_;
};
static_assert(algo::Pipe<Recorder> && algo::HandOver<Recorder> && algo::PeerMemory<Recorder>);

/// Runs `Algorithm` once for one slice of every lane and returns what it did. `view` must be complete for the algorithm's needs.
template <class Algorithm>
Program recordProgram(const algo::LayoutView& view) {
  Program program;
  const int32_t lanes = Algorithm::lanes(view.ranks);
  program.lanes.resize(static_cast<size_t>(lanes));
  for (int32_t i = 0; i < lanes; ++i) {
    Recorder recorder(program.lanes[static_cast<size_t>(i)]);
    Algorithm::run(recorder, view, i);
  }
  return program;
}

}  // namespace tutti::exec::record
