#include "core/status.h"

#include <gtest/gtest.h>

namespace tutti::status_test {
namespace {

static_assert(sizeof(Status) == sizeof(void*), "an OK status costs one pointer");

Status failsBelow() { return error(Code::SystemError, "open {}: {}", "/dev/x", "denied"); }

Status callsBelow() {
  TUTTI_TRY(Status());
  TUTTI_TRY(failsBelow().at("connect ring"));
  return error(Code::InternalError, "unreachable");
}

TEST(Status, OkIsEmpty) {
  Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.code(), Code::Ok);
  EXPECT_EQ(ok.text(), "");
  EXPECT_TRUE(Status(Code::Ok, "ignored").ok());
  EXPECT_TRUE(std::move(ok).at("somewhere").ok());
}

TEST(Status, CarriesTheCauseAndWhereItPassed) {
  const Status status = callsBelow().at("init rank 3");
  EXPECT_EQ(status.code(), Code::SystemError);
  EXPECT_EQ(status.text(), "open /dev/x: denied [connect ring < init rank 3]");
}

TEST(Status, CopiesAreIndependent) {
  Status a = failsBelow();
  const Status b = a;
  a = std::move(a).at("later");
  EXPECT_EQ(b.text(), "open /dev/x: denied");
  EXPECT_EQ(a.text(), "open /dev/x: denied [later]");
  a = b;
  EXPECT_EQ(a.text(), b.text());
}

TEST(Status, ResultHoldsAValueOrTheError) {
  auto half = [](int n) -> Result<int> {
    if (n % 2) return fail(Code::InvalidArgument, "{} is odd", n);
    return n / 2;
  };
  EXPECT_EQ(half(4).value(), 2);
  EXPECT_EQ(half(3).error().text(), "3 is odd");
  EXPECT_EQ(half(3).error().code(), Code::InvalidArgument);
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= 7; ++code) EXPECT_NE(codeName(static_cast<Code>(code)), "unknown code");
  EXPECT_EQ(codeName(static_cast<Code>(8)), "unknown code");
}

}  // namespace
}  // namespace tutti::status_test
