#include "tune/platform.h"

#include <cmath>
#define JSON_NO_IO  // no iostreams inside the library
#include <nlohmann/json.hpp>

#include "tune/embedded.h"

namespace tutti::tune {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
struct Field {
  const char* name;
  double T::*at;
};

constexpr Field<Machine> kMachineFields[] = {
    {"hopNs", &Machine::hopNs},           {"switchNs", &Machine::switchNs},           {"messageNs", &Machine::messageNs},
    {"pipeNs", &Machine::pipeNs},         {"bytesPerNs", &Machine::bytesPerNs},       {"farHopNs", &Machine::farHopNs},
    {"farBytesPerNs", &Machine::farBytesPerNs},
};
constexpr Field<KernelCost> kKernelFields[] = {
    {"startUs", &KernelCost::startUs}, {"messageUs", &KernelCost::messageUs}, {"hopUs", &KernelCost::hopUs},
    {"roundUs", &KernelCost::roundUs}, {"jobUs", &KernelCost::jobUs},         {"blockGBs", &KernelCost::blockGBs},
    {"linkGBs", &KernelCost::linkGBs},
};
constexpr Field<LinkConstants> kFactors[] = {
    {"ringLl", &LinkConstants::ringLl},       {"ringLl128", &LinkConstants::ringLl128}, {"ringSimple", &LinkConstants::ringSimple},
    {"tree", &LinkConstants::tree},           {"treeLl", &LinkConstants::treeLl},       {"treeLl128", &LinkConstants::treeLl128},
    {"treeLl128Nodes", &LinkConstants::treeLl128Nodes},
    {"oneChain", &LinkConstants::oneChain},   {"pat", &LinkConstants::pat},             {"plateau", &LinkConstants::plateau},
};
/// A file may lack them.
constexpr Field<DeviceMachine> kLaterFields[] = {
    {"blockPrice", &DeviceMachine::blockPrice},   {"lateUs", &DeviceMachine::lateUs},           {"roundsUs", &DeviceMachine::roundsUs},
    {"roundsBlocks", &DeviceMachine::roundsBlocks}, {"forwardUs", &DeviceMachine::forwardUs},
    {"pairsGainUs", &DeviceMachine::pairsGainUs}, {"pairsBlocks", &DeviceMachine::pairsBlocks},
    {"forwardBlocks", &DeviceMachine::forwardBlocks}, {"turnsUs", &DeviceMachine::turnsUs},
    {"byTurnsLinks", &DeviceMachine::byTurnsLinks}, {"oneWay", &DeviceMachine::oneWay},
};
struct ScaleTable {
  const char* name;
  std::array<ByScale, kGenerations> LinkConstants::*at;
};
constexpr ScaleTable kScaleTables[] = {
    {"llGBs", &LinkConstants::llGBs},
    {"ringLl128ChannelGBs", &LinkConstants::ringLl128ChannelGBs},
    {"treeLl128ChannelGBs", &LinkConstants::treeLl128ChannelGBs},
    {"treeChannelGBs", &LinkConstants::treeChannelGBs},
    {"nvlsTreeChannelGBs", &LinkConstants::nvlsTreeChannelGBs},
};
constexpr const char* kLinkNames[kLinkKinds] = {"nvlink", "pci", "net"};
constexpr const char* kGenerationNames[kGenerations] = {"volta", "ampere", "hopper", "blackwell"};
constexpr double kMostNumber = 1e15;

std::string keyOf(NcclAlgorithm algorithm) {
  std::string key(name(algorithm));
  for (char& c : key) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return key;
}

/// Walks an object, remembers which of its keys it was asked for, and the first thing that is wrong.
class Reader {
 public:
  Reader(const Json& json, std::string where, Status& status) : json_(json), where_(std::move(where)), status_(status) {
    if (!json_.is_object()) refuse(where_, "expected an object");
  }
  /// Tells of keys that nobody asked for.
  ~Reader() {  // NOLINT(bugprone-exception-escape): of bad_alloc alone
    if (!json_.is_object()) return;
    for (const auto& [key, value] : json_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) refuse(at(key), "is unknown");
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool has(const std::string& key) {
    known_.push_back(key);
    return json_.is_object() && json_.contains(key);
  }
  Reader object(const std::string& key) {
    static const Json kNothing;
    return {has(key) ? json_[key] : kNothing, at(key), status_};
  }
  std::string text(const std::string& key) {
    if (has(key) && json_[key].is_string()) return json_[key].get<std::string>();
    refuse(at(key), "expected a string");
    return {};
  }
  double number(const std::string& key) { return has(key) ? numberOf(json_[key], at(key)) : (refuse(at(key), "is missing"), 0); }
  uint64_t bytes(const std::string& key) { return static_cast<uint64_t>(number(key)); }
  template <size_t N>
  std::array<double, N> numbers(const std::string& key) {
    std::array<double, N> all{};
    if (!has(key) || !json_[key].is_array() || json_[key].size() != N) {
      refuse(at(key), format("expected a list of {} numbers", N).c_str());
      return all;
    }
    for (size_t i = 0; i < N; ++i) all[i] = numberOf(json_[key][i], at(key));
    return all;
  }

 private:
  std::string at(const std::string& key) const { return where_.empty() ? key : where_ + "." + key; }
  double numberOf(const Json& value, const std::string& where) {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (std::isfinite(number) && number >= 0 && number <= kMostNumber) return number;
    refuse(where, format("is {}: expected a number from 0 to {:g}", value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40),
                         kMostNumber).c_str());
    return 0;
  }
  void refuse(const std::string& where, const char* what) {
    if (status_.ok()) status_ = error(Code::InvalidUsage, "{}: {}", where.empty() ? "the file" : where, what);
  }

