// Runs a scope in the default floating-point environment: round to nearest, subnormals kept, no traps. Frameworks switch
// subnormals off in their threads, and results must not depend on who calls. Costs one register read when nothing is to do.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace tutti::exec::host {

#if defined(__SSE2__)
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : saved_(_mm_getcsr()), isForeign_((saved_ & ~kStickyFlags) != kDefault) {
    if (isForeign_) [[unlikely]] _mm_setcsr(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (isForeign_) [[unlikely]] _mm_setcsr(saved_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  static constexpr unsigned kStickyFlags = 0x3f, kDefault = 0x1f80;
  const unsigned saved_;
  const bool isForeign_;
};
#else
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};
#endif

}  // namespace tutti::exec::host
