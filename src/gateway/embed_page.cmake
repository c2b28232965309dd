# cmake -DINPUT=web/index.html -DOUTPUT=web_page.cc -P embed_page.cmake: the page as a C++ string.
file(READ "${INPUT}" page)
file(WRITE "${OUTPUT}" "// Made from web/index.html.
#include \"gateway/web_page.h\"

namespace deepinfer {

std::string_view web_page() {
  static constexpr char kPage[] = R\"web_page(${page})web_page\";
  return std::string_view(kPage, sizeof(kPage) - 1);
}

}  // namespace deepinfer
")
