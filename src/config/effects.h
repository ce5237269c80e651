// Variables that change nothing, or something else than they seem to, in words: what a user asks for and does not get is said once, not
// passed over.
//
// Reads the environment as it is now; any thread.
#pragma once

#include <string>
#include <vector>

#include "config/params.h"

namespace tutti::config {

/// "NCCL_NTHREADS=256 has no effect: …" for each variable that this version accepts without effect (params.def: Later, Ignored) and that is
/// set to something else than its default, or than what happens anyway (NCCL_NVLS_ENABLE=0). CUDA_LAUNCH_BLOCKING, which CUDA reads,
/// is not among them.
std::vector<std::string> withoutEffect();

/// "NCCL_BUFFSIZE=4M is read as 4: …" for each variable with an effect that takes a number and is set to something else, which strtoll()
/// reads as the number that it begins with, or as 0; blanks at the end aside.
std::vector<std::string> misread();

/// Why a variable has no effect; empty for one that has.
std::string whyWithoutEffect(const Entry& entry);

}  // namespace tutti::config
