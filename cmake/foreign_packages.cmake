# The installed libraries are for this machine's processor. For another one fmt and spdlog serve as headers and GoogleTest is
# built from its sources (Debian's package googletest, which libgtest-dev brings).
set(headers ${PROJECT_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
foreach(package fmt spdlog)
  file(CREATE_LINK /usr/include/${package} ${headers}/${package} SYMBOLIC)
  add_library(${package}_headers INTERFACE)
  add_library(${package}::${package} ALIAS ${package}_headers)
  target_include_directories(${package}_headers SYSTEM INTERFACE ${headers})
endforeach()
target_compile_definitions(fmt_headers INTERFACE FMT_HEADER_ONLY)
target_compile_definitions(spdlog_headers INTERFACE SPDLOG_FMT_EXTERNAL)
add_subdirectory(/usr/src/googletest ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
