// `tutti doctor`: what of an installation would keep the library from being used, or from working, and what to do about it.
//
// Checks return findings and print nothing; what they look at is a parameter, so that tests have machines of their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driver/cuda/api.h"

namespace tutti::tool::doctor {

struct Finding {
  enum class Kind { Fine, Note, Wrong } kind = Kind::Fine;
  std::string what;
  std::string remedy;  ///< empty: there is nothing to do
};

/// A libnccl.so.2 that a program might load.
struct Candidate {
  std::string path;
  std::string from;  ///< "LD_PRELOAD", "LD_LIBRARY_PATH", "ld.so.cache", "a Python package"
  int version = 0;   ///< of NCCL; 0: it could not be loaded
  std::string tutti; ///< its version of tutti; empty: it is another library
  std::string buildId;
  std::string error;
};

/// Reads the environment; null: not set.
using GetEnv = std::function<const char*(const char*)>;
/// What opening a library tells, from a process of its own.
using Probe = std::function<Candidate(const std::string& path)>;

/// In the order in which the dynamic linker would look for a program without a path of its own; packages of Python last. `cache` is what
/// `ldconfig -p` prints, `packages` are folders that may hold nvidia/nccl/lib.
std::vector<Candidate> findLibraries(const GetEnv& env, const std::string& cache, const std::vector<std::string>& packages,
                                     const Probe& probe);
/// `own`: the library that came with this command.
std::vector<Finding> judgeLibraries(const std::vector<Candidate>& candidates, const std::string& own);

/// Null `api`: no driver, for the reason given.
std::vector<Finding> judgeGpus(driver::cuda::Api* api, const std::string& why, int32_t runtime);

struct Limits {
  uint64_t files = 0;       ///< RLIMIT_NOFILE
  uint64_t fileBytes = 0;   ///< RLIMIT_FSIZE
  uint64_t lockedBytes = 0; ///< RLIMIT_MEMLOCK
  bool hasMemfd = true;     ///< memfd_create, with memory behind it
  uint64_t memoryLimit = 0; ///< of the control group; 0: none
  int32_t ptraceScope = 0;  ///< of Yama; -1: not there
};
std::vector<Finding> judgeLimits(const Limits& limits);
Limits readLimits();

/// Everything, of this machine; the exit code: 1 if anything is wrong.
int run();
/// For a process of its own: opens the library and prints what findLibraries() wants to know.
int probe(const std::string& path);

}  // namespace tutti::tool::doctor
