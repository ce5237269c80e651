// What the subcommands' command lines share. Included by main.cc and the files beside this one alone: the command line library is slow
// to compile, and throws; nothing behind it does.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/format.h"
#include "core/status.h"

namespace tutti::tool {

inline constexpr int kMostRanks = 1024;  ///< or GPUs, that a command line may ask for

/// What a subcommand does once everything is parsed; its exit code.
using Action = std::function<int()>;

/// A value, or the parser's own kind of error with our words.
template <class T>
T require(Result<T> result, const char* option) {
  if (!result) throw CLI::ValidationError(option, result.error().text());
  return *std::move(result);
}

/// Numbers from `least` to `most`. CLI::Range lets a NaN pass, which is neither below nor above anything.
template <class T>
CLI::Validator within(T least, T most) {
  const auto refuse = [least, most](const std::string& text) {
    T value{};
    const bool isInside = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return isInside ? std::string() : format("'{}' is not a number from {} to {}", text, least, most);
  };
  return CLI::Validator(refuse, format("{} to {}", least, most));
}

/// Each adds its subcommand, which, once parsed, sets `action`.
/// `words`: the whole command line, for starting itself.
void addBench(CLI::App& app, const std::vector<std::string>& words, Action& action);
/// `tail`: the words from the first "--" on, which the parser has not seen.
void addRun(CLI::App& app, const std::vector<std::string>& tail, Action& action);
void addTopo(CLI::App& app, Action& action);
void addExplain(CLI::App& app, Action& action);
void addTune(CLI::App& app, Action& action);
void addDoctor(CLI::App& app, Action& action);

}  // namespace tutti::tool
