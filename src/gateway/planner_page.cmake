# The planner's page: planner_javascript writes the models as a module, esbuild joins it with the view and Chartist, and all
# of it becomes one HTML text in one C++ file.
set(planner_web ${web}/planner)
set(planner_out ${CMAKE_CURRENT_BINARY_DIR}/planner)
if(NOT EXISTS ${page_modules}/chartist/package.json)
  message(FATAL_ERROR "${page_modules}/chartist is missing; ./run setup build installs it")
endif()
file(GLOB planner_sources CONFIGURE_DEPENDS ${planner_web}/*.js ${planner_web}/*.jsx ${planner_web}/*.css)
add_custom_command(
  OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/planner_page.cc
  COMMAND ${CMAKE_COMMAND} -E make_directory ${planner_out}
  COMMAND planner_javascript ${planner_out}/planner_models.js
  COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${page_modules}:${planner_out}
          ${ESBUILD} ${planner_web}/main.jsx --bundle --minify --jsx=automatic --jsx-import-source=preact
          --target=chrome123,firefox121,safari17.5 --log-level=warning --outfile=${planner_out}/planner.js
  COMMAND ${CMAKE_COMMAND} -DHTML=${planner_web}/index.html -DCSS=${planner_out}/planner.css
          -DSCRIPT=${planner_out}/planner.js -DOUTPUT=${CMAKE_CURRENT_BINARY_DIR}/planner_page.cc
          -P ${CMAKE_CURRENT_SOURCE_DIR}/embed_planner.cmake
  DEPENDS planner_javascript ${planner_sources} ${planner_web}/index.html embed_planner.cmake
  VERBATIM)
