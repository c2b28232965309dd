// Frames of server-sent events. Private to the room.
#pragma once

#include <string>
#include <string_view>

#include "json/json.h"

namespace deepinfer {

// "data: {...}\n\n"; write(JsonWriter&) fills the object. With a name, "event: NAME\n" goes before it and
// "type": NAME leads the object.
template <typename Write>
void append_frame(std::string& out, std::string_view name, Write write) {
  if (!name.empty()) out.append("event: ").append(name).append("\n");
  out += "data: ";
  JsonWriter json(out);
  json.begin_object();
  if (!name.empty()) json.member("type", name);
  write(json);
  json.end_object();
  out += "\n\n";
}

inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";
inline constexpr std::string_view kBlankLine = "\n";  // white space before a JSON body

}  // namespace deepinfer
