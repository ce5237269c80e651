// The headers against the table tests/golden/abi.csv: sizes, offsets, values and prototypes, in both directions.
// Built twice: against include/, and, where NCCL's own 2.28.9 header is found, against that one (TUTTI_ABI_VENDOR), which proves
// the table itself.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "abi_measure.h"
#include "abi_table.h"

namespace tutti::abi::abi_layout_test {
namespace {

TEST(AbiLayout, HeaderEqualsTable) {
  const Table golden = readGolden();
  const Table header = measureHeader();
  EXPECT_GT(golden.size(), 240u);
  for (const auto& [key, value] : golden) {
    const auto found = header.find(key);
    if (found == header.end()) {
      ADD_FAILURE() << "in the table, not measured: " << key << ',' << value;
    } else {
      EXPECT_EQ(found->second, value) << key;
    }
  }
  for (const auto& [key, value] : header) {
    EXPECT_TRUE(golden.count(key) == 1) << "measured, not in the table: " << key << ',' << value;
  }
}

TEST(AbiLayout, EveryExportHasAPrototype) {
  const Table golden = readGolden();
  std::size_t exports = 0;
  for (const auto& row : readRows()) {
    if (row[0] != "symbol" || !isForThisHeader(row)) continue;
    ++exports;
    std::string name = row[2];
    if (name[0] == 'p') name.erase(0, 1);
#if defined(TUTTI_ABI_VENDOR)
    if (name == "ncclResetDebugInitInternal") continue;  // exported there without a prototype
#endif
    EXPECT_TRUE(golden.count("function,nccl," + name) == 1 || golden.count("function,tutti," + name) == 1) << name;
  }
#if defined(TUTTI_ABI_VENDOR)
  EXPECT_EQ(exports, 105u);
#else
  EXPECT_EQ(exports, 105u + 14u);
#endif
}

// Kernels and callers copy these structs as bytes.
TEST(AbiLayout, StructsArePlain) {
  EXPECT_TRUE(std::is_standard_layout_v<ncclConfig_t> && std::is_trivially_copyable_v<ncclConfig_t>);
  EXPECT_TRUE(std::is_standard_layout_v<ncclSimInfo_t> && std::is_trivially_copyable_v<ncclSimInfo_t>);
  EXPECT_TRUE(std::is_standard_layout_v<ncclUniqueId> && std::is_trivially_copyable_v<ncclUniqueId>);
  EXPECT_TRUE(std::is_standard_layout_v<ncclDevComm_t> && std::is_trivially_copyable_v<ncclDevComm_t>);
  EXPECT_TRUE(std::is_standard_layout_v<ncclWindow_vidmem> && std::is_trivially_copyable_v<ncclWindow_vidmem>);
  EXPECT_TRUE((std::is_same_v<ncclWindow_t, ncclWindow_vidmem*>));
  EXPECT_TRUE((std::is_same_v<cudaStream_t, struct CUstream_st*>));
}

}  // namespace
}  // namespace tutti::abi::abi_layout_test
