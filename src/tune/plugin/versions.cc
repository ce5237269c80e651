#include "tune/plugin/versions.h"

namespace tutti::tune::plugin {
namespace {

/// What differs between versions, each difference once.
template <class Tuner>
struct Thunks {
  static const Tuner& tuner(const void* raw) { return *static_cast<const Tuner*>(raw); }
  static const char* name(const void* raw) { return tuner(raw).name; }
  static auto end(const void* raw) {
    if constexpr (Tuner::kVersion >= 5) {
      return tuner(raw).finalize;
    } else {
      return tuner(raw).destroy;
    }
  }
  static bool complete(const void* raw) {
    return tuner(raw).init != nullptr && tuner(raw).getCollInfo != nullptr && end(raw) != nullptr;
  }

  static int init(const void* raw, Start& start, void** context) {
    *context = nullptr;
    if constexpr (Tuner::kVersion >= 5) {
      return tuner(raw).init(context, start.commId, start.ranks, start.nodes, start.log, &start.domains, &start.constants);
    } else {
      return tuner(raw).init(start.ranks, start.nodes, start.log, context);
    }
  }

  static int ask(const void* raw, void* context, const Question& q, int* channels) {
    constexpr int kCalls = 1;
    const auto table = reinterpret_cast<float**>(q.table);
    if constexpr (Tuner::kVersion == 2) {
      int algorithm = -1;
      int protocol = -1;
      const int code = tuner(raw).getCollInfo(context, q.collective, q.bytes, 0, 0, kCalls, &algorithm, &protocol, channels);
      const bool isWish = algorithm >= 0 && algorithm < abi::kAlgorithms && protocol >= 0 && protocol < abi::kProtocols;
      if (code == 0 && isWish) q.table[algorithm * abi::kProtocols + protocol] = 0;
      return code;
    } else if constexpr (Tuner::kVersion == 3) {
      return tuner(raw).getCollInfo(context, q.collective, q.bytes, kCalls, table, abi::kAlgorithms, abi::kProtocols, channels);
    } else {
      return tuner(raw).getCollInfo(context, q.collective, q.bytes, kCalls, table, abi::kAlgorithms, abi::kProtocols, 0, channels);
    }
  }

  static int finalize(const void* raw, void* context) { return end(raw)(context); }

  static constexpr Version entry(const char* symbol) {
    return {
        .number = Tuner::kVersion, .symbol = symbol, .name = name, .complete = complete, .init = init, .ask = ask, .finalize = finalize};
  }
};

constexpr Version kVersions[] = {
    Thunks<abi::TunerV5>::entry("ncclTunerPlugin_v5"),
    Thunks<abi::TunerV4>::entry("ncclTunerPlugin_v4"),
    Thunks<abi::TunerV3>::entry("ncclTunerPlugin_v3"),
    Thunks<abi::TunerV2>::entry("ncclTunerPlugin_v2"),
};

}  // namespace

std::span<const Version> versions() { return kVersions; }

}  // namespace tutti::tune::plugin
