#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/units.h"
#include "explain/explain.h"

namespace tutti::tool {
namespace {

using Json = nlohmann::json;

std::string text(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

double number(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0;
}

/// What carries a plan out, in three columns.
std::string plan(const Json& object) {
  const auto channels = static_cast<int64_t>(number(object, "channels"));
  return format("{:<13} {:<7} {:<7} {:>8}", text(object, "algorithm"), text(object, "kernel"), text(object, "protocol"),
                channels > 0 ? std::to_string(channels) : "-");
}

std::string cpu(const Json& object) {
  const std::string simd = text(object, "simd");
  return simd.empty() || !text(object, "protocol").empty() ? "" : format(", {}", simd);
}

}  // namespace

Result<std::string> showExplanation(const std::string& json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object() || !object.contains("parts") || !object.contains("rejected") || !object["rejected"].is_array())
    return fail(Code::InternalError, "expected an explanation with parts and what was rejected: {}", json);
  const double us = number(object, "estimatedUs");
  const auto bytes = static_cast<uint64_t>(number(object, "bytes"));
  std::string out =
      format("{}, {}, {} ranks on {} {}: {} us{}\nconstants: {}{}\n\n", text(object, "collective"), bench::formatBytes(bytes),
             number(object, "ranks"), number(object, "nodes"), number(object, "nodes") == 1 ? "node" : "nodes", bench::formatNumber(us),
             us > 0 ? format(", {} GB/s", bench::formatNumber(static_cast<double>(bytes) / us / 1000)) : "", text(object, "constants"),
             cpu(object));
  if (!text(object, "tuner").empty()) out += format("tuner: {}\n\n", text(object, "tuner"));
  out += "algorithm     kernel  protocol channels         us\n";
  out += format("{} {:>10}  chosen\n", plan(object), bench::formatNumber(us));
  constexpr std::pair<const char*, const char*> kParts[] = {{"launchUs", "to start and to end"},
                                                            {"hopsUs", "waits for other ranks"},
                                                            {"messagesUs", "sending and receiving"},
                                                            {"slicesUs", "further slices"},
                                                            {"trafficUs", "bytes over links and through memory"}};
  for (const auto& [key, meaning] : kParts)
    if (const double part = number(object["parts"], key); part > 0)
      out += format("{:>49}    {}\n", bench::formatNumber(part), meaning);
  if (object.contains("rings") && object["rings"].is_array()) {
    const size_t tracks = object["rings"].size();
    for (size_t track = 0; track < tracks; ++track) {
      std::string ring;
      for (const Json& rank : object["rings"][track]) ring += format(" {}", rank.dump());
      out += format("channels {}, {} …: ring{}\n", track, track + tracks, ring);
    }
  }
  std::vector<Json> rejected = object["rejected"];
  // The fastest first; behind them what was not estimated.
  const auto rank = [](const Json& one) { return one.contains("estimatedUs") ? number(one, "estimatedUs") : 1e300; };
  std::stable_sort(rejected.begin(), rejected.end(), [&](const Json& a, const Json& b) { return rank(a) < rank(b); });
  for (const Json& one : rejected)
    out += format("{} {:>10}  {}\n", plan(one), one.contains("estimatedUs") ? bench::formatNumber(number(one, "estimatedUs")) : "-",
                  text(one, "reason"));
  return out;
}

}  // namespace tutti::tool
