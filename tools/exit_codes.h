// The exit codes that all subcommands of `tutti` share; `tutti run` has those of its program besides (launch/run.h).
#pragma once

namespace tutti::tool {

inline constexpr int kExitWrong = 1;  ///< it ran, and what it found is not right
inline constexpr int kExitUsage = 2;  ///< the command line, or a file that it names, cannot be used
inline constexpr int kExitError = 3;  ///< it could not run to its end

}  // namespace tutti::tool
