// The page at "/" and its two files; the planner's page.
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "gateway/planner_page.h"
#include "gateway/routes.h"
#include "gateway/web_page.h"

namespace deepinfer {
namespace {

// The page is its own three files and this server's API, whatever a model writes into it.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The planner's page is one file: its script is named by its digest, and it may ask nobody for anything. Its charts set
// styles of their elements.
std::string planner_policy() {
  const std::string_view page = planner_page(), open = "<script type=\"module\">";
  const size_t begin = page.find(open) + open.size();
  const std::string_view script = page.substr(begin, page.rfind("</script>") - begin);
  std::array<unsigned char, 32> digest;
  std::array<unsigned char, 45> text;  // base64 with its end
  CHECK(EVP_Digest(script.data(), script.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  const int size = EVP_EncodeBlock(text.data(), digest.data(), digest.size());
  return fmt::format(
      "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; img-src data:; "
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      std::string(text.begin(), text.begin() + size));
}

HttpResponse page_response(std::string_view content_type, std::string_view body, std::string policy) {
  HttpResponse response;
  response.content_type = std::string(content_type);
  response.body = std::string(body);
  response.headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", std::move(policy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  return response;
}

}  // namespace

void show_page(GatewayCore&, const ExchangePtr& exchange, const std::string&) {
  const auto& files = web_files();
  const auto* file = std::find_if(files.begin(), files.end(), [&](const WebFile& candidate) {
    return exchange->request().path.ends_with(candidate.path);  // a version may stand in front
  });
  if (file == files.end()) file = files.begin();
  exchange->respond(page_response(file->content_type, file->body, kPolicy));
}

void show_planner(GatewayCore&, const ExchangePtr& exchange, const std::string&) {
  static const std::string policy = planner_policy();
  exchange->respond(page_response("text/html; charset=utf-8", planner_page(), policy));
}

}  // namespace deepinfer
