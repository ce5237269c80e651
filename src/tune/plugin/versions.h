// The one table of tuner versions: each entry turns calls of the newest form into those of its version.
//
// No state. Thread rules are the plugin's. Codes are ncclResult_t.
// 1. `raw` is the plugin's struct of the entry's own version.
#pragma once

#include <span>

#include "tune/plugin/abi.h"

namespace tutti::tune::plugin {

struct Start {
  uint64_t commId = 0;
  size_t ranks = 0;
  size_t nodes = 0;
  abi::Logger log = nullptr;
  abi::NvlDomainsV5 domains{};
  abi::ConstantsV5 constants{};
};

struct Question {
  int collective = 0;
  size_t bytes = 0;
  float* table = nullptr;  ///< of abi::kAlgorithms × abi::kProtocols
};

struct Version {
  int number;
  const char* symbol;
  const char* (*name)(const void* raw);
  /// Whether all functions that are needed are there.
  bool (*complete)(const void* raw);
  int (*init)(const void* raw, Start& start, void** context);
  /// Of version 2, which names what it wants, that entry becomes 0.
  int (*ask)(const void* raw, void* context, const Question& question, int* channels);
  int (*finalize)(const void* raw, void* context);
};

/// Newest first: the order in which a library is searched.
std::span<const Version> versions();

}  // namespace tutti::tune::plugin
