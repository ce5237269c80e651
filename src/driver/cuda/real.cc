#include "driver/cuda/real.h"

#include <dlfcn.h>

#include <string>
#include <utility>

#include "core/unique_library.h"

namespace tutti::driver::cuda {
namespace {

constexpr uint64_t kLegacyStreams = 1;  ///< NULL means the legacy stream, as in code that is compiled without further flags

struct Functions {
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) Error(*name) parameters = nullptr;
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
};

class RealApi final : public Api {
 public:
  explicit RealApi(const Functions& functions) : functions_(functions) {}
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments) \
  Error name parameters override { return functions_.name arguments; }
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL

 private:
  const Functions functions_;
};

/// Asks the driver for functions by name and version. The form of the question differs between CUDA 11 and 12.
class Lookup {
 public:
  static Result<Lookup> in(void* library, const char* file) {
    Lookup lookup;
    lookup.version2_ = reinterpret_cast<Version2>(dlsym(library, "cuGetProcAddress_v2"));
    lookup.version1_ = reinterpret_cast<Version1>(dlsym(library, "cuGetProcAddress"));
    if (lookup.version2_ == nullptr && lookup.version1_ == nullptr)
      return fail(Code::SystemError, "{} has no cuGetProcAddress: it is no CUDA driver of {}.{} or newer", file, kOldestDriver / 1000,
                  kOldestDriver % 1000 / 10);
    return lookup;
  }

  /// Null when the driver does not have it.
  void* find(const char* symbol, int32_t version, Error* error) const {
    void* function = nullptr;
    int32_t found = 0;
    *error = version2_ != nullptr ? version2_(symbol, &function, version, kLegacyStreams, &found)
                                  : version1_(symbol, &function, version, kLegacyStreams);
    return *error == Error::Success ? function : nullptr;
  }

 private:
  using Version1 = Error (*)(const char*, void**, int32_t, uint64_t);
  using Version2 = Error (*)(const char*, void**, int32_t, uint64_t, int32_t*);
  Version1 version1_ = nullptr;
  Version2 version2_ = nullptr;
};

/// A driver tells its version before anything else is looked up: the best explanation of what it lacks.
Status checkVersion(void* library, const char* file) {
  const auto ask = reinterpret_cast<Error (*)(int32_t*)>(dlsym(library, "cuDriverGetVersion"));
  if (ask == nullptr) return error(Code::SystemError, "{} has no cuDriverGetVersion: it is no CUDA driver", file);
  int32_t version = 0;
  const Error outcome = ask(&version);
  if (outcome != Error::Success) {
    const char* const name = listedName(outcome);
    return error(Code::SystemError, "{} does not say its version: {} ({})", file, name == nullptr ? "unknown error" : name,
                 static_cast<int32_t>(outcome));
  }
  if (version >= kOldestDriver) return {};
  return error(Code::SystemError, "{} is a driver of CUDA {}.{}: {}.{} is the oldest that can be used", file, version / 1000,
               version % 1000 / 10, kOldestDriver / 1000, kOldestDriver % 1000 / 10);
}

}  // namespace

Result<std::unique_ptr<Api>> openDriver(const char* file) {
  UniqueLibrary library(dlopen(file, RTLD_NOW | RTLD_LOCAL));
  if (!library) {
    const char* const why = dlerror();
    return fail(Code::SystemError, "no CUDA driver: {}", why == nullptr ? file : why);
  }
  if (Status status = checkVersion(library.get(), file); !status.ok()) return tl::unexpected(std::move(status));
  const auto lookup = Lookup::in(library.get(), file);
  if (!lookup) return tl::unexpected(lookup.error());
  Functions functions;
  std::string missing;
  Error outcome = Error::Success;
#define TUTTI_CUDA_CALL(name, symbol, version, parameters, arguments)                               \
  functions.name = reinterpret_cast<Error(*) parameters>(lookup->find(#symbol, version, &outcome)); \
  if (functions.name == nullptr) missing += format("{}{} ({})", missing.empty() ? "" : ", ", #symbol, static_cast<int32_t>(outcome));
#include "driver/cuda/calls.def"
#undef TUTTI_CUDA_CALL
  if (!missing.empty()) return fail(Code::SystemError, "{} lacks functions that are needed: {}", file, missing);
  (void)library.release();
  return std::make_unique<RealApi>(functions);
}

}  // namespace tutti::driver::cuda
