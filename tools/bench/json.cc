#include "bench/json.h"

#include <nlohmann/json.hpp>

namespace tutti::bench {

std::string toJson(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object;
    if (!row.library.empty()) object["library"] = row.library;
    object["op"] = row.op;
    object["type"] = row.type;
    object["redop"] = row.redOp;
    object["root"] = row.root;
    object["ranks"] = row.ranks;
    object["count"] = row.count;
    object["bytes"] = row.bytes;
    object["inPlace"] = row.isInPlace;
    object["timeUs"] = row.timeUs;
    object["p99Us"] = row.p99Us;
    object["algbwGBps"] = row.algbwGBps;
    object["busbwGBps"] = row.busbwGBps;
    object["wrong"] = nullptr;
    if (row.wrong) object["wrong"] = *row.wrong;
    list.push_back(std::move(object));
  }
  return list.dump(1) + "\n";
}

Result<Traffic> parsePlan(const std::string& text) {
  const nlohmann::json plan = nlohmann::json::parse(text, nullptr, false);
  const auto isNumber = [&](const char* key) { return plan.contains(key) && plan[key].is_number_unsigned(); };
  if (!plan.is_object() || !isNumber("bytesRead") || !isNumber("bytesWritten")) {
    return fail(Code::InternalError, "tuttiExplain gave no plan with bytesRead and bytesWritten: {}", text);
  }
  Traffic traffic;
  traffic.bytes = plan["bytesRead"].get<uint64_t>() + plan["bytesWritten"].get<uint64_t>();
  if (plan.contains("algorithm") && plan["algorithm"].is_string()) traffic.algorithm = plan["algorithm"];
  if (plan.contains("simd") && plan["simd"].is_string()) traffic.simd = plan["simd"];
  return traffic;
}

}  // namespace tutti::bench
