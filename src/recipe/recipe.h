// The prompt language of DeepSeek-V4 and V4.1: a conversation becomes one prompt, and the model's output
// becomes reasoning, content and tool calls again. Knows no wire format and no engine; each API converts to
// and from the types here. Chunks go in, events come out.
//
// Follows docs/spec/recipe.md 2 to 5. README.md shows how it is called.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "recipe/conversation.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// ---- The prompt (docs/spec/recipe.md 3, 4) ----

enum class PromptVersion { kV4, kV41 };
enum class PromptProfile {
  kRecipe,     // what DeepSeek's own service renders
  kReference,  // what the encoder beside the released weights renders
};

struct PromptFormat {
  PromptVersion version = PromptVersion::kV41;
  PromptProfile profile = PromptProfile::kRecipe;
  bool prerelease_efforts = false;  // V4.1: 25, 50, 75, 100 instead of 50, 75, 75, 100
  // A string argument of an earlier call that holds "</｜DSML｜" gets U+200B after its "</", so that the text alone
  // is unambiguous. The token ids always are: what a client wrote never becomes a control token.
  bool split_call_markup = false;
  bool drop_thinking = true;        // kReference: reasoning before the last user message goes, unless tools
                                    // are declared anywhere
};

// What a client gets when it names no effort: high, low for the reference encoder of V4.
ReasoningEffort default_effort(const PromptFormat& format);

struct TextRange {
  size_t begin = 0;  // bytes, half open
  size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

// Where the model's output begins.
enum class OutputStage {
  kReasoning,              // after <think>
  kReasoningContinuation,  // inside a thought that the client began: leading newlines stay
  kContent,                // after </think>
  kContentContinuation,    // inside an answer that the client began
  kToolCalls,              // inside a call block that the prompt opened
};

struct RenderedPrompt {
  std::string text;
  std::vector<TextRange> control_ranges;  // each is the spelling of one control token; all else is plain text
  OutputStage output_stage = OutputStage::kContent;
  std::vector<Image> images = {};  // one for each placeholder, in order; `offset` is its byte in `text`
};

RenderedPrompt render(const Conversation& conversation, const PromptFormat& format = {});

// Completions: the text as it is after the begin of the sentence; with a suffix the model fills the hole
// between both (docs/spec/recipe.md 3.5). The output is plain text: no parser.
RenderedPrompt render_completion(std::string_view text, std::optional<std::string_view> suffix = {});

// Control ranges become their token, plain text is encoded with control spellings as ordinary characters, so
// nothing that a client typed turns into a control token. kNotFound names a control token that the tokenizer
// lacks.
Result<std::vector<TokenId>> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

// Tokens that end an answer: end of sentence, and the tokens that open another turn. Those the tokenizer
// lacks are left out. kNotFound when it has no end of sentence.
Result<std::vector<TokenId>> stop_token_ids(const Tokenizer& tokenizer);

// The token with which the model's turn begins; null when the tokenizer lacks it.
std::optional<TokenId> assistant_token_id(const Tokenizer& tokenizer);

// How many tokens stand for an image of that size (docs/spec/recipe.md 3.6).
int64_t image_token_count(int64_t width, int64_t height);

// ---- Tools (docs/spec/recipe.md 4.4, 4.5) ----

// A tool that takes one string instead of JSON. apply_patch gets the description of the patch language when
// the client gives none.
ToolDefinition custom_tool(std::string name, std::string description = {});
// {"input": TEXT}: the arguments of a call of such a tool.
std::string custom_tool_arguments(std::string_view input);

// The names under which the model knows the tools of a conversation: a member of a namespace is NS::NAME
// (V4: NS__NAME), made unique. Borrows nothing.
class ToolNames {
 public:
  ToolNames(const Conversation& conversation, PromptVersion version);

  struct Target {
    std::string namespace_name;
    std::string name;
    ToolKind kind = ToolKind::kFunction;
    friend bool operator==(const Target&, const Target&) = default;
  };
  // Whom the model means by a name it wrote. A name that nobody declared stays whole.
  Target target(std::string_view printed) const;
  // How the model knows (namespace, name).
  std::string printed(std::string_view namespace_name, std::string_view name) const;
  // The names of conversation.tools, in their order.
  const std::vector<std::string>& declared() const { return declared_; }
  const std::map<std::string, Target, std::less<>>& targets() const { return targets_; }

