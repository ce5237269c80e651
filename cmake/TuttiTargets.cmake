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

# What nearly every file includes is parsed once: half of the time of a build is these headers. With TUTTI_UNITY several files of a target
# are compiled as one, too, which parse the headers of the project once. Files still include what they use: those of dev are compiled
# each by itself, and scripts/check-headers compiles without either.
set(TUTTI_COMMON_HEADERS
  <algorithm> <array> <atomic> <chrono> <condition_variable> <cstdint> <cstring> <functional> <map> <memory> <mutex> <optional> <span> <string>
  <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/core.h> <tl/expected.hpp>)
# `headers`: the target whose headers are shared, made when it is first wanted; files that share them have the same options.
function(tutti_precompile target headers)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY})
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
    target_link_libraries(tutti_${name}_small PRIVATE $<TARGET_PROPERTY:tutti_${name},LINK_LIBRARIES>)
    target_sources(tutti_${name} PRIVATE $<TARGET_OBJECTS:tutti_${name}_small>)
  endif()
  set_property(GLOBAL APPEND PROPERTY TUTTI_FOLDERS ${name})
  set_property(GLOBAL PROPERTY TUTTI_DEPENDS_${name} "${F_DEPENDS}")
endfunction()

# Tests are compiled for a quick build, not for speed: GoogleTest's header once for all of them, and little optimisation; none would be
# less, but the linker takes their copies of what is inline for the library's, too: topo/search took five times as long. What is undefined
# is looked for in the library, not in them: those checks take half of a sanitizer build. The usual linker takes twice as long as any of the
# others, whose output nobody else uses.
find_program(TUTTI_TEST_LINKER NAMES ld.mold ld.lld ld.gold DOC "Links the tests")
function(tutti_test_speed_up target)
  set(TUTTI_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
  if(NOT TARGET tutti_test_main)
    add_library(tutti_test_main STATIC ${PROJECT_SOURCE_DIR}/tests/main.cc)
    target_link_libraries(tutti_test_main PUBLIC tutti_flags tl::expected GTest::gtest Threads::Threads)
    # Code of a program, not of a library: gcc takes precompiled headers only of the same kind.
    target_compile_options(tutti_test_main PRIVATE ${TUTTI_TEST_OPTIONS} -fPIE)
    set_target_properties(tutti_test_main PROPERTIES TUTTI_TEST ON POSITION_INDEPENDENT_CODE OFF)
    target_precompile_headers(tutti_test_main PRIVATE ${TUTTI_COMMON_HEADERS} <gtest/gtest.h>)
  endif()
  target_compile_options(${target} PRIVATE ${TUTTI_TEST_OPTIONS})
  set_target_properties(${target} PROPERTIES TUTTI_TEST ON)
  target_precompile_headers(${target} REUSE_FROM tutti_test_main)
  if(TUTTI_TEST_LINKER)
    string(REGEX REPLACE ".*/ld\\." "" linker "${TUTTI_TEST_LINKER}")
    target_link_options(${target} PRIVATE -fuse-ld=${linker})
  endif()
endfunction()

set(TUTTI_TEST_FILES "" CACHE STRING "The tests to build, as paths below tests/ (core/gate;comm/group); all where it is empty")
add_custom_target(test_programs)

# tutti_test(<path> [DEPENDS core …] [LIBRARIES target …] [NEEDS target …] [ALONE] [SOURCES c.cc …] [INCLUDES folder …] [DEFINITIONS A=1 …]
# [TIMEOUT seconds] [WAITS] [LABELS …] [ENVIRONMENT A=1 …]): the tests of tests/<path>_test.cc, as one test of ctest.
# The files of a folder become one executable, test_<folder>, which takes half to two thirds of the time that one each would take; each has a
# namespace of its own, and a run is of one file (tests/main.cc). test_<path> of its own has what is ALONE, or is compiled with SOURCES,
# INCLUDES or DEFINITIONS.
# NEEDS: what must be built although nothing of it is linked. INCLUDES are searched last, and nothing is warned of in them.
# WAITS: for most of its time, for deadlines and peers that are gone. Others count as two of the tests that run at a time, which are twice as
# many as there are cores (scripts/test): so cores have something to do, and those that use them do not share one.
function(tutti_test path)
  cmake_parse_arguments(T "ALONE;WAITS" "TIMEOUT" "DEPENDS;LIBRARIES;NEEDS;SOURCES;INCLUDES;DEFINITIONS;LABELS;ENVIRONMENT" ${ARGN})
  if(TUTTI_TEST_FILES AND NOT path IN_LIST TUTTI_TEST_FILES)
    return()
  endif()
  if(T_ALONE OR T_SOURCES OR T_INCLUDES OR T_DEFINITIONS)
    set(program ${path})
    set(command "")
  else()
    cmake_path(GET path PARENT_PATH program)
    set(command --file=${path})
  endif()
  string(REPLACE "/" "_" target test_${program})
  if(NOT TARGET ${target})
    add_executable(${target})
    target_link_libraries(${target} PRIVATE tutti_flags tutti_test_main)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${target} PRIVATE TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    tutti_test_speed_up(${target})
    if(command)  # all files at once: eight at a time would take a fifth to two fifths longer
      set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY} UNITY_BUILD_BATCH_SIZE 0)
    endif()
    add_dependencies(test_programs ${target})
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/${path}_test.cc ${T_SOURCES})
  target_include_directories(${target} SYSTEM PRIVATE ${T_INCLUDES})
  target_compile_definitions(${target} PRIVATE ${T_DEFINITIONS})
  list(TRANSFORM T_DEPENDS PREPEND tutti_)
  target_link_libraries(${target} PRIVATE ${T_DEPENDS} ${T_LIBRARIES})
  if(T_NEEDS)
    add_dependencies(${target} ${T_NEEDS})
  endif()
  set_property(GLOBAL PROPERTY TUTTI_TEST_COMMAND_${path} ${target} ${command})
  set(waits "")
  if(T_WAITS)
    set(waits WAITS)
  endif()
  tutti_add_test(${path} ${path} ${waits} TIMEOUT ${T_TIMEOUT} LABELS ${T_LABELS} ENVIRONMENT ${T_ENVIRONMENT})
endfunction()

# tutti_test_again(<path> <name> [FILTER GoogleTest's] [TIMEOUT …] [LABELS …] [ENVIRONMENT …]): the tests of that file once more, otherwise.
function(tutti_test_again path name)
  get_property(command GLOBAL PROPERTY TUTTI_TEST_COMMAND_${path})
  if(command)  # TUTTI_TEST_FILES may leave it out
    tutti_add_test(${path} ${path}/${name} ${ARGN})
  endif()
endfunction()

function(tutti_add_test path name)
  cmake_parse_arguments(T "WAITS" "FILTER;TIMEOUT" "LABELS;ENVIRONMENT" ${ARGN})
  get_property(command GLOBAL PROPERTY TUTTI_TEST_COMMAND_${path})
  if(T_FILTER)
    list(APPEND command --gtest_filter=${T_FILTER})
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${command})
  # What somebody has measured on this machine is nothing that a test may depend on.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" ENVIRONMENT "TUTTI_CACHE_DIR=none;${T_ENVIRONMENT}")
  if(NOT T_WAITS)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2)
  endif()
endfunction()
