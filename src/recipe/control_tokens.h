// Spellings of the control tokens and tags (docs/spec/recipe.md 1.1, 3.3, 4.2). Private to the room.
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
// One token with two names: the service writes the first, the released tokenizer the second.
inline constexpr std::string_view kImage = "<｜image｜>";
inline constexpr std::string_view kReleasedImage = "<｜deepseek_image｜>";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";

}  // namespace deepinfer::control