 private:
  std::string declare(const ToolDefinition& tool);
  std::string plain_name(std::string_view namespace_name, std::string_view name) const;

  std::string_view separator_;
  std::vector<std::string> declared_;
  std::map<std::string, Target, std::less<>> targets_;  // by printed name
  // Members of namespaces: how the first of each (namespace, name) is printed.
  std::map<std::pair<std::string, std::string>, std::string> printed_;
  std::map<std::string, int> num_suffixes_;  // tried for each plain name
};

// How calls are spelt: "<" mark block ">", "<" mark call " name=..." and so on (docs/spec/recipe.md 4.2).
struct CallMarkup {
  std::string_view mark, block, call, parameter;
};
CallMarkup call_markup(PromptVersion version = PromptVersion::kV41);

// ---- The output (docs/spec/recipe.md 5) ----

// What the parser has to know of a tool to repair a call of it.
struct ToolSignature {
  std::string name;  // as printed in the prompt
  struct Parameter {
    std::string name;
    bool is_string = false;  // declared as a string and nothing else
  };
  std::vector<Parameter> parameters;
};

struct OutputOptions {
  OutputStage start = OutputStage::kContent;
  bool parse_tool_calls = false;
  bool json_output = false;                 // only the first JSON object or array of the answer is content
  bool single_tool_call = false;            // the first call ends the answer
  std::vector<std::string> stop_sequences;  // matched in content only; empty ones are ignored
  // The declared tools. With them the parser also understands calls whose control token is missing or spelt
  // in ASCII (`salvage`), values without a type, and arguments in a wrapper.
  std::vector<ToolSignature> tools = {};
  bool salvage = true;
  // Content keeps to a grammar: it is passed on as it is, but for calls and stop sequences.
  bool verbatim_content = false;
};

// The options that follow from the request: start, calls, JSON, signatures.
OutputOptions output_options(const Conversation& conversation, const RenderedPrompt& prompt,
                             PromptVersion version = PromptVersion::kV41);

struct OutputEvent {
  enum class Kind { kReasoning, kContent, kToolCall, kToolArguments };
  Kind kind;
  std::string_view
      text;  // a piece of text; kToolCall: the name of the call that starts. Valid during the callback.
};
using OutputSink = std::function<void(const OutputEvent&)>;

// Why the model stopped, as the engine saw it.
enum class OutputEnd { kStop, kLength };

// Splits output text into events. Concatenated events do not depend on how the text was cut into pieces, and
// no text is held back except what may still become a marker or a stop sequence. Allocates nothing for a
// piece of text once its buffers have grown. Owned by one request; not thread-safe.
class OutputParser {
 public:
  explicit OutputParser(OutputOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;

  void push(std::string_view piece, const OutputSink& sink);
  // Releases held text. kStop also closes the arguments of a call that was left open, so that they are valid
  // JSON, and gives a block without a call back as content; kLength leaves them cut. Call once, at the end.
  void finish(OutputEnd end, const OutputSink& sink);

  bool in_reasoning() const;
  int64_t num_tool_calls() const;
  // A stop sequence was found or the call block is closed: nothing that follows is read.
  bool done() const;
  std::optional<std::string> matched_stop_sequence() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

// The text of a custom tool from its streamed arguments {"input": "TEXT"} (docs/spec/recipe.md 5.6). Arguments of
// another shape come out as they are. Owned by one call.
class CustomToolInput {
 public:
  // Appends to `out` what `arguments` adds to the text.
  void push(std::string_view arguments, std::string& out);
  void finish(std::string& out);  // what is left of an unfinished escape or opening

 private:
  enum class State { kOpening, kText, kRaw, kOver };
  void read_text(std::string& out);
  bool read_opening(std::string& out);

  State state_ = State::kOpening;
  std::string held_;
};

}  // namespace deepinfer
