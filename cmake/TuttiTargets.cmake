# How every folder of src/ becomes one target, and every test file one test.

add_library(tutti_flags INTERFACE)
target_compile_features(tutti_flags INTERFACE cxx_std_20)
target_include_directories(tutti_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
# Host code needs no CUDA header: the stream is an opaque pointer of the same type.
target_compile_definitions(tutti_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:TUTTI_NO_CUDA_HEADERS>)
target_compile_options(tutti_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    -fvisibility=hidden -fvisibility-inlines-hidden $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique> -ffp-contract=off
    -ffunction-sections -fdata-sections -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>
  # gcc 12's own std::stable_sort; tables of all operations
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations -fbracket-depth=1024>)
# Sections of their own let the linker drop what nobody calls. Only the loops that combine data gain from -O3 (exec/host/reduce).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(TUTTI_SANITIZE)
  # A null pointer or too small an object stops at the address sanitizer, which costs no check in each place.
  target_compile_options(tutti_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${TUTTI_SANITIZE} -fno-sanitize=enum,null,object-size,vptr
      $<$<BOOL:$<TARGET_PROPERTY:TUTTI_TEST>>:-fno-sanitize=undefined $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=fuzzer-no-link>>
      -fno-omit-frame-pointer -fno-sanitize-recover=all -g1>)
  target_link_options(tutti_flags INTERFACE -fsanitize=${TUTTI_SANITIZE})
endif()

set(TUTTI_SMALL $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-Os>)

# What nearly every file includes is parsed once: half of the time of a build is these headers. Files still include what they use;
# scripts/check-tidy and scripts/check-headers compile without this.
set(TUTTI_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional> <span> <string>
  <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/core.h> <tl/expected.hpp>)
# `headers`: the target whose headers are shared, made when it is first wanted; files that share them have the same options.
function(tutti_precompile target headers)
  if(ARGN)  # a folder with a header of its own that is as dear
    target_precompile_headers(${target} PRIVATE ${TUTTI_COMMON_HEADERS} ${ARGN})
    return()
  endif()
  if(NOT TARGET ${headers})
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${headers}.cc CONTENT "static_assert(true);\n")
    add_library(${headers} STATIC ${PROJECT_BINARY_DIR}/${headers}.cc)
    target_link_libraries(${headers} PRIVATE tutti_flags tl::expected Threads::Threads)
    target_precompile_headers(${headers} PRIVATE ${TUTTI_COMMON_HEADERS})
    if(headers STREQUAL "tutti_small_headers")
      target_compile_options(${headers} PRIVATE ${TUTTI_SMALL})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# tutti_folder(<name> [SMALL] SOURCES a.cc … [SMALL_SOURCES b.cc …] DEPENDS core … [PRECOMPILE header] [ALONE c.cc …]): the static library
