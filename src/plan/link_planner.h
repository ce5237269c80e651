// What a call would get on GPUs that are known from a topology alone: algorithm × protocol × channels, by the model of links.
//
// Owner: whoever asks; one thread. Opens nothing: this is for `tutti explain`.
// 1. NCCL_ALGO, TUTTI_ALGO, NCCL_PROTO and the bounds on channels hold as they do for a communicator.
#pragma once

#include <vector>

#include "plan/explanation.h"
#include "tune/link_model.h"

namespace tutti::plan {

struct LinkSettings {
  tune::Restrictions restrictions;
  tune::Filter protocols;
  int32_t minChannels = 1;
  int32_t maxChannels = 64;
  bool deterministic = false;
};

class LinkPlanner {
 public:
  LinkPlanner(const tune::Fabric& fabric, const tune::LinkConstants& constants, LinkSettings settings)
      : model_(fabric, constants), settings_(std::move(settings)) {}

  /// InvalidUsage when nothing is left. `shape` with a count of elements as the call itself takes it.
  Result<Explanation> explain(const Shape& shape);
  void use(const tune::LinkConstants& constants) { model_.use(constants); }

 private:
  struct Option;
  std::string obstacle(const exec::record::Algorithm& algorithm, tune::NcclProtocol protocol, Collective collective) const;
  std::optional<Option> best(const exec::record::Algorithm& algorithm, tune::NcclProtocol protocol, uint64_t bytes);

  tune::LinkModel model_;
  LinkSettings settings_;
};

}  // namespace tutti::plan
