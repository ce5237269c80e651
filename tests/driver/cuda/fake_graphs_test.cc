// The fake's captures break by what breaks the driver's; its graphs do what was captured; and what Driver does with both gives all back.
#include <thread>

#include "play.h"

namespace tutti::driver::cuda::fake_graphs_test {
namespace {

using namespace play;

class FakeGraphs : public testing::Test {
 protected:
  World world;
  PrimaryContext context = world.context(0);
  Result<ContextScope> scope = ContextScope::enter(context);
  OwnedStream stream = std::move(*OwnedStream::of(*world.driver, world.driver->createStream()));
  OwnedStream other = std::move(*OwnedStream::of(*world.driver, world.driver->createStream()));
  OwnedEvent event = std::move(*OwnedEvent::of(*world.driver, world.driver->createEvent()));

  Error end() {
    Graph graph = nullptr;
    const Error error = world.fake->endCapture(stream.get(), &graph);
    if (graph != nullptr) (void)world.fake->destroyGraph(graph);
    return error;
  }
};

TEST_F(FakeGraphs, AnUnsafeCallBreaksACaptureUnlessItsThreadIsRelaxed) {
  for (const CaptureMode mode : {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed}) {
    ASSERT_EQ(world.fake->beginCapture(stream.get(), mode), Error::Success);
    {
      const auto setUp = SetUpScope::enter(context);
      EXPECT_TRUE(world.driver->isOver(event.get()));
    }
    EXPECT_EQ(end(), Error::Success);
    ASSERT_EQ(world.fake->beginCapture(stream.get(), mode), Error::Success);
    EXPECT_EQ(world.driver->isOver(event.get()).has_value(), mode == CaptureMode::Relaxed);
    EXPECT_EQ(end(), mode == CaptureMode::Relaxed ? Error::Success : Error::StreamCaptureInvalidated);
    ASSERT_EQ(world.fake->beginCapture(stream.get(), mode), Error::Success);
    std::thread([&] { EXPECT_EQ(world.driver->isOver(event.get()).has_value(), mode != CaptureMode::Global); }).join();
    EXPECT_EQ(end(), mode == CaptureMode::Global ? Error::StreamCaptureInvalidated : Error::Success);
  }
}

TEST_F(FakeGraphs, WorkOutsideIsNotWaitedForAndForksAreJoined) {
  ASSERT_TRUE(world.driver->record(event.get(), other.get()).ok());
  ASSERT_EQ(world.fake->beginCapture(stream.get()), Error::Success);
  EXPECT_NE(world.driver->wait(stream.get(), event.get()).text().find("STREAM_CAPTURE_ISOLATION"), std::string::npos);
  EXPECT_EQ(end(), Error::StreamCaptureInvalidated);
  for (const bool joins : {false, true}) {
    ASSERT_EQ(world.fake->beginCapture(stream.get()), Error::Success);
    ASSERT_TRUE(world.driver->record(event.get(), stream.get()).ok());
    ASSERT_TRUE(world.driver->wait(other.get(), event.get()).ok());
    ASSERT_EQ(world.fake->enqueue(other.get(), [] {}), Error::Success);
    ASSERT_TRUE(world.driver->record(event.get(), other.get()).ok());
    if (joins) (void)world.driver->wait(stream.get(), event.get());
    EXPECT_EQ(end(), joins ? Error::Success : Error::StreamCaptureUnjoined);
  }
}

TEST_F(FakeGraphs, AReplayRunsTheNodesAndRecordsTheEvents) {
  int runs = 0;
  ASSERT_EQ(world.fake->beginCapture(stream.get()), Error::Success);
  const auto capture = world.driver->captureInfo(stream.get());
  ASSERT_TRUE(capture && capture->isActive());
  const auto wait = world.driver->addWait(capture->graph, event.get());
  ASSERT_TRUE(wait);
  ASSERT_TRUE(world.driver->follow(stream.get(), {&*wait, 1}).ok());
  ASSERT_EQ(world.fake->enqueue(stream.get(), [&] { ++runs; }), Error::Success);
  const auto now = world.driver->captureInfo(stream.get());
  ASSERT_EQ(now->after.size(), 1u);
  const auto record = world.driver->addRecord(now->graph, now->after, event.get());
  ASSERT_TRUE(record);
  EXPECT_FALSE(world.driver->addDependencies(now->graph, now->after, *record).ok()) << "it follows already";
  EXPECT_TRUE(world.driver->removeDependencies(now->graph, now->after, *record).ok());
  EXPECT_FALSE(world.driver->removeDependencies(now->graph, now->after, *record).ok()) << "it no longer follows";
  EXPECT_TRUE(world.driver->addDependencies(now->graph, now->after, *record).ok());
  Graph graph = nullptr;
  ASSERT_EQ(world.fake->endCapture(stream.get(), &graph), Error::Success);
  EXPECT_EQ(runs, 0);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(world.fake->launchGraph(graph, other.get()), Error::Success);
    ASSERT_TRUE(world.driver->synchronize(event.get()).ok());
    EXPECT_EQ(runs, i);
  }
  EXPECT_EQ(world.fake->destroyGraph(graph), Error::Success);
}

TEST(FakeGraph, WhatIsKeptWithItIsGivenBackOnceWhateverFails) {
  int destroyed = 0;
  int scenarios = 0;
  failEveryCall(
      {},
      [&](World& world) -> Status {
        ++scenarios;
        const auto info = world.driver->describe(0);
        if (!info) return info.error();
        const auto context = PrimaryContext::retain(*world.driver, *info);
        if (!context) return context.error();
        const auto count = [](void* times) { ++*static_cast<int*>(times); };
        const auto scope = ContextScope::enter(*context);
        if (!scope) return scope.error();
        const auto stream = OwnedStream::of(*world.driver, world.driver->createStream());
        if (!stream) return stream.error();
        (void)world.fake->beginCapture(stream->get(), CaptureMode::Relaxed);
        const auto capture = world.driver->captureInfo(stream->get());
        const int before = destroyed;
        const Status status = capture ? world.driver->keepWith(capture->graph, &destroyed, count) : Status(capture.error());
        Graph graph = nullptr;
        (void)world.fake->endCapture(stream->get(), &graph);
        EXPECT_EQ(destroyed - before, status.ok() || !capture ? 0 : 1);
        (void)world.fake->destroyGraph(graph);
        EXPECT_EQ(destroyed - before, capture ? 1 : 0);
        return status;
      },
      8);
  EXPECT_GT(scenarios, 8);
}

}  // namespace
}  // namespace tutti::driver::cuda::fake_graphs_test