# tutti_<name> of one folder of src/.
# SMALL, SMALL_SOURCES: what only sets up and takes down is built for size; it is a quarter less (scripts/check-size).
# ALONE: files whose own names another file of the folder has, too, or of which gcc warns beside others, so that TUTTI_UNITY does not put
# them together with others.
# DEPENDS lists the folders it may include; a wrong include fails the header check (scripts/check-layers).
function(tutti_folder name)
  cmake_parse_arguments(F "SMALL" "" "SOURCES;SMALL_SOURCES;DEPENDS;LIBRARIES;PRECOMPILE;ALONE" ${ARGN})
  if(F_ALONE)
    set_source_files_properties(${F_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  if(F_SOURCES)
    add_library(tutti_${name} STATIC ${F_SOURCES})
    if(F_SMALL)
      target_compile_options(tutti_${name} PRIVATE ${TUTTI_SMALL})
      tutti_precompile(tutti_${name} tutti_small_headers ${F_PRECOMPILE})
    else()
      tutti_precompile(tutti_${name} tutti_common_headers ${F_PRECOMPILE})
    endif()
    set_target_properties(tutti_${name} PROPERTIES UNITY_BUILD ${TUTTI_UNITY})
    set(scope PUBLIC)
  else()
    add_library(tutti_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(tutti_${name} ${scope} tutti_flags ${F_LIBRARIES})
  foreach(dep ${F_DEPENDS})
    target_link_libraries(tutti_${name} ${scope} tutti_${dep})
  endforeach()
  if(F_SMALL_SOURCES)
    add_library(tutti_${name}_small OBJECT ${F_SMALL_SOURCES})
    target_compile_options(tutti_${name}_small PRIVATE ${TUTTI_SMALL})
    tutti_precompile(tutti_${name}_small tutti_small_headers)
    set_target_properties(tutti_${name}_small PROPERTIES UNITY_BUILD ${TUTTI_UNITY})
    target_link_libraries(tutti_${name}_small PRIVATE $<TARGET_PROPERTY:tutti_${name},LINK_LIBRARIES>)
    target_sources(tutti_${name} PRIVATE $<TARGET_OBJECTS:tutti_${name}_small>)
  endif()
  set_property(GLOBAL APPEND PROPERTY TUTTI_FOLDERS ${name})
  set_property(GLOBAL PROPERTY TUTTI_DEPENDS_${name} "${F_DEPENDS}")
endfunction()

# tutti_test(<path without _test.cc> DEPENDS core … [LABELS …]): one GoogleTest executable from tests/<path>_test.cc.
# Tests are compiled for a quick build, not for speed: GoogleTest's header once for all of them, and little optimisation; none would be
# less, but the linker takes their copies of what is inline for the library's, too: topo/search took five times as long. What is undefined
# is looked for in the library, not in them: those checks take half of a sanitizer build. The usual linker takes twice as long as any of the
# others, whose output nobody else uses.
find_program(TUTTI_TEST_LINKER NAMES ld.mold ld.lld ld.gold DOC "Links the tests")
function(tutti_test_speed_up target)
  set(TUTTI_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
  if(NOT TARGET tutti_test_header)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/test_header.cc CONTENT "int main() { return 0; }\n")
    add_executable(tutti_test_header ${PROJECT_BINARY_DIR}/test_header.cc)
    target_link_libraries(tutti_test_header PRIVATE tutti_flags tl::expected GTest::gtest Threads::Threads)
    target_compile_options(tutti_test_header PRIVATE ${TUTTI_TEST_OPTIONS})
    set_target_properties(tutti_test_header PROPERTIES TUTTI_TEST ON)
    target_precompile_headers(tutti_test_header PRIVATE ${TUTTI_COMMON_HEADERS} <gtest/gtest.h>)
  endif()
  target_compile_options(${target} PRIVATE ${TUTTI_TEST_OPTIONS})
  set_target_properties(${target} PROPERTIES TUTTI_TEST ON)
  target_precompile_headers(${target} REUSE_FROM tutti_test_header)
  if(TUTTI_TEST_LINKER)
    string(REGEX REPLACE ".*/ld\\." "" linker "${TUTTI_TEST_LINKER}")
    target_link_options(${target} PRIVATE -fuse-ld=${linker})
  endif()
endfunction()

function(tutti_test path)
  cmake_parse_arguments(T "" "TIMEOUT" "DEPENDS;LIBRARIES;LABELS;ENVIRONMENT" ${ARGN})
  string(REPLACE "/" "_" target test_${path})
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}_test.cc)
  target_link_libraries(${target} PRIVATE tutti_flags GTest::gtest GTest::gtest_main Threads::Threads ${T_LIBRARIES})
  foreach(dep ${T_DEPENDS})
    target_link_libraries(${target} PRIVATE tutti_${dep})
  endforeach()
  tutti_test_speed_up(${target})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  # What somebody has measured on this machine is nothing that a test may depend on.
  set(environment TUTTI_CACHE_DIR=none ${T_ENVIRONMENT})
  add_test(NAME ${path} COMMAND ${target})
  set_tests_properties(${path} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" ENVIRONMENT "${environment}")
endfunction()
