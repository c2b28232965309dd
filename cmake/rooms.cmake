# deepinfer_join_sources(TARGET): with DEEPINFER_UNITY its sources are compiled in groups of eight, which takes less than half
# the time: a group reads its headers and compiles their templates once. It also compiles the whole group after a change of
# one file. Names in anonymous namespaces of one room differ (tools/check_names.py), so that any files can be a group.
function(deepinfer_join_sources target)
  if(DEEPINFER_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # GCC 12 takes a header's anonymous namespace for one of the group, and warns wrongly about variants that it inlines
    # deeper here than file by file. Builds without groups judge the code.
    target_compile_options(${target} PRIVATE
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;-Wno-maybe-uninitialized;-Wno-error>")
  endif()
endfunction()

# deepinfer_room(NAME SOURCES ... [USES room...] [LIBS lib...] [TESTS file...])
#
# One room = one static library `room_NAME` plus one gtest program `NAME_test` from its *_test.cc files.
# USES lists the rooms it links; src/layers.txt is the law and tools/check_layers.py holds the includes to it.
function(deepinfer_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;LIBS;TESTS" ${ARGN})
  add_library(room_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(used ${ROOM_USES})
    target_link_libraries(room_${name} PUBLIC room_${used})
  endforeach()
  target_link_libraries(room_${name} PUBLIC ${ROOM_LIBS})
  deepinfer_join_sources(room_${name})
  if(ROOM_TESTS)
    deepinfer_test(${name}_test SOURCES ${ROOM_TESTS} USES ${name})
  endif()
endfunction()

# source_path(): the one object that names this folder, so that clones in other folders share every other cache entry.
configure_file(${PROJECT_SOURCE_DIR}/tests/support/source_path.cc.in ${PROJECT_BINARY_DIR}/source_path.cc @ONLY)
add_library(source_path STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/source_path.cc)
target_include_directories(source_path PUBLIC ${PROJECT_SOURCE_DIR}/tests/support)

# deepinfer_test(NAME SOURCES ... USES room... [LIBS lib...] [DEFINES macro=value...] [LABEL fast|slow|clients]
#                [TIMEOUT seconds]); nothing without DEEPINFER_TESTS.
# One ctest entry per program: starting a process costs milliseconds here, so cases are not split up.
function(deepinfer_test name)
  if(NOT DEEPINFER_TESTS)
    return()
  endif()
  cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;USES;LIBS;DEFINES" ${ARGN})
  if(NOT T_LABEL)
    set(T_LABEL fast)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  if(DEEPINFER_SANITIZE OR CMAKE_CROSSCOMPILING) # an emulator runs what is made for other machines
    math(EXPR T_TIMEOUT "10 * ${T_TIMEOUT}")
  endif()
  add_executable(${name} ${T_SOURCES})
  target_compile_definitions(${name} PRIVATE ${T_DEFINES})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles in two thirds of the time
  foreach(used ${T_USES})
    target_link_libraries(${name} PRIVATE room_${used})
  endforeach()
  target_link_libraries(${name} PRIVATE ${T_LIBS} source_path GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT})
endfunction()
