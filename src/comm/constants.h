// The constants that were measured on this machine (`tutti tune`), as the process knows them.
//
// Owner: the process. Any thread. The file is looked for once, when a rank first asks; one that cannot be used is one warning.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tune/platform.h"

namespace tutti::comm {

class Constants {
 public:
  /// 0: there are none.
  uint32_t digest();
  /// Null: there are none. Stays.
  const tune::Platform* get();
  /// Says once that ranks have different ones.
  void tellDifference();
  /// Of a communicator that chooses by the constants of that name: at INFO that they are these, and where they are kept.
  void tellUse(std::string_view name);

 private:
  std::once_flag looked_;
  std::once_flag told_;
  std::optional<tune::Platform> stored_;
  std::string path_;
  uint32_t digest_ = 0;
};

}  // namespace tutti::comm
