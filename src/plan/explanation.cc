#include "plan/explanation.h"

#include <algorithm>

#define JSON_NO_IO  // no iostreams inside the library
#include <nlohmann/json.hpp>

namespace tutti::plan {
namespace {

using Json = nlohmann::ordered_json;

Json orNull(std::string_view text) { return text.empty() ? Json() : Json(text); }

Json rejectedJson(const Rejected& one) {
  Json json = {{"algorithm", one.algorithm}};
  if (!one.kernel.empty()) json["kernel"] = one.kernel;
  if (!one.protocol.empty()) json["protocol"] = one.protocol;
  if (one.estimatedUs >= 0) {
    json["channels"] = one.channels;
    json["estimatedUs"] = one.estimatedUs;
  }
  json["reason"] = one.reason;
  return json;
}

}  // namespace

std::string toJson(const Explanation& explanation) {
  const Summary& s = explanation.chosen;
  const tune::Cost& cost = s.cost;
  Json json = {{"collective", explanation.collective}, {"algorithm", s.algorithm}, {"channels", s.channels}, {"lanes", s.lanes},
               {"slices", s.slices},                   {"slots", s.slots},         {"sliceBytes", s.sliceBytes}};
  json.update({{"bytesRead", s.traffic.bytesRead},
               {"bytesWritten", s.traffic.bytesWritten},
               {"bytesSent", s.traffic.bytesSent},
               {"messages", s.traffic.messages},
               {"steps", s.traffic.steps},
               {"simd", explanation.simd}});
  json.update({{"kernel", orNull(s.kernel)},
               {"protocol", orNull(s.protocol)},
               {"bytes", explanation.bytes},
               {"ranks", explanation.ranks},
               {"nodes", explanation.nodes},
               {"constants", explanation.constants},
               {"tuner", orNull(s.tuner)},
               {"estimatedUs", s.estimatedUs}});
  json["parts"] = {{"launchUs", cost.launchUs},
                   {"hopsUs", cost.hopsUs},
                   {"messagesUs", cost.messagesUs},
                   {"slicesUs", cost.slicesUs},
                   {"trafficUs", cost.trafficUs}};
  json["tracks"] = std::max<size_t>(s.rings.size(), 1);
  json["rings"] = s.rings.size() > 1 ? Json(s.rings) : Json();
  json["rejected"] = Json::array();
  for (const Rejected& one : explanation.rejected) json["rejected"].push_back(rejectedJson(one));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace tutti::plan
