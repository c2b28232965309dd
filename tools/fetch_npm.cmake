# cmake -DFOLDER=node_modules/NAME -DVERSION=V -DINTEGRITY=sha512-BASE64 -DTREE=DIR -P fetch_npm.cmake
# One npm package without npm: its archive from the registry (npm_config_registry, as npm reads it), checked and unpacked to
# TREE/FOLDER. For packages that need no others.
string(REGEX REPLACE "^node_modules/" "" name ${FOLDER})
string(REGEX REPLACE "^@[^/]+/" "" file ${name})
set(registry https://registry.npmjs.org)
if(DEFINED ENV{npm_config_registry})
  string(REGEX REPLACE "/$" "" registry "$ENV{npm_config_registry}")
endif()
set(url ${registry}/${name}/-/${file}-${VERSION}.tgz)
set(archive ${TREE}/${file}-${VERSION}.tgz)

file(DOWNLOAD ${url} ${archive} STATUS status INACTIVITY_TIMEOUT 60)
list(POP_FRONT status failed)
if(failed)
  file(REMOVE ${archive})
  message(FATAL_ERROR "${url}: ${status}")
endif()
# CMake compares hexadecimal digests; the integrity is base64, as openssl writes it.
execute_process(COMMAND openssl dgst -sha512 -binary ${archive} COMMAND openssl base64 -A
                OUTPUT_VARIABLE digest RESULTS_VARIABLE results)
if(NOT "sha512-${digest}" STREQUAL "${INTEGRITY}")
  file(REMOVE ${archive})
  message(FATAL_ERROR "${url}: found the digest sha512-${digest}, expected ${INTEGRITY}")
endif()
file(REMOVE_RECURSE ${TREE}/unpacked)
file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${TREE}/unpacked)
file(REMOVE_RECURSE ${TREE}/${FOLDER})
get_filename_component(parent ${TREE}/${FOLDER} DIRECTORY)
file(MAKE_DIRECTORY ${parent})
file(RENAME ${TREE}/unpacked/package ${TREE}/${FOLDER})
file(REMOVE_RECURSE ${TREE}/unpacked ${archive})
