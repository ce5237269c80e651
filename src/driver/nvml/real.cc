#include "driver/nvml/real.h"

#include <dlfcn.h>

#include <string>
#include <utility>

#include "core/unique_library.h"

namespace tutti::driver::nvml {
namespace {

struct Functions {
#define TUTTI_NVML_CALL(name, symbol, required, parameters, arguments) Error(*name) parameters = nullptr;
#include "driver/nvml/calls.def"
#undef TUTTI_NVML_CALL
  const char* (*errorString)(Error) = nullptr;
};

class RealApi final : public Api {
 public:
  explicit RealApi(const Functions& functions) : functions_(functions) {}
#define TUTTI_NVML_CALL(name, symbol, required, parameters, arguments) \
  Error name parameters override { return functions_.name == nullptr ? Error::FunctionNotFound : functions_.name arguments; }
#include "driver/nvml/calls.def"
#undef TUTTI_NVML_CALL
  const char* errorString(Error error) override { return functions_.errorString(error); }

 private:
  const Functions functions_;
};

}  // namespace

Result<std::unique_ptr<Api>> openNvml(const char* file) {
  UniqueLibrary library(dlopen(file, RTLD_NOW | RTLD_LOCAL));
  if (!library) {
    const char* const why = dlerror();
    return fail(Code::SystemError, "no NVML: {}", why == nullptr ? file : why);
  }
  Functions functions;
  std::string missing;
  const auto find = [&](const char* symbol, bool required) {
    void* const function = dlsym(library.get(), symbol);
    if (function == nullptr && required) missing += format("{}{}", missing.empty() ? "" : ", ", symbol);
    return function;
  };
#define TUTTI_NVML_CALL(name, symbol, required, parameters, arguments) \
  functions.name = reinterpret_cast<Error(*) parameters>(find(#symbol, required));
#include "driver/nvml/calls.def"
#undef TUTTI_NVML_CALL
  functions.errorString = reinterpret_cast<const char* (*)(Error)>(find("nvmlErrorString", true));
  if (!missing.empty()) return fail(Code::SystemError, "{} lacks functions that are needed: {}", file, missing);
  (void)library.release();
  return std::make_unique<RealApi>(functions);
}

}  // namespace tutti::driver::nvml
