# cmake -DHTML=... -DCSS=... -DSCRIPT=... -DOUTPUT=web_page.cc -P embed_page.cmake: the files of the page as C++ strings.
foreach(part HTML CSS SCRIPT)
  file(READ "${${part}}" ${part})
endforeach()
file(WRITE "${OUTPUT}" "// Made from web/.
#include \"gateway/web_page.h\"

namespace deepinfer {
namespace {

constexpr char kHtml[] = R\"web_page(${HTML})web_page\";
constexpr char kCss[] = R\"web_page(${CSS})web_page\";
constexpr char kScript[] = R\"web_page(${SCRIPT})web_page\";

template <size_t size>
constexpr std::string_view text(const char (&literal)[size]) {
  return {literal, size - 1};
}

}  // namespace

const std::array<WebFile, 3>& web_files() {
  static constexpr std::array<WebFile, 3> kFiles = {{
      {\"/\", \"text/html; charset=utf-8\", text(kHtml)},
      {\"/page.css\", \"text/css; charset=utf-8\", text(kCss)},
      {\"/page.js\", \"text/javascript; charset=utf-8\", text(kScript)},
  }};
  return kFiles;
}

}  // namespace deepinfer
")