  const Json& json_;
  std::string where_;
  Status& status_;
  std::vector<std::string> known_;
};

template <class T, size_t N>
void readFields(Reader& reader, const Field<T> (&fields)[N], T& value) {
  for (const Field<T>& field : fields) value.*field.at = reader.number(field.name);
}

template <class T, size_t N>
Json fieldsOf(const Field<T> (&fields)[N], const T& value) {
  Json json;
  for (const Field<T>& field : fields) json[field.name] = value.*field.at;
  return json;
}

KernelCost readKernel(Reader reader) {
  KernelCost cost;
  readFields(reader, kKernelFields, cost);
  cost.leastBytes = reader.bytes("leastBytes");
  cost.flowHopUs = reader.has("flowHopUs") ? reader.number("flowHopUs") : cost.hopUs;
  cost.flowBytes = reader.bytes("flowBytes");
  return cost;
}

Json kernelJson(const KernelCost& cost) {
  Json json = fieldsOf(kKernelFields, cost);
  json["leastBytes"] = cost.leastBytes;
  json["flowHopUs"] = cost.flowHopUs;
  json["flowBytes"] = cost.flowBytes;
  return json;
}

constexpr Field<CopyCost> kCopyFields[] = {
    {"startUs", &CopyCost::startUs},
    {"copyUs", &CopyCost::copyUs},
    {"linkGBs", &CopyCost::linkGBs},
};

constexpr Field<MovedCost> kMovedFields[] = {
    {"startUs", &MovedCost::startUs},
    {"blockGBs", &MovedCost::blockGBs},
};

constexpr Field<MovedTogetherCost> kMovedTogetherFields[] = {
    {"startUs", &MovedTogetherCost::startUs},
    {"blockGBs", &MovedTogetherCost::blockGBs},
    {"linkGBs", &MovedTogetherCost::linkGBs},
};

constexpr Field<MappedCost> kMappedFields[] = {
    {"startUs", &MappedCost::startUs},
    {"blockGBs", &MappedCost::blockGBs},
    {"loadGBs", &MappedCost::loadGBs},
    {"linkGBs", &MappedCost::linkGBs},
};

constexpr Field<CarriedCost> kCarriedFields[] = {
    {"startUs", &CarriedCost::startUs},
    {"copyUs", &CarriedCost::copyUs},
    {"meetUs", &CarriedCost::meetUs},
    {"linkGBs", &CarriedCost::linkGBs},
    {"blockGBs", &CarriedCost::blockGBs},
};

DeviceMachine readDevices(Reader reader) {
  DeviceMachine machine;
  machine.launchUs = reader.number("launchUs");
  machine.blockUs = reader.number("blockUs");
  machine.blockPrice = kBlockPrice;
  for (const auto& field : kLaterFields)
    if (reader.has(field.name)) machine.*field.at = reader.number(field.name);
  if (reader.has("mapped")) {
    Reader mapped = reader.object("mapped");
    readFields(mapped, kMappedFields, machine.mapped);
    machine.mapped.manyGBs = mapped.has("manyGBs") ? mapped.number("manyGBs") : machine.mapped.linkGBs;  // files of before have none
  }
  if (reader.has("carried")) {
    Reader carried = reader.object("carried");
    const bool isOfBefore = !carried.has("meetUs");  // when meetings were between copies: what those cost is no longer so
    for (const auto& field : kCarriedFields) {
      const double value = field.at == &CarriedCost::meetUs && isOfBefore ? 0 : carried.number(field.name);
      if (!isOfBefore || field.at == &CarriedCost::linkGBs || field.at == &CarriedCost::blockGBs) machine.carried.*field.at = value;
    }
  }
  if (reader.has("moved")) {
    Reader moved = reader.object("moved");
    readFields(moved, kMovedFields, machine.moved);
  }
  if (reader.has("movedTogether")) {
    Reader moved = reader.object("movedTogether");
    readFields(moved, kMovedTogetherFields, machine.movedTogether);
  }
  if (reader.has("copies")) {
    Reader copies = reader.object("copies");
    readFields(copies, kCopyFields, machine.copies);
    if (copies.has("manyGBs")) machine.copies.manyGBs = copies.number("manyGBs");  // files of before have none, nor the next
    if (copies.has("turnUs")) machine.copies.turnUs = copies.number("turnUs");
    if (copies.has("streamUs")) machine.copies.streamUs = copies.number("streamUs");
    if (!reader.has("carried")) machine.carried.linkGBs = machine.copies.linkGBs;
  }
  Reader kernels = reader.object("kernels");
  for (int k = 0; k < exec::cuda::kNumKernels; ++k)
    machine.kernels[static_cast<size_t>(k)] =
        readKernel(kernels.object(exec::cuda::kernelInfo(static_cast<exec::cuda::KernelId>(k)).name));
  machine.lone = readKernel(kernels.object("lone"));
  machine.messages = kernels.has("messages") ? readKernel(kernels.object("messages"))
                                             : machine.kernels[static_cast<size_t>(exec::cuda::KernelId::Cells)];
  machine.lineMessages = kernels.has("linemessages") ? readKernel(kernels.object("linemessages"))
                                                     : machine.kernels[static_cast<size_t>(exec::cuda::KernelId::Lines)];
  return machine;
}

Json devicesJson(const DeviceMachine& machine) {
  Json json = {{"launchUs", machine.launchUs}, {"blockUs", machine.blockUs}};
  json.update(fieldsOf(kLaterFields, machine));
  for (int k = 0; k < exec::cuda::kNumKernels; ++k)
    json["kernels"][exec::cuda::kernelInfo(static_cast<exec::cuda::KernelId>(k)).name] =
        kernelJson(machine.kernels[static_cast<size_t>(k)]);
  json["kernels"]["lone"] = kernelJson(machine.lone);
  json["kernels"]["messages"] = kernelJson(machine.messages);
  json["kernels"]["linemessages"] = kernelJson(machine.lineMessages);
  json["copies"] = fieldsOf(kCopyFields, machine.copies);
  json["copies"]["manyGBs"] = machine.copies.manyGBs;
  json["copies"]["turnUs"] = machine.copies.turnUs;
  json["copies"]["streamUs"] = machine.copies.streamUs;
  json["moved"] = fieldsOf(kMovedFields, machine.moved);
  json["movedTogether"] = fieldsOf(kMovedTogetherFields, machine.movedTogether);
  json["mapped"] = fieldsOf(kMappedFields, machine.mapped);
  json["mapped"]["manyGBs"] = machine.mapped.manyGBs;
  json["carried"] = fieldsOf(kCarriedFields, machine.carried);
  return json;
}

/// Algorithms that are not there have zeros.
std::array<ByProtocol, kNcclAlgorithms> readAlgorithms(Reader reader) {
  std::array<ByProtocol, kNcclAlgorithms> all{};
  for (int a = 0; a < kNcclAlgorithms; ++a) {
    const std::string key = keyOf(static_cast<NcclAlgorithm>(a));
    if (reader.has(key)) all[static_cast<size_t>(a)] = reader.numbers<kNcclProtocols>(key);
  }
  return all;
}

Json algorithmsJson(const std::array<ByProtocol, kNcclAlgorithms>& all) {
  Json json;
  for (int a = 0; a < kNcclAlgorithms; ++a) json[keyOf(static_cast<NcclAlgorithm>(a))] = all[static_cast<size_t>(a)];
  return json;
}

LinkConstants readLinks(Reader reader) {
  LinkConstants links;
  links.baseUs = readAlgorithms(reader.object("baseUs"));
  Reader hops = reader.object("hopUs");
  for (size_t l = 0; l < kLinkKinds; ++l) links.hopUs[l] = readAlgorithms(hops.object(kLinkNames[l]));
  for (const ScaleTable& table : kScaleTables) {
    Reader rows = reader.object(table.name);
    for (size_t g = 0; g < kGenerations; ++g) (links.*table.at)[g] = rows.numbers<kScales>(kGenerationNames[g]);
  }
  Reader factors = reader.object("factors");
  readFields(factors, kFactors, links);
  return links;
}

Json linksJson(const LinkConstants& links) {
  Json json;
  json["baseUs"] = algorithmsJson(links.baseUs);
  for (size_t l = 0; l < kLinkKinds; ++l) json["hopUs"][kLinkNames[l]] = algorithmsJson(links.hopUs[l]);
  for (const ScaleTable& table : kScaleTables)
    for (size_t g = 0; g < kGenerations; ++g) json[table.name][kGenerationNames[g]] = (links.*table.at)[g];
  json["factors"] = fieldsOf(kFactors, links);
  return json;
}

/// What has to be more than nothing, because times are divided by it.
Status checkPlatform(const Platform& platform) {
  const auto refuse = [](std::string_view what) { return error(Code::InvalidUsage, "{} is 0: expected more", what); };
  if (platform.host && (platform.host->bytesPerNs <= 0 || platform.host->farBytesPerNs <= 0))
    return refuse("host.bytesPerNs or host.farBytesPerNs");
  if (!platform.devices) return {};
  for (const KernelCost& cost : platform.devices->kernels)
    if (cost.blockGBs <= 0 || cost.linkGBs <= 0) return refuse("blockGBs or linkGBs of a kernel");
  if (platform.devices->byTurnsLinks <= 0) return refuse("byTurnsLinks");
  if (platform.devices->copies.linkGBs <= 0 || platform.devices->copies.manyGBs <= 0) return refuse("linkGBs or manyGBs of copies");
  if (platform.devices->moved.blockGBs <= 0) return refuse("blockGBs of moved");
  const MovedTogetherCost& together = platform.devices->movedTogether;
  if (together.blockGBs <= 0 || together.linkGBs <= 0) return refuse("blockGBs or linkGBs of movedTogether");
  const MappedCost& mapped = platform.devices->mapped;
  if (mapped.blockGBs <= 0 || mapped.loadGBs <= 0 || mapped.linkGBs <= 0 || mapped.manyGBs <= 0)
    return refuse("blockGBs, loadGBs, linkGBs or manyGBs of mapped");
  const CarriedCost& carried = platform.devices->carried;
  if (carried.linkGBs <= 0 || carried.blockGBs <= 0) return refuse("linkGBs or blockGBs of carried");
  for (const KernelCost* cost : {&platform.devices->lone, &platform.devices->messages, &platform.devices->lineMessages})
    if (cost->blockGBs <= 0 || cost->linkGBs <= 0) return refuse("blockGBs or linkGBs of lone, messages or linemessages");
  return {};
}

const Platform& need(std::string_view wanted) {
  const Platform* const platform = findPlatform(wanted);
  if (platform == nullptr) std::abort();  // the files are part of the build, and every test reads them
  return *platform;
}

}  // namespace

