// Every exported function, found by walking the library's own symbol table, is called with NULL, zero and garbage everywhere: none
// may crash, none may throw into its caller. A function that is added to the library is called here without being listed.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <set>
#include <string>

#include "api/api_fixture.h"

namespace tutti::api_test::hostile_test {
namespace {

// The dynamic symbols of libnccl.so.2 in this process, from its program headers.
struct Exports {
  std::set<std::string> names;
  static int visit(dl_phdr_info* info, size_t, void* to) {
    if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libnccl.so") == nullptr) return 0;
    const ElfW(Sym)* symbols = nullptr;
    const char* strings = nullptr;
    const uint32_t* hash = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
      for (auto* d = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; ++d) {
        const auto* address = reinterpret_cast<const void*>(d->d_un.d_ptr);
        if (d->d_tag == DT_SYMTAB) symbols = static_cast<const ElfW(Sym)*>(address);
        if (d->d_tag == DT_STRTAB) strings = static_cast<const char*>(address);
        if (d->d_tag == DT_GNU_HASH) hash = static_cast<const uint32_t*>(address);
      }
    }
    if (symbols == nullptr || strings == nullptr || hash == nullptr) return 1;
    auto& names = static_cast<Exports*>(to)->names;
    // The GNU hash table holds exactly the defined symbols, in order, from `first` on; a chain ends with a set low bit.
    const uint32_t buckets = hash[0], first = hash[1], bloomWords = hash[2];
    const auto* bucket = reinterpret_cast<const uint32_t*>(reinterpret_cast<const ElfW(Addr)*>(hash + 4) + bloomWords);
    const uint32_t* chain = bucket + buckets;
    for (uint32_t b = 0; b < buckets; ++b) {
      if (bucket[b] < first) continue;
      for (uint32_t s = bucket[b];; ++s) {
        if (ELF64_ST_TYPE(symbols[s].st_info) == STT_FUNC) names.insert(strings + symbols[s].st_name);
        if (chain[s - first] & 1) break;
      }
    }
    return 1;
  }
};

std::set<std::string> exportedNames() {
  Exports exports;
  dl_iterate_phdr(Exports::visit, &exports);
  return exports.names;
}

/// All arguments of the x86-64 and AArch64 calling conventions that go into integer registers or onto the stack. A function reads
/// as many as it has; results are ignored.
using AnyFunction = uintptr_t (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                                  uintptr_t);

AnyFunction find(const std::string& name) {
  void* address = dlsym(RTLD_DEFAULT, name.c_str());
  EXPECT_NE(address, nullptr) << name;
  return reinterpret_cast<AnyFunction>(address);
}

void closeGroups() {
  while (ncclGroupEnd() != ncclInvalidUsage) {
  }
}

TEST(Hostile, TheExportListIsFound) {
  const std::set<std::string> names = exportedNames();
  EXPECT_GE(names.size(), 110u);
  EXPECT_TRUE(names.count("ncclAllReduce") == 1 && names.count("pncclAllReduce") == 1 && names.count("tuttiExplain") == 1);
}

TEST(Hostile, NullEverywhere) {
  for (const std::string& name : exportedNames()) {
    SCOPED_TRACE(name);
    find(name)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    closeGroups();
  }
}

TEST(Hostile, MinusOneForEveryHandle) {
  // The first argument of most functions is a pointer that they write to or read from: these get a real one.
  for (const std::string& name : exportedNames()) {
    SCOPED_TRACE(name);
    alignas(64) char memory[4096] = {};
    const auto place = reinterpret_cast<uintptr_t>(memory);
    constexpr uintptr_t kNone = ~uintptr_t{0};
    find(name)(place, 0, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone);
    closeGroups();
  }
}

/// Functions whose first argument is a place to write to.
bool writesToItsFirst(const std::string& name) {
  for (const char* part : {"CommInit", "GetUniqueId", "GetVersion", "MemAlloc", "RedOpCreate", "GetHostDevice", "StreamCreate"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

// With a live communicator in every place where one may stand, and NULL or zero everywhere else.
TEST(Hostile, NullsBesideALiveCommunicator) {
  for (const std::string& name : exportedNames()) {
    SCOPED_TRACE(name);
    const AnyFunction function = find(name);
    for (size_t place = writesToItsFirst(name) ? 1 : 0; place < 8; ++place) {
      ncclComm_t comm = nullptr;
      ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
      uintptr_t a[10] = {};
      a[place] = reinterpret_cast<uintptr_t>(comm);
      function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
      closeGroups();
      int count = 0;
      if (ncclCommCount(comm, &count) == ok) {
        EXPECT_EQ(ncclCommDestroy(comm), ok);
      }
    }
  }
}

// A call that fails leaves a text of its own: the function's name begins it.
TEST(Hostile, EveryFailureLeavesAText) {
  int checked = 0;
  for (const std::string& name : exportedNames()) {
    const bool returnsResult = name != "ncclGetErrorString" && name != "ncclGetLastError" && name.rfind("tuttiVersion", 0) != 0 &&
                               name.rfind("ncclResetDebug", 0) != 0 && name.find("Team") == std::string::npos &&
                               name.find("CalcSlots") == std::string::npos;
    if (name[0] == 'p' || !returnsResult) continue;
    const auto result = static_cast<int>(find(name)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const std::string text = ncclGetLastError(nullptr);
    closeGroups();
    if (result == ncclSuccess) continue;
    const std::string_view called = name == "ncclGroupSimulateEnd" ? "ncclGroup" : std::string_view(name);
    EXPECT_EQ(text.find(called), 0u) << name << " returned " << result << " with the text: " << text;
    ++checked;
  }
  EXPECT_GE(checked, 30);
}

}  // namespace
}  // namespace tutti::api_test::hostile_test
