// Where a call wants what a network brings: told ahead, as far as messages may be under way, and never where it is not its turn.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "algo/sendrecv.h"
#include "exec/host/operation.h"
#include "exec/host/signature.h"
#include "transport/local/pipe.h"

namespace tutti::exec::host::operation_offer_test {
namespace {

using algo::Buffer;
using transport::local::Offer;
using transport::local::OfferView;
using transport::local::Pipe;
using transport::local::PipeView;
using transport::local::RecvEnd;

constexpr uint64_t kSlice = 65536;
constexpr uint32_t kSlots = 4;
constexpr uint64_t kSignature = 7;

/// A pipe that a network fills: the test does.
struct Wire {
  Pipe pipe = std::move(*Pipe::create(kSlots, kSlice));
  std::vector<Offer> offers = std::vector<Offer>(kSlots);
  PipeView view = [this] {
    PipeView own = pipe.view();
    own.offers = offers.data();
    return own;
  }();
  RecvEnd end{view};
  uint64_t sent = 0;

  std::byte* offered(uint64_t number, uint64_t bytes = kSlice) const { return view.offering().find(number, bytes); }
  /// The next message, all of whose bytes are its number.
  void bring(uint64_t bytes = kSlice) {
    std::byte* const wanted = offered(sent + 1, bytes);
    std::byte* const to = wanted != nullptr ? wanted : view.staging(sent, bytes);
    std::memset(to, static_cast<int>(sent + 1), bytes);
    auto& head = view.head(sent);
    head.signature = kSignature;
    head.bytes = bytes;
    head.lent = reinterpret_cast<uint64_t>(wanted);
    head.filled.store(++sent, std::memory_order_release);
  }
};

BoundStep receiveStep(int32_t chunk = 0) {
  BoundStep step;
  step.numFrom = 1;
  step.src = {chunk, Buffer::None};
  step.dst = {chunk, Buffer::Out};
  return step;
}

/// Of `steps` that all receive from the wire.
std::shared_ptr<HostPlan> planOf(Wire& wire, uint64_t bytes, const std::vector<BoundStep>& steps, int32_t chunks = 1) {
  auto plan = std::make_shared<HostPlan>();
  plan->collective = Collective::SendRecv;
  plan->geometry = algo::makeGeometry(algo::Division::Shares, bytes, chunks, DataType::I8, 1, kSlice);
  plan->rank = Rank(0);
  plan->ranks = 2;
  BoundLane lane;
  lane.steps = steps;
  for (BoundStep& step : lane.steps) {
    step.firstFrom = static_cast<uint32_t>(lane.sources.size());
    lane.sources.push_back({&wire.end, Rank(1), nullptr});
  }
  plan->channels = {{lane}};
  return plan;
}

PlannedCall callOf(std::shared_ptr<const HostPlan> plan, const void* in, std::vector<std::byte>& out) {
  PlannedCall call;
  call.plan = std::move(plan);
  call.in = in;
  call.out = out.data();
  call.signature = kSignature;
  return call;
}

void expectSlices(const std::vector<std::byte>& out, uint64_t slices, uint64_t first = 1) {
  for (uint64_t s = 0; s < slices; ++s) {
    const std::vector<std::byte> slice(kSlice, static_cast<std::byte>(first + s));
    EXPECT_EQ(std::memcmp(out.data() + s * kSlice, slice.data(), kSlice), 0) << s;
  }
}

TEST(Offers, AreMadeForAsManyMessagesAsMayBeUnderWay) {
  constexpr uint64_t kSlices = 10;
  Wire wire;
  std::vector<std::byte> out(kSlices * kSlice);
  Operation operation;
  const PlannedCall call = callOf(planOf(wire, out.size(), {receiveStep()}), nullptr, out);
  for (uint64_t round = 0; round < 2; ++round) {  // also when the plan is known
    const uint64_t before = round * kSlices;
    operation.start(call);
    for (uint64_t number = 1; number <= kSlots; ++number) EXPECT_EQ(wire.offered(before + number), out.data() + (number - 1) * kSlice);
    EXPECT_EQ(wire.offered(before + kSlots + 1), nullptr);
    for (uint64_t number = 1; number <= kSlices; ++number) {
      EXPECT_EQ(wire.offered(before + number), out.data() + (number - 1) * kSlice);
      wire.bring();
      EXPECT_EQ(operation.advance(), number < kSlices ? Poll::Pending : Poll::Ready) << operation.status().text();
    }
    EXPECT_EQ(wire.offered(before + kSlices + 1), nullptr) << "that belongs to another call";
    expectSlices(out, kSlices, before + 1);
  }
}

TEST(Offers, ThatComeTooLateLoseNothing) {
  Wire wire;
  std::vector<std::byte> out(6 * kSlice);
  wire.bring();
  wire.bring();
  Operation operation;
  const PlannedCall call = callOf(planOf(wire, out.size(), {receiveStep()}), nullptr, out);
  operation.start(call);
  while (wire.sent < 6) {
    wire.bring();
    (void)operation.advance();
  }
  EXPECT_EQ(operation.advance(), Poll::Ready);
  expectSlices(out, 6);
}

TEST(Offers, OfAStepAreForItsOwnMessages) {
  Wire wire;
  std::vector<std::byte> out(2 * 3 * kSlice);  // two chunks of three slices
  BoundStep passed = receiveStep(0);
  passed.reduce = true;
  const PlannedCall call = callOf(planOf(wire, out.size(), {passed, receiveStep(1)}, 2), out.data(), out);
  Operation operation;
  operation.start(call);
  EXPECT_EQ(wire.offered(1), nullptr) << "what is combined has no place of its own";
  EXPECT_EQ(wire.offered(2), out.data() + 3 * kSlice);
  EXPECT_EQ(wire.offered(3), nullptr);
  EXPECT_EQ(wire.offered(4), out.data() + 4 * kSlice);
}

/// As between hosts and ranks of one: what is combined comes from two pipes, of which only one is a network's.
TEST(Offers, FollowStepsThatReceiveFromSeveral) {
  constexpr uint64_t kSlices = 6;
  Wire wire;
  auto near = Pipe::create(kSlots, kSlice);
  ASSERT_TRUE(near.has_value());
  RecvEnd nearEnd(near->view());
  std::vector<std::byte> out(2 * kSlices * kSlice);
  BoundStep combined = receiveStep(0);
  combined.reduce = true;
  combined.numFrom = 2;
  const auto plan = planOf(wire, out.size(), {combined, combined, receiveStep(1)}, 2);
  BoundLane& lane = plan->channels[0][0];
  const Source close{&nearEnd, Rank(1), nullptr};
  const Source far{&wire.end, Rank(1), nullptr};
  lane.sources = {close, far, close, far, far};
  lane.steps[1].firstFrom = 2;
  lane.steps[2].firstFrom = 4;
  plan->reduceFn = [](void*, const void* const*, int, uint64_t, const Reduction&, uint32_t, bool) {};
  const PlannedCall call = callOf(plan, nullptr, out);
  Operation operation;
  operation.start(call);
  for (uint64_t slice = 0; slice < kSlices; ++slice) {
    const auto placeOf = [&](uint64_t of) { return of < kSlices ? out.data() + (kSlices + of) * kSlice : nullptr; };
    for (uint64_t message = 2 * slice; message < 2 * slice + 2; ++message) {
      auto& head = near->view().head(message);
      head.signature = kSignature;
      head.bytes = kSlice;
      head.filled.store(message + 1, std::memory_order_release);
      wire.bring();
      (void)operation.advance();
    }
    EXPECT_EQ(wire.offered(3 * slice + 2), nullptr) << "what is combined has no place of its own";
    EXPECT_EQ(wire.offered(3 * slice + 3), placeOf(slice));
    EXPECT_EQ(wire.offered(3 * slice + 6), placeOf(slice + 1)) << "as soon as one that is combined is taken";
    wire.bring();
    (void)operation.advance();
  }
  EXPECT_EQ(operation.advance(), Poll::Ready);
}

TEST(Offers, AreNotMadeForWhatIsSoonCopied) {
  Wire wire;
  std::vector<std::byte> out(3 * kSlice + 100);
  Operation large;
  const PlannedCall call = callOf(planOf(wire, out.size(), {receiveStep()}), nullptr, out);
  large.start(call);
  EXPECT_EQ(wire.offered(3), out.data() + 2 * kSlice);
  EXPECT_EQ(wire.offered(4, 100), nullptr) << "the rest";
  Wire other;
  std::vector<std::byte> little(8192);
  Operation small;
  const PlannedCall brief = callOf(planOf(other, little.size(), {receiveStep()}), nullptr, little);
  small.start(brief);
  EXPECT_EQ(other.offered(1, 8192), nullptr);
}

/// What comes for one peer's chunk says nothing of whether that chunk has been sent.
TEST(Offers, AreNotMadeWhereAnExchangeIsInPlace) {
  Wire wire;
  std::vector<std::byte> in(2 * kSlice), out(2 * kSlice);
  const auto plan = planOf(wire, out.size(), {receiveStep()});
  plan->collective = Collective::AllToAll;
  Operation operation;
  const PlannedCall inPlace = callOf(plan, out.data(), out);
  operation.start(inPlace);
  EXPECT_EQ(wire.offered(1), nullptr);
  wire.bring();
  wire.bring();
  EXPECT_EQ(operation.advance(), Poll::Ready);
  expectSlices(out, 2);
  const PlannedCall apart = callOf(plan, in.data(), out);
  operation.start(apart);
  EXPECT_EQ(wire.offered(3), out.data());
}

}  // namespace
}  // namespace tutti::exec::host::operation_offer_test
