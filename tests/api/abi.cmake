# The tests of the binary interface: headers, table, version script and the exports of the shared library.
# Include after the target `nccl` is known; without it everything but the check of the library itself runs.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(tutti_abi_table ${PROJECT_SOURCE_DIR}/tests/golden/abi.csv)
set(tutti_abi_check ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/api/abi_exports_test.py --table ${tutti_abi_table})
if(CMAKE_NM)
  list(APPEND tutti_abi_check --nm ${CMAKE_NM})
endif()
if(CMAKE_READELF)
  list(APPEND tutti_abi_check --readelf ${CMAKE_READELF})
endif()

# tutti's headers against the table.
tutti_test(api/abi_layout LABELS abi DEFINITIONS TUTTI_ABI_TABLE="${tutti_abi_table}")

# The headers in C and C++11. "plain" is without CUDA's headers.
function(tutti_abi_header_test name source standard)
  set(target test_api_abi_header_${name})
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/api/${source})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  target_compile_options(${target} PRIVATE -pedantic -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Werror)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  if(source MATCHES "\\.c$")
    target_compile_options(${target} PRIVATE -Wstrict-prototypes -Wmissing-prototypes)
    set_target_properties(${target} PROPERTIES C_STANDARD ${standard} C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  else()
    set_target_properties(${target} PROPERTIES CXX_STANDARD ${standard})
  endif()
  add_dependencies(test_programs ${target})
  add_test(NAME api/abi_header_${name} COMMAND ${target})
  set_tests_properties(api/abi_header_${name} PROPERTIES TIMEOUT 60 LABELS abi)
endfunction()
tutti_abi_header_test(c99 abi_header_c.c 99)
tutti_abi_header_test(c99_plain abi_header_c.c 99 TUTTI_NO_CUDA_HEADERS)
tutti_abi_header_test(c11 abi_header_c.c 11)
tutti_abi_header_test(c11_plain abi_header_c.c 11 TUTTI_NO_CUDA_HEADERS)
tutti_abi_header_test(cxx11 abi_header_cxx11.cc 11)
tutti_abi_header_test(cxx11_plain abi_header_cxx11.cc 11 TUTTI_NO_CUDA_HEADERS)

# The version script, and the library linked with it.
add_test(NAME api/abi_map COMMAND ${tutti_abi_check} --map ${PROJECT_SOURCE_DIR}/src/api/abi.map)
set_tests_properties(api/abi_map PROPERTIES TIMEOUT 60 LABELS abi)
if(TARGET nccl)
  set(allowed "")
  if(TUTTI_SANITIZE)
    set(allowed --allow-needed libasan --allow-needed libubsan --allow-needed libtsan --allow-needed liblsan)
  endif()
  add_test(NAME api/abi_exports COMMAND ${tutti_abi_check} --library $<TARGET_FILE:nccl> ${allowed})
  set_tests_properties(api/abi_exports PROPERTIES TIMEOUT 60 LABELS abi)
endif()

# The table itself, proved against NCCL's own 2.28.9 header and library where they are installed.
find_path(TUTTI_VENDOR_NCCL_INCLUDE nccl_device/core.h
  HINTS ENV NCCL_HOME ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES include)
find_file(TUTTI_VENDOR_NCCL_LIBRARY libnccl.so.2
  HINTS ENV NCCL_HOME ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /usr PATH_SUFFIXES lib lib64 lib/x86_64-linux-gnu)
mark_as_advanced(TUTTI_VENDOR_NCCL_INCLUDE TUTTI_VENDOR_NCCL_LIBRARY)
if(TUTTI_VENDOR_NCCL_INCLUDE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${TUTTI_VENDOR_NCCL_INCLUDE})
  check_cxx_source_compiles("
    #include <nccl.h>
    #include <nccl_device.h>
    static_assert(NCCL_VERSION_CODE == 22809, \"another version\");
    int main() { return sizeof(ncclDevComm) == 0; }" TUTTI_VENDOR_NCCL_USABLE)
  unset(CMAKE_REQUIRED_INCLUDES)
endif()
if(TUTTI_VENDOR_NCCL_USABLE)
  # Not through tutti_test: its include folders would put tutti's own header first.
  add_executable(test_api_abi_vendor ${PROJECT_SOURCE_DIR}/tests/api/abi_layout_test.cc)
  target_include_directories(test_api_abi_vendor SYSTEM PRIVATE ${TUTTI_VENDOR_NCCL_INCLUDE})
  target_compile_definitions(test_api_abi_vendor PRIVATE TUTTI_ABI_VENDOR TUTTI_ABI_TABLE="${tutti_abi_table}")
  target_link_libraries(test_api_abi_vendor PRIVATE GTest::gtest GTest::gtest_main Threads::Threads)
  add_dependencies(test_programs test_api_abi_vendor)
  add_test(NAME api/abi_vendor COMMAND test_api_abi_vendor)
  set_tests_properties(api/abi_vendor PROPERTIES TIMEOUT 60 LABELS abi)
  if(TUTTI_VENDOR_NCCL_LIBRARY)
    add_test(NAME api/abi_vendor_exports COMMAND ${tutti_abi_check} --library ${TUTTI_VENDOR_NCCL_LIBRARY} --nccl-only)
    set_tests_properties(api/abi_vendor_exports PROPERTIES TIMEOUT 60 LABELS abi)
  endif()
endif()
