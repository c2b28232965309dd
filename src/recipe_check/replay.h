// Requests and outputs of a record through api and recipe. Private to the room.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation.h"
#include "json/json.h"
#include "recipe_check/recipe_check.h"

namespace deepinfer {

// Collects what differs.
class Comparison {
 public:
  explicit Comparison(RecordResult& result) : result_(result) {}
  void equal(std::string_view what, std::string_view found, std::string_view expected);
  void same(std::string_view what, const JsonValue& found, const JsonValue& expected) {
    equal(what, to_json(found), to_json(expected));
  }
  void differs(std::string_view what, std::string_view found, std::string_view expected);
  void skip(std::string_view reason);

 private:
  RecordResult& result_;
};

// Whether a message says what the recorded one says. A path may stand before it, and the place may be named
// in our way and more exactly: "messages[0].content[1]: ..." for ".messages[0]: ..." or "messages.0: ...".
bool says_the_same(std::string_view ours, std::string_view theirs);

// A request as its protocol reads it, and the writer of its answer.
struct ReplayedRequest {
  GenerationRequest request;
  std::function<std::unique_ptr<AnswerWriter>(AnswerIdentity, bool stream)> make_writer;
};
// `protocol` is "chat_completions", "messages" or "responses"; every model name is served.
Result<ReplayedRequest> convert_request(std::string_view protocol, const std::string& body,
                                        std::string_view served_model);
Result<ReplayedRequest> convert_responses(const std::string& body, std::string_view served_model);

PromptVersion version_of(const JsonRef& record);
JsonValue ranges_json(const RenderedPrompt& prompt);
JsonValue ids_json(const std::vector<TokenId>& ids);
// Compares prompt, control tokens and, with a tokenizer, ids.
void compare_prompt(const RenderedPrompt& prompt, const JsonRef& expected, const Tokenizer* tokenizer,
                    Comparison& compare);

// What an output became, without the protocol.
struct ReplayedOutput {
  std::string reasoning, content;
  JsonValue::Array calls;  // {"name", "arguments"}
};
JsonValue output_json(const ReplayedOutput& output);
// `complete` of a record, of any protocol, in that form.
ReplayedOutput output_of_answer(const JsonRef& complete);

// Official areas; false when there is none of that name.
bool check_official(std::string_view area, const JsonRef& record, const CheckTokenizers& tokenizers,
                    Comparison& compare);
void check_stream(const JsonRef& record, const CheckTokenizers& tokenizers, Comparison& compare);
// Kinds of docs/spec/recipe.md 14.
bool check_own(std::string_view kind, const JsonRef& record, const CheckTokenizers& tokenizers,
               Comparison& compare);

// The reason why a record may differ; empty: it may not.
std::string_view known_difference(std::string_view id);

// Fields of records; absent gives an empty value.
std::string text_of(const JsonRef& field);
bool flag_of(const JsonRef& field);
int64_t int_of(const JsonRef& field);
const JsonValue& value_of(const JsonRef& field);
std::vector<JsonRef> elements_of(const JsonRef& field);

}  // namespace deepinfer