std::string_view name(NcclAlgorithm algorithm) {
  static constexpr std::string_view kNames[] = {"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"};
  return kNames[static_cast<size_t>(algorithm)];
}

std::string_view name(NcclProtocol protocol) {
  static constexpr std::string_view kNames[] = {"LL", "LL128", "Simple"};
  return kNames[static_cast<size_t>(protocol)];
}

Result<Platform> parsePlatform(std::string_view where, std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& e) {
    return fail(Code::InvalidUsage, "{}: {}", where, e.what());
  }
  Platform platform;
  Status status;
  {
    Reader reader(json, "", status);
    platform.name = reader.text("name");
    platform.source = reader.text("source");
    if (reader.has("key")) platform.key = reader.text("key");
    if (reader.has("host")) {
      Reader host = reader.object("host");
      readFields(host, kMachineFields, platform.host.emplace());
    }
    if (reader.has("devices")) platform.devices = readDevices(reader.object("devices"));
    if (reader.has("links")) platform.links = readLinks(reader.object("links"));
  }
  if (status.ok()) status = checkPlatform(platform);
  if (!status.ok()) return fail(status.code(), "{}: {}", where, status.text());
  return platform;
}

std::string toText(const Platform& platform) {
  Json json = {{"name", platform.name}, {"source", platform.source}};
  if (!platform.key.empty()) json["key"] = platform.key;
  if (platform.host) json["host"] = fieldsOf(kMachineFields, *platform.host);
  if (platform.devices) json["devices"] = devicesJson(*platform.devices);
  if (platform.links) json["links"] = linksJson(*platform.links);
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

const Platform* findPlatform(std::string_view wanted) {
  static const std::vector<Platform> kPlatforms = [] {
    std::vector<Platform> all;
    for (const Embedded& embedded : embeddedPlatforms())
      if (auto platform = parsePlatform(embedded.name, embedded.text)) all.push_back(std::move(*platform));
    return all;
  }();
  for (const Platform& platform : kPlatforms)
    if (platform.name == wanted) return &platform;
  return nullptr;
}

const Machine& hostMachine() {
  static const Machine& machine = need("host").host.value();  // NOLINT(bugprone-unchecked-optional-access): tests
  return machine;
}

const DeviceMachine& deviceMachine() {
  static const DeviceMachine& machine = need("hopper-nvlink").devices.value();  // NOLINT(bugprone-unchecked-optional-access): tests
  return machine;
}

const LinkConstants& linkConstants() {
  static const LinkConstants& links = need("nccl").links.value();  // NOLINT(bugprone-unchecked-optional-access): tests
  return links;
}

}  // namespace tutti::tune
