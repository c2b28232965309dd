cmake_policy(VERSION 3.25)
# cmake -DHTML=... -DCSS=... -DSCRIPT=... -DOUTPUT=planner_page.cc -P embed_planner.cmake: style and script put into the page,
# the page as a C++ string.
foreach(part HTML CSS SCRIPT)
  file(READ "${${part}}" ${part})
endforeach()
string(REPLACE "</script" "<\\/script" SCRIPT "${SCRIPT}")
string(REPLACE "@STYLE@" "${CSS}" HTML "${HTML}")
string(REPLACE "@SCRIPT@" "${SCRIPT}" HTML "${HTML}")
file(WRITE "${OUTPUT}" "// Made from web/planner/ and src/planner/.
#include \"gateway/planner_page.h\"

namespace deepinfer {

std::string_view planner_page() {
  static constexpr char kPage[] = R\"planner_page(${HTML})planner_page\";
  return {kPage, sizeof(kPage) - 1};
}

}  // namespace deepinfer
")
