// What the frame of every exported function makes of what comes out of its body.
#include "api/guard.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace tutti::api::guard_test {
namespace {

std::string lastText() { return observe::lastErrorText(); }

TEST(Guard, SuccessIsSuccessAndLeavesNoText) {
  const std::string before = lastText();
  EXPECT_EQ(guard("ncclSomething", [] { return Status(); }), ncclSuccess);
  EXPECT_EQ(lastText(), before);
}

TEST(Guard, EveryCodePassesAndItsTextIsKept) {
  for (const Code code : {Code::UnhandledCudaError, Code::SystemError, Code::InternalError, Code::InvalidArgument, Code::InvalidUsage,
                          Code::RemoteError}) {
    EXPECT_EQ(guard("ncclSomething", [code] { return error(code, "the cause {}", static_cast<int>(code)); }),
              static_cast<ncclResult_t>(code));
    EXPECT_NE(lastText().find("ncclSomething: the cause " + std::to_string(static_cast<int>(code))), std::string::npos) << lastText();
  }
}

TEST(Guard, NothingIsThrownIntoForeignCode) {
  EXPECT_EQ(guard("ncclSomething", []() -> Status { throw std::bad_alloc(); }), ncclSystemError);
  EXPECT_NE(lastText().find("out of memory"), std::string::npos) << lastText();
  EXPECT_EQ(guard("ncclSomething", []() -> Status { throw std::runtime_error("a library's words"); }), ncclInternalError);
  EXPECT_NE(lastText().find("a library's words"), std::string::npos) << lastText();
  EXPECT_EQ(guard("ncclSomething", []() -> Status { throw 42; }), ncclInternalError);
  EXPECT_NE(lastText().find("unknown type"), std::string::npos) << lastText();
}

TEST(Guard, ABodyRunsOnlyForALiveHandle) {
  bool ran = false;
  const auto body = [&ran](comm::Communicator&) {
    ran = true;
    return Status();
  };
  EXPECT_EQ(withComm("ncclSomething", nullptr, body), ncclInvalidArgument);
  EXPECT_NE(lastText().find("comm is NULL"), std::string::npos) << lastText();
  int local = 0;
  EXPECT_EQ(withComm("ncclSomething", reinterpret_cast<ncclComm_t>(&local), body), ncclInvalidArgument);
  EXPECT_NE(lastText().find("is no communicator"), std::string::npos) << lastText();
  EXPECT_FALSE(ran);
}

TEST(Guard, WhatIsNotBuiltSaysSoAndWhatToUse) {
  const Status status = notBuilt("a thing", "use another");
  EXPECT_EQ(status.code(), Code::InvalidUsage);
  EXPECT_NE(status.text().find("a thing"), std::string::npos);
  EXPECT_NE(status.text().find("use another"), std::string::npos);
}

}  // namespace
}  // namespace tutti::api::guard_test
