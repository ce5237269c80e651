#include "plan/cache.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::plan::cache_test {
namespace {

using exec::host::HostPlan;

Shape shapeOf(uint64_t count) {
  Shape shape;
  shape.count = count;
  return shape;
}

std::shared_ptr<const HostPlan> makePlan() { return std::make_shared<HostPlan>(); }

TEST(Cache, FindsWhatWasInserted) {
  Cache cache(4);
  EXPECT_EQ(cache.find(shapeOf(1)), nullptr);
  const auto one = makePlan();
  const auto two = makePlan();
  cache.insert(shapeOf(1), one);
  cache.insert(shapeOf(2), two);
  EXPECT_EQ(cache.find(shapeOf(1)), one);
  EXPECT_EQ(cache.find(shapeOf(1)), one) << "the same call again";
  EXPECT_EQ(cache.find(shapeOf(2)), two);
  EXPECT_EQ(cache.find(shapeOf(3)), nullptr);
  EXPECT_EQ(cache.size(), 2U);
}

TEST(Cache, EveryFieldOfAShapeCounts) {
  std::vector<Shape> shapes(8, shapeOf(100));
  shapes[1].collective = Collective::Reduce;
  shapes[2].type = DataType::F16;
  shapes[3].op = ReduceOp::Max;
  shapes[4].scaling.hasFactor = true;
  shapes[5].scaling.divisor = 4;
  shapes[6].root = Rank(1);
  shapes[7].receives = true;
  Cache cache(100);
  std::vector<std::shared_ptr<const HostPlan>> plans;
  for (const Shape& shape : shapes) {
    EXPECT_EQ(cache.find(shape), nullptr);
    plans.push_back(makePlan());
    cache.insert(shape, plans.back());
  }
  for (size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(cache.find(shapes[i]), plans[i]) << i;
}

TEST(Cache, IsBoundedAndForgetsTheLeastRecentlyUsed) {
  Cache cache(3);
  for (uint64_t i = 1; i <= 3; ++i) cache.insert(shapeOf(i), makePlan());
  EXPECT_NE(cache.find(shapeOf(1)), nullptr);  // used again: 2 is now the oldest
  cache.insert(shapeOf(4), makePlan());
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_EQ(cache.find(shapeOf(2)), nullptr);
  EXPECT_NE(cache.find(shapeOf(1)), nullptr);
  EXPECT_NE(cache.find(shapeOf(3)), nullptr);
  EXPECT_NE(cache.find(shapeOf(4)), nullptr);
  for (uint64_t i = 0; i < 1000; ++i) cache.insert(shapeOf(1000 + i), makePlan());
  EXPECT_EQ(cache.size(), 3U);
  EXPECT_NE(cache.find(shapeOf(1999)), nullptr);
  EXPECT_EQ(cache.find(shapeOf(1996)), nullptr);
}

TEST(Cache, AShapeInsertedAgainIsReplaced) {
  Cache cache(2);
  const auto newer = makePlan();
  cache.insert(shapeOf(1), makePlan());
  cache.insert(shapeOf(1), newer);
  EXPECT_EQ(cache.size(), 1U);
  EXPECT_EQ(cache.find(shapeOf(1)), newer);
  cache.insert(shapeOf(2), makePlan());
  EXPECT_EQ(cache.find(shapeOf(1)), newer) << "nothing of the older one is left to be evicted";
}

TEST(Cache, APlanInUseOutlivesItsPlace) {
  Cache cache(1);
  cache.insert(shapeOf(1), makePlan());
  const auto held = cache.find(shapeOf(1));
  const std::weak_ptr<const HostPlan> watch = held;
  cache.insert(shapeOf(2), makePlan());
  EXPECT_EQ(cache.find(shapeOf(1)), nullptr);
  EXPECT_FALSE(watch.expired());
}

TEST(Cache, HoldsPlansOfAnyKind) {
  PlanCache<int> numbers(2);
  const auto one = std::make_shared<int>(1);
  numbers.insert(shapeOf(1), one);
  *numbers.find(shapeOf(1)) = 5;
  EXPECT_EQ(*one, 5) << "to be finished by whoever keeps it";
  numbers.insert(shapeOf(2), one);
  numbers.insert(shapeOf(3), one);
  EXPECT_EQ(numbers.find(shapeOf(1)), nullptr);
}

}  // namespace
}  // namespace tutti::plan::cache_test
