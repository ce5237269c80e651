#include "exec/host/signature.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tutti::exec::host::signature_test {
namespace {

Call allReduce(uint64_t count, uint64_t sequence = 0) {
  Call call;
  call.collective = Collective::AllReduce;
  call.type = DataType::F32;
  call.count = count;
  call.sequence = sequence;
  return call;
}

TEST(Signature, DescribesTheCallInWords) {
  EXPECT_EQ(describeSignature(packSignature(allReduce(1024, 7))), "AllReduce #7 of 1024 float, sum");
  Call reduce{Collective::Reduce, DataType::BF16, 5, 3, 12, 0};
  EXPECT_EQ(describeSignature(packSignature(reduce)), "Reduce #0 of 12 bfloat16, pre-multiplied sum, root 3");
  Call gather{Collective::AllGather, DataType::U64, 0, 0, 9, 4};
  EXPECT_EQ(describeSignature(packSignature(gather)), "AllGather #4 of 9 uint64");
  Call broadcast{Collective::Broadcast, DataType::F8E5M2, 0, 2, 1, 65535};
  EXPECT_EQ(describeSignature(packSignature(broadcast)), "Broadcast #65535 of 1 f8e5m2, root 2");
  Call scatter{Collective::ReduceScatter, DataType::I8, 4, 0, 1, 1};
  EXPECT_EQ(describeSignature(packSignature(scatter)), "ReduceScatter #1 of 1 int8, avg");
}

TEST(Signature, OfAnotherNumberIsTheOneOfThatCall) {
  Call call{Collective::Broadcast, DataType::BF16, 0, 0x554, (uint64_t{1} << 40) + 7, 0};
  for (const uint64_t from : {uint64_t{0}, uint64_t{65535}, uint64_t{1} << 33})
    for (const uint64_t to : {uint64_t{1}, uint64_t{65535}, uint64_t{65536}, (uint64_t{1} << 40) + 3}) {
      call.sequence = from;
      const uint64_t signature = packSignature(call);
      call.sequence = to;
      EXPECT_EQ(withSequence(signature, to), packSignature(call)) << from << " to " << to;
    }
}

TEST(Signature, DescribesMessagesBySizeInBytes) {
  Call message{Collective::SendRecv, DataType::F32, 0, 1, 10, 99};
  EXPECT_EQ(describeSignature(packSignature(message)), "a message of 40 bytes");
  message.count = 0;
  EXPECT_EQ(describeSignature(packSignature(message)), "a message of 0 bytes");
  message.count = (uint64_t{1} << 57);
  EXPECT_EQ(describeSignature(packSignature(message)), "a message of 576460752303423488 bytes");
}

TEST(Signature, MessagesMatchBySizeWhateverTheTypePeerAndNumber) {
  const Call floats{Collective::SendRecv, DataType::F32, 0, 1, 10, 5};
  const Call bytes{Collective::SendRecv, DataType::U8, 2, 0, 40, 77};
  EXPECT_EQ(packSignature(floats), packSignature(bytes));
  const Call fewer{Collective::SendRecv, DataType::U8, 0, 0, 39, 77};
  EXPECT_NE(packSignature(floats), packSignature(fewer));
}

TEST(Signature, EveryFieldMakesADifference) {
  std::vector<Call> calls(1, Call{Collective::Reduce, DataType::F32, 0, 0, 100, 0});
  for (const auto& change :
       {Call{Collective::AllReduce, DataType::F32, 0, 0, 100, 0}, Call{Collective::Reduce, DataType::I32, 0, 0, 100, 0},
        Call{Collective::Reduce, DataType::F32, 1, 0, 100, 0}, Call{Collective::Reduce, DataType::F32, 0, 1, 100, 0},
        Call{Collective::Reduce, DataType::F32, 0, 0, 101, 0}, Call{Collective::Reduce, DataType::F32, 0, 0, 100, 1}})
    calls.push_back(change);
  std::set<uint64_t> packed;
  for (const Call& call : calls) EXPECT_TRUE(packed.insert(packSignature(call)).second) << describeSignature(packSignature(call));
}

TEST(Signature, EveryCollectiveTypeAndOperationIsDistinct) {
  std::set<uint64_t> packed;
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::SendRecv) continue;
    for (int t = 0; t < kNumDataTypes; ++t) {
      const Call call{collective, static_cast<DataType>(t), 0, 0, 64, 0};
      EXPECT_TRUE(packed.insert(packSignature(call)).second);
      EXPECT_NE(describeSignature(packSignature(call)).find(name(static_cast<DataType>(t))), std::string::npos);
    }
  }
  packed.clear();
  for (uint8_t op = 0; op <= 5; ++op) EXPECT_TRUE(packed.insert(packSignature({Collective::AllReduce, DataType::F32, op, 0, 1, 0})).second);
}

