// The states of an answer and the markers that end each of them (docs/spec/recipe.md 5.2, 5.3). Private to the room.
#pragma once

#include "recipe/marker_scanner.h"
#include "recipe/recipe.h"

namespace deepinfer {

enum class OutputState {
  kReasoning,
  kText,
  kOpening,     // of calls, or a mention of it
  kLookAlike,   // in text: markup that may turn out to be calls without their control token
  kJsonSearch,  // JSON mode: before the object
  kJson,
  kJsonAfter,
  kCalls,  // between calls
  kCallName,
  kArguments,  // between parameters
  kParameterName,
  kParameterType,
  kStringValue,
  kRawValue,
  kWrappedValue,  // of a parameter that may hold all arguments
  kDone,
};

enum OutputAction {
  kDropAtStart,
  kStopSequence,
  kCloseReasoning,
  kDropMarker,
  kSentenceMark,
  kStrayCloser,
  kOpenJson,
  kOpenCalls,
  kOpenCall,
  kOpenLookAlike,
  kCallNamed,
  kNextCall,  // the call before was not closed
  kCloseCall,
  kCloseCalls,
  kOpenParameter,
  kParameterNamed,
  kStringType,
  kOtherType,
  kCloseValue,
  kNextParameter,       // the value before was not closed
  kNextCallAfterValue,  // neither value nor call were closed
};

inline constexpr std::string_view kDsmlOpen = "<｜DSML｜";
inline constexpr std::string_view kDsmlClose = "</｜DSML｜";

// The sets of one answer.
class OutputMarkers {
 public:
  explicit OutputMarkers(const OutputOptions& options);
  const MarkerSet& of(OutputState state) const;

 private:
  const MarkerSet reasoning_, text_, json_search_, json_, json_after_;
};

}  // namespace deepinfer
