# cmake -DINPUT=openapi.json -DOUTPUT=openapi.cc -P embed_openapi.cmake: the document as a C++ string, cut into pieces that
# every compiler takes.
file(READ "${INPUT}" text)
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "\n    R\"openapi(${piece})openapi\"")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE "${OUTPUT}" "// Made from openapi.json.
#include \"gateway/openapi.h\"

namespace deepinfer {

std::string_view openapi_text() {
  static constexpr char kText[] =${pieces};
  return {kText, sizeof(kText) - 1};
}

}  // namespace deepinfer
")
