// Spellings of the control tokens and tags of V4.1 (recipe.md 1.1, 3.3, 4.2). Private to the room.
// The bar is U+FF5C and the underscore-like character U+2581; neither is ASCII.
#pragma once

#include <string_view>

namespace deepinfer::control {

inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";

}  // namespace deepinfer::control
