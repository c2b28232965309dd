// The page at "/" and its two files.
#include <algorithm>

#include "gateway/routes.h"
#include "gateway/web_page.h"

namespace deepinfer {
namespace {

// The page is its own three files and this server's API, whatever a model writes into it.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace

void show_page(GatewayCore&, const ExchangePtr& exchange, const std::string&) {
  const auto& files = web_files();
  const auto* file = std::find_if(files.begin(), files.end(), [&](const WebFile& candidate) {
    return exchange->request().path.ends_with(candidate.path);  // a version may stand in front
  });
  if (file == files.end()) file = files.begin();
  HttpResponse response;
  response.content_type = std::string(file->content_type);
  response.body = std::string(file->body);
  response.headers = {{"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  exchange->respond(std::move(response));
}

}  // namespace deepinfer
