// What the header of a request may say about where the request ends and whom it is for. Whatever two readers could
// understand in two ways is refused, so that no proxy and we ever differ. Private to the room.
#pragma once

#include <optional>
#include <string>

#include "net/http_server.h"

namespace deepinfer {

struct HeadFault {
  int status;
  std::string message;
};

std::optional<HeadFault> check_request_head(const HttpRequest& head, bool is_http_1_0);

}  // namespace deepinfer
