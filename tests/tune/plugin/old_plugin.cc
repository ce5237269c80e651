// A tuner of one old version (OLD_VERSION), as plugins of those years are; OLD_HOLLOW: one that lacks its functions.
#include <cstring>

#include "tune/plugin/abi.h"

namespace {

namespace abi = tutti::tune::plugin::abi;

[[maybe_unused]] int contexts = 0;

[[maybe_unused]] int init(size_t ranks, size_t nodes, abi::Logger /*log*/, void** context) {
  ++contexts;
  *context = new size_t[2]{ranks, nodes};
  return 0;
}

[[maybe_unused]] int destroy(void* context) {
  delete[] static_cast<size_t*>(context);
  return --contexts < 0 ? 3 : 0;
}

// All-reduce as a tree on three channels; of everything else it has no opinion.
[[maybe_unused]] int askV2(void* context, int collective, size_t /*bytes*/, int /*collNet*/, int /*nvls*/, int /*calls*/, int* algorithm,
                           int* protocol, int* channels) {
  if (collective != 4 || static_cast<size_t*>(context)[0] < 2) return 0;
  *algorithm = 0;
  *protocol = 2;
  *channels = 3;
  return 0;
}

[[maybe_unused]] int askV3(void* context, int collective, size_t bytes, int calls, float** costs, int /*algorithms*/, int protocols,
                           int* channels) {
  int algorithm = -1;
  int protocol = -1;
  const int code = askV2(context, collective, bytes, 0, 0, calls, &algorithm, &protocol, channels);
  if (algorithm >= 0) reinterpret_cast<float*>(costs)[algorithm * protocols + protocol] = 0;
  return code;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#ifdef OLD_HOLLOW
EXPORTED const abi::TunerV5 ncclTunerPlugin_v5 = {"Hollow", nullptr, nullptr, nullptr};
#elif OLD_VERSION == 2
EXPORTED const abi::TunerV2 ncclTunerPlugin_v2 = {"Old2", init, askV2, destroy};
#else
EXPORTED const abi::TunerV3 ncclTunerPlugin_v3 = {"Old3", init, askV3, destroy};
#endif
