// "system" and "messages" of a Messages request. Private to the room.
#pragma once

#include "api/generation.h"
#include "json/json.h"

namespace deepinfer {

// conversation.tools stands already: blocks may refer to them.
Status parse_messages_input(const JsonRef& body, Conversation& conversation);

}  // namespace deepinfer
