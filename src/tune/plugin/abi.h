// The binary interface of external tuners, versions 2 to 5: facts of the ABI, in the words that plugins use for them.
//
// A plugin exports one variable for each version that it knows, `ncclTunerPlugin_v5` and so on, of the type below. All functions return an
// ncclResult_t, which is an int here. Plain values.
// 1. Layouts never change: what differs between versions is another struct. Sizes and offsets are asserted.
// 2. A cost table is a flat array of float[numAlgo][numProto], although its type is float**.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::tune::plugin::abi {

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

inline constexpr int kAlgorithms = 7;
inline constexpr int kProtocols = 3;

struct NvlDomainsV5 {
  int nNvlDomains;
  int minRanksPerNvlDomain;
  int maxRanksPerNvlDomain;
};

struct ConstantsV5 {
  double baseLatencies[7][3];
  double hwLatencies[3][7][3];
  double llMaxBws[4][3];
  double perChMaxRingLL128Bws[4][3];
  double perChMaxTreeLL128Bws[4][3];
  double perChMaxTreeBws[4][3];
  double perChMaxNVLSTreeBws[4][3];
};
static_assert(sizeof(ConstantsV5) == (21 + 63 + 60) * sizeof(double));

struct TunerV2 {
  static constexpr int kVersion = 2;
  const char* name;
  int (*init)(size_t nRanks, size_t nNodes, Logger log, void** context);
  int (*getCollInfo)(void* context, int collType, size_t nBytes, int collNetSupport, int nvlsSupport, int numPipeOps, int* algorithm,
                     int* protocol, int* nChannels);
  int (*destroy)(void* context);
};

struct TunerV3 {
  static constexpr int kVersion = 3;
  const char* name;
  int (*init)(size_t nRanks, size_t nNodes, Logger log, void** context);
  int (*getCollInfo)(void* context, int collType, size_t nBytes, int numPipeOps, float** collCostTable, int numAlgo, int numProto,
                     int* nChannels);
  int (*destroy)(void* context);
};

struct TunerV4 {
  static constexpr int kVersion = 4;
  const char* name;
  int (*init)(size_t nRanks, size_t nNodes, Logger log, void** context);
  int (*getCollInfo)(void* context, int collType, size_t nBytes, int numPipeOps, float** collCostTable, int numAlgo, int numProto,
                     int regBuff, int* nChannels);
  int (*destroy)(void* context);
};

struct TunerV5 {
  static constexpr int kVersion = 5;
  const char* name;
  int (*init)(void** context, uint64_t commId, size_t nRanks, size_t nNodes, Logger log, NvlDomainsV5* nvlDomainInfo,
              ConstantsV5* constants);
  int (*getCollInfo)(void* context, int collType, size_t nBytes, int numPipeOps, float** collCostTable, int numAlgo, int numProto,
                     int regBuff, int* nChannels);
  int (*finalize)(void* context);
};
static_assert(sizeof(TunerV2) == 4 * sizeof(void*) && sizeof(TunerV3) == sizeof(TunerV2) && sizeof(TunerV4) == sizeof(TunerV2) &&
              sizeof(TunerV5) == sizeof(TunerV2));
static_assert(offsetof(TunerV5, getCollInfo) == 2 * sizeof(void*));

}  // namespace tutti::tune::plugin::abi
