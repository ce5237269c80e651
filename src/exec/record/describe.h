// Steps in words, for errors, proofs and `explain`: "recvReduceSend from 3 in[2] to 5".
#pragma once

#include <string>

#include "exec/record/program.h"

namespace tutti::exec::record {

/// The verb of lane.h that produced the step.
std::string_view verbOf(const Step& step);
std::string describe(const Step& step);

}  // namespace tutti::exec::record