TEST(Signature, WhatACollectiveDoesNotHaveDoesNotCount) {
  EXPECT_EQ(packSignature({Collective::AllGather, DataType::F32, 3, 5, 8, 2}),
            packSignature({Collective::AllGather, DataType::F32, 0, 0, 8, 2}));
  EXPECT_EQ(packSignature({Collective::AllReduce, DataType::F32, 3, 5, 8, 2}),
            packSignature({Collective::AllReduce, DataType::F32, 3, 0, 8, 2}));
  EXPECT_EQ(packSignature({Collective::Broadcast, DataType::F32, 3, 5, 8, 2}),
            packSignature({Collective::Broadcast, DataType::F32, 0, 5, 8, 2}));
}

TEST(Signature, KeepsTheLowBitsOfWhatIsTooLong) {
  Call call{Collective::Broadcast, DataType::F32, 0, 4095, (uint64_t{1} << 24) - 1, 65535};
  const uint64_t full = packSignature(call);
  call.root += 4096;
  EXPECT_EQ(packSignature(call), full);
  call.sequence += 65536;
  EXPECT_EQ(packSignature(call), full);
  call.count += uint64_t{1} << 24;
  EXPECT_NE(packSignature(call), full) << "every bit of a count has a say";
  EXPECT_EQ(packSignature(call) >> 24, full >> 24) << "but none spills into the other fields";
  EXPECT_EQ(describeSignature(full), "Broadcast #65535 of 16777215 float, root 4095");
}

TEST(Signature, UnpacksWhatItKeeps) {
  const Call reduce{Collective::Reduce, DataType::BF16, 5, 3, 12, 9};
  EXPECT_EQ(unpackSignature(packSignature(reduce)), reduce);
  const Call message = unpackSignature(packSignature({Collective::SendRecv, DataType::F32, 0, 1, 10, 99}));
  EXPECT_TRUE(message.isMessage());
  EXPECT_EQ(message.count, 40U);
}

TEST(Signature, CallsAgreeInAllThatMatters) {
  const Call call{Collective::Reduce, DataType::F32, 0, 1, 100, 7};
  EXPECT_TRUE(agree(call, call));
  Call other = call;
  other.root += 4096;
  EXPECT_FALSE(agree(call, other));
  other = call;
  other.count += uint64_t{1} << 24;
  EXPECT_FALSE(agree(call, other));
  other = call;
  other.sequence += 65536;
  EXPECT_FALSE(agree(call, other));
  other = call;
  other.opCode = 2;
  EXPECT_FALSE(agree(call, other));
  EXPECT_TRUE(agree({Collective::AllGather, DataType::F32, 3, 5, 8, 2}, {Collective::AllGather, DataType::F32, 0, 0, 8, 2}));
  EXPECT_FALSE(agree({Collective::AllGather, DataType::F32, kOnWindows, 0, 8, 2}, {Collective::AllGather, DataType::F32, 0, 0, 8, 2}));
}

TEST(Signature, TellsCallsOnWindowsApart) {
  for (const Collective collective : {Collective::AllReduce, Collective::ReduceScatter}) {
    const Call call{collective, DataType::BF16, 4, 0, 1000, 7};
    const Call other = onWindows(call);
    EXPECT_FALSE(agree(call, other));
    EXPECT_NE(packSignature(call), packSignature(other));
    EXPECT_EQ(unpackSignature(packSignature(other)), other);
    EXPECT_EQ(describeCall(other), describeCall(call) + ", on buffers in symmetric windows");
    EXPECT_NE(describeCall(other).find("avg"), std::string::npos);
    EXPECT_EQ(onWindows(other), other);
  }
  EXPECT_EQ(onWindows({Collective::AllGather, DataType::F32, 3, 0, 8, 2}).opCode, kOnWindows);
}

TEST(Signature, DescribesMessagesExactly) {
  EXPECT_EQ(describeCall({Collective::SendRecv, DataType::F32, 0, 3, 10, 2, false}), "Send #2 of 40 bytes to rank 3");
  EXPECT_EQ(describeCall({Collective::SendRecv, DataType::I8, 0, 0, 7, 0, true}), "Recv #0 of 7 bytes from rank 0");
}

TEST(Signature, DescribesAnyBitsWithoutFailing) {
  for (uint64_t bits = 1; bits != 0; bits <<= 1) EXPECT_FALSE(describeSignature(bits).empty());
  EXPECT_FALSE(describeSignature(~uint64_t{0}).empty());
}

}  // namespace
}  // namespace tutti::exec::host::signature_test
