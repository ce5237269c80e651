// Operators that the caller creates.
#include <climits>
#include <string>

#include "api/api_fixture.h"

namespace tutti::api_test::redop_test {
namespace {

class Operators : public Pair {
 protected:
  float scalar_ = 3;
};

TEST_F(Operators, CreateArguments) {
  ncclRedOp_t op;
  EXPECT_TRUE(
      refused(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, ncclScalarHostImmediate, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(nullptr, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
                      {"op", "NULL"}));
  EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat, ncclScalarHostImmediate, comms[0]), ncclInvalidArgument,
                      {"scalar", "NULL"}));
  for (const int type : {-1, 12, 99})
    EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, &scalar_, enumOf<ncclDataType_t>(type), ncclScalarHostImmediate, comms[0]),
                        ncclInternalError, {"datatype", std::to_string(type)}));
  for (const int residence : {-1, 2})
    EXPECT_TRUE(refused(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, enumOf<ncclScalarResidence_t>(residence), comms[0]),
                        ncclInvalidArgument, {"residence", std::to_string(residence)}));
  expectUsable();
}

TEST_F(Operators, AreBoundToCommunicatorTypeAndLife) {
  ncclRedOp_t op;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  EXPECT_GE(op, ncclNumOps);
  EXPECT_LE(op, ncclMaxRedOp);
  float x = 1;
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclFloat, op, comms[1], nullptr), ncclInvalidArgument, {"op", std::to_string(op)}));
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclDouble, op, comms[0], nullptr), ncclInvalidArgument, {"op", "float", "double"}));
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, comms[1]), ncclInvalidArgument, {"op", std::to_string(op)}));
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_EQ(ncclRedOpDestroy(op, comms[0]), ok);
  EXPECT_TRUE(refused(ncclRedOpDestroy(op, comms[0]), ncclInvalidArgument, {"op", "destroyed"}));
  EXPECT_TRUE(refused(ncclAllReduce(&x, &x, 1, ncclFloat, op, comms[0], nullptr), ncclInvalidArgument, {"op"}));
  for (int builtIn = 0; builtIn < 5; ++builtIn)
    EXPECT_TRUE(refused(ncclRedOpDestroy(enumOf<ncclRedOp_t>(builtIn), comms[0]), ncclInvalidArgument, {"op", std::to_string(builtIn)}));
  for (const int none : {-1, 5, 6, INT_MAX, INT_MIN})
    EXPECT_TRUE(refused(ncclRedOpDestroy(enumOf<ncclRedOp_t>(none), comms[0]), ncclInvalidArgument, {"op", std::to_string(none)}));
  expectUsable();
}

TEST_F(Operators, MayBeDestroyedRightAfterTheCallWasIssued) {
  float x[2] = {1, 10};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) {
    ncclRedOp_t op;
    float scalar = 2;
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, comms[r]), ok);
    scalar = 1000;
    ASSERT_EQ(ncclAllReduce(&x[r], &x[r], 1, ncclFloat, op, comms[r], nullptr), ok) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclRedOpDestroy(op, comms[r]), ok);
  }
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(x[0], 22.0F);
  EXPECT_EQ(x[1], 22.0F);
}

TEST_F(Operators, HandlesAreNotReused) {
  ncclRedOp_t first, second;
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&first, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  ASSERT_EQ(ncclRedOpDestroy(first, comms[0]), ok);
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&second, &scalar_, ncclFloat, ncclScalarHostImmediate, comms[0]), ok);
  EXPECT_NE(first, second) << "a stale handle must not mean another operator";
  EXPECT_EQ(ncclRedOpDestroy(second, comms[0]), ok);
}

}  // namespace
}  // namespace tutti::api_test::redop_test
