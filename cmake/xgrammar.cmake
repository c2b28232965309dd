# The grammar engine: its C++ core from the source package that ./run setup unpacked, without its Python binding, its tests
# and its link-time optimisation, which would slow every link of ours. Warnings of its code are not ours.
file(STRINGS ${PROJECT_SOURCE_DIR}/third_party.lock xgrammar_line REGEX "^build sdist xgrammar ")
string(REGEX REPLACE "^build sdist xgrammar ([^ ]+) .*" "\\1" xgrammar_version "${xgrammar_line}")
set(xgrammar_dir ${PROJECT_SOURCE_DIR}/.tools/build/xgrammar-${xgrammar_version})
if(NOT EXISTS ${xgrammar_dir}/include/xgrammar/xgrammar.h)
  message(FATAL_ERROR "${xgrammar_dir}: not found, expected the sources of XGrammar ${xgrammar_version}; ./run setup build")
endif()

file(GLOB xgrammar_sources ${xgrammar_dir}/cpp/*.cc ${xgrammar_dir}/cpp/support/*.cc ${xgrammar_dir}/cpp/converter_ext/*.cc)

# Mended in a copy: strings with a length let raw control characters into JSON.
set(mended_file json_schema_converter.cc)
set(faulty [[AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true)]])
set(mended [[AddCharacterClass({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}, true)]])
file(READ ${xgrammar_dir}/cpp/${mended_file} text)
string(FIND "${text}" "${faulty}" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${xgrammar_dir}/cpp/${mended_file}: not found what is mended here; is XGrammar another version?")
endif()
string(REPLACE "${faulty}" "${mended}" text "${text}")
file(CONFIGURE OUTPUT xgrammar/${mended_file} CONTENT "${text}" @ONLY)
list(REMOVE_ITEM xgrammar_sources ${xgrammar_dir}/cpp/${mended_file})
list(APPEND xgrammar_sources ${CMAKE_CURRENT_BINARY_DIR}/xgrammar/${mended_file})

add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
# As its authors build it; with C++20 its types are incomplete to clang.
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
target_include_directories(xgrammar PRIVATE ${xgrammar_dir}/cpp)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${xgrammar_dir}/include ${xgrammar_dir}/3rdparty/picojson ${xgrammar_dir}/3rdparty/dlpack/include)
target_compile_definitions(xgrammar PRIVATE
  XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
target_compile_options(xgrammar PRIVATE -w -O2 -g0)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
