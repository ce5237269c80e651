#include "tune/plugin/tuner.h"

#include <cstring>

#include "observe/log.h"
#include "plugin/loader.h"
#include "tune/platform.h"

namespace tutti::tune::plugin {
namespace {

constexpr std::string_view kPrefix = "nccl-tuner";
constexpr std::string_view kNetPrefix = "nccl-net";
static_assert(abi::kAlgorithms == kNcclAlgorithms && abi::kProtocols == kNcclProtocols);

/// The ABI's arrays and ours hold the same numbers in the same order.
template <class From, class To>
void copy(const From& from, To& to) {
  static_assert(sizeof from == sizeof to);
  std::memcpy(&to, &from, sizeof to);
}

abi::ConstantsV5 constantsOf(const LinkConstants& links) {
  abi::ConstantsV5 constants{};
  copy(links.baseUs, constants.baseLatencies);
  copy(links.hopUs, constants.hwLatencies);
  copy(links.llGBs, constants.llMaxBws);
  copy(links.ringLl128ChannelGBs, constants.perChMaxRingLL128Bws);
  copy(links.treeLl128ChannelGBs, constants.perChMaxTreeLL128Bws);
  copy(links.treeChannelGBs, constants.perChMaxTreeBws);
  copy(links.nvlsTreeChannelGBs, constants.perChMaxNVLSTreeBws);
  return constants;
}

class External final : public Tuner {
 public:
  External(std::shared_ptr<Library> library, void* context) : library_(std::move(library)), context_(context) {}
  ~External() override {
    const int code = library_->version().finalize(library_->raw(), context_);
    if (const Status status = statusOf(code, "finalize"); !status.ok()) observe::warn("{}", status.text());
  }
  External(const External&) = delete;
  External& operator=(const External&) = delete;

  const std::string& name() const override { return library_->tunerName(); }
  Result<int32_t> ask(Collective collective, uint64_t bytes, CostTable& table) override {
    int channels = 0;
    // Our numbers of these collectives are those of the ABI.
    const int code =
        library_->version().ask(library_->raw(), context_, {static_cast<int>(collective), bytes, table.front().data()}, &channels);
    if (Status status = statusOf(code, "getCollInfo"); !status.ok()) return tl::unexpected(std::move(status));
    return channels;
  }

 private:
  Status statusOf(int code, std::string_view what) const { return tutti::plugin::statusOf(code, "tuner", name(), what); }

  std::shared_ptr<Library> library_;
  void* context_;
};
static_assert(static_cast<int>(Collective::Broadcast) == 0 && static_cast<int>(Collective::Reduce) == 1 &&
              static_cast<int>(Collective::AllGather) == 2 && static_cast<int>(Collective::ReduceScatter) == 3 &&
              static_cast<int>(Collective::AllReduce) == 4);

}  // namespace

Result<std::shared_ptr<Library>> Library::load(std::string_view name, std::string_view prefix, int newest) {
  std::shared_ptr<Library> library(new Library());
  auto opened = tutti::plugin::open(name, prefix);
  if (!opened) return tl::unexpected(std::move(opened).error());
  library->library_ = std::move(*opened);
  const auto found = tutti::plugin::find(library->library_, versions(), newest);
  if (found.raw == nullptr) return fail(Code::InvalidUsage, "{} exports no tuner of version 2 to {}", name, newest);
  library->raw_ = found.raw;
  library->version_ = found.version;
  if (!library->version_->complete(found.raw))
    return fail(Code::InvalidUsage, "{} of {} lacks functions that every tuner has", library->version_->symbol, name);
  const char* const own = library->version_->name(found.raw);
  if (!tutti::plugin::isName(own)) return fail(Code::InvalidUsage, "the tuner of {} has no name", name);
  library->tunerName_ = own;
  return library;
}

Result<std::shared_ptr<Tuner>> start(std::shared_ptr<Library> library, const Communicator& communicator) {
  Start start;
  start.commId = communicator.id;
  start.ranks = static_cast<size_t>(communicator.ranks);
  start.nodes = static_cast<size_t>(communicator.nodes);
  start.log = tutti::plugin::logger();
  const int perNode = communicator.ranks / communicator.nodes;
  start.domains = {communicator.nodes, perNode, perNode};
  start.constants = constantsOf(linkConstants());
  void* context = nullptr;
  const int code = library->version().init(library->raw(), start, &context);
  if (Status status = tutti::plugin::statusOf(code, "tuner", library->tunerName(), "init"); !status.ok())
    return tl::unexpected(std::move(status));
  return std::make_shared<External>(std::move(library), context);
}

std::shared_ptr<Library> Libraries::find(const std::string& wanted, const std::vector<std::string>& networks) {
  const auto [at, isNew] = known_.try_emplace(wanted);
  if (!isNew) return at->second;
  auto library = Library::load(wanted.empty() ? "libnccl-tuner.so" : std::string_view(wanted), kPrefix);
  if (library) return at->second = *library;
  // Nobody has asked for the default one, so only one that is there and broken is worth a word.
  if (!wanted.empty() || library.error().code() != Code::SystemError)
    observe::warn("NCCL_TUNER_PLUGIN={}: {}; algorithms are chosen without a tuner", wanted, library.error().text());
  for (const std::string& network : wanted.empty() ? networks : std::vector<std::string>()) {
    if (auto found = Library::load(network, kNetPrefix)) return at->second = *found;
  }
  return nullptr;
}

std::shared_ptr<Tuner> Libraries::open(const std::string& wanted, const std::vector<std::string>& networks,
                                       const Communicator& communicator) {
  if (wanted == "none") return nullptr;
  const std::lock_guard lock(mutex_);
  auto library = find(wanted, networks);
  if (library == nullptr) return nullptr;
  auto tuner = start(library, communicator);
  if (tuner) return std::move(*tuner);
  if (!hasWarned_) observe::warn("{}; algorithms are chosen without it", tuner.error().text());
  hasWarned_ = true;
  return nullptr;
}

}  // namespace tutti::tune::plugin
