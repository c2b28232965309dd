// A client's JSON Schema made ready for the grammar compiler: checked, bounded and rewritten into the
// keywords that the compiler enforces to the letter. Private to the room.
//
// The dialect is 2020-12 as far as a grammar can follow it. Every keyword is enforced, refused by its name
// and its path, or an annotation. The rewritten language is the schema's own, or a part of it (README.md
// lists where it is smaller), so whatever the grammar lets through is valid. kInvalidArgument: a bad or
// contradictory schema, or one that no finite value satisfies; kUnimplemented: a keyword that can't be
// enforced; both as "PATH: KEYWORD: what is wrong".
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "grammar/expression.h"
#include "json/json.h"

namespace deepinfer {

// What a schema may be at most; beyond it, it is refused before any work that grows with it.
struct SchemaLimits {
  int64_t depth = 64;
  int64_t nodes = 4000;            // subschemas, those behind a $ref once
  int64_t properties = 512;        // of one object
  int64_t enum_values = 2000;      // of one keyword
  int64_t enum_bytes = 256 << 10;  // of all constants
  int64_t items = 10'000;          // minItems, maxItems
  int64_t length = 100'000;        // minLength, maxLength
  int64_t pattern_bytes = 2048;
  int64_t pattern_states = 4000;  // characters of a pattern with its repetitions written out
};

// Lengths up to this are counted by an automaton, whose masks are cheap and whose compilation is not; longer ones while
// masks are made.
inline constexpr int64_t kMostCounted = 128;

// `path` is where the schema stands in the request. References in the result lead to "#/$defs/N".
Result<JsonValue> prepare_schema(const JsonValue& schema, std::string_view path,
                                 const SchemaLimits& limits = {});

// The same schema as the compiler reads it: numbers with bounds, strings with a length or a pattern, some constants and
// names as expressions. `in_call`: as JSON in the markup of a call.
JsonValue lowered_schema(const JsonValue& prepared, bool in_call = false);

// A pattern as an expression of the compiler for texts at that place; the whole text matches. The same errors, without
// a path.
Result<std::string> prepare_pattern(std::string_view pattern, TextPlace place = {}, const SchemaLimits& limits = {});

// The limits of grammars in a notation of the client's.
Status check_grammar_text(std::string_view text, std::string_view path);

// Whether a constant satisfies a prepared schema without references, objects or patterns: types, bounds,
// lengths.
bool is_plain_match(const JsonValue& value, const JsonValue& schema);

}  // namespace deepinfer
