// The CUDA driver as a parameter: one virtual function a call, with the driver's own arguments and numbers (calls.def).
//
// Owner: whoever made it (real.h, fake.h); everybody but cuda::Driver sees the driver through that class, which makes errors of numbers.
// Any thread may call; which context is current is a property of the calling thread, as the driver has it.
// 1. A function does what the driver's of that name does and returns its number; nothing is written to a result when it fails.
#pragma once

#include "driver/cuda/abi.h"

namespace tutti::driver::cuda {

class Api {
 public:
  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  virtual ~Api() = default;

#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) virtual Error name parameters = 0;
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
};

/// The calls by number, for what names, counts or fails them.
// NOLINTBEGIN(readability-identifier-naming): the names of the functions above
enum class Call : uint8_t {
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) name,
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
};
// NOLINTEND(readability-identifier-naming)

/// "cuMemCreate".
constexpr const char* symbolOf(Call call) {
  switch (call) {
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) \
  case Call::name:                                                    \
    return #symbol;
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
  }
  return "?";
}

}  // namespace tutti::driver::cuda
