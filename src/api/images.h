// Images in requests: where they come from, not what they show. Private to the room.
//
// Source: docs/spec/recipe.md 3.6.
#pragma once

#include <string>
#include <string_view>

#include "api/fields.h"
#include "recipe/conversation.h"

namespace deepinfer {

inline constexpr std::string_view kNoFileIds =
    "file_id is not supported. Pass the image as a base64 data url instead.";

// A link of at most 8192 bytes, or "data:image/TYPE;base64,DATA" of webp, png, jpeg or gif. `place` leads the
// message of an error, `name` is what the protocol calls a link there ("image_url ").
Status check_image_source(std::string_view source, std::string_view place, std::string_view name);
bool is_image_type(std::string_view media_type);  // "image/png"
bool is_base64(std::string_view text);

// "low", "high", "original" or "auto"; high when absent.
Result<Image::Detail> parse_image_detail(const JsonRef& field);

}  // namespace deepinfer
