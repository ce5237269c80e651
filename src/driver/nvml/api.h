// NVML as a parameter: one virtual function a call, with the library's own arguments and numbers (calls.def).
//
// Owner: whoever made it (real.h, fake.h); everybody but nvml::Nvml sees the library through that class. Any thread may call.
// 1. A function does what the library's of that name does; one that the library lacks answers FunctionNotFound.
#pragma once

#include "driver/nvml/abi.h"

namespace tutti::driver::nvml {

class Api {
 public:
  Api() = default;
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;
  virtual ~Api() = default;

#define TUTTI_NVML_CALL(name, symbol, required, parameters, arguments) virtual Error name parameters = 0;
#include "driver/nvml/calls.def"
#undef TUTTI_NVML_CALL
  virtual const char* errorString(Error error) = 0;
};

}  // namespace tutti::driver::nvml
