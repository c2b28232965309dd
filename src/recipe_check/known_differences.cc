// Records that differ on purpose, with what is better. A star stands for the rest of an id.
#include "recipe_check/replay.h"

namespace deepinfer {
namespace {

struct KnownDifference {
  std::string_view id;
  std::string_view reason;
};

constexpr std::string_view kAny = "`any` is enforced; thinking that nobody asked for gives way to it";
constexpr std::string_view kForced = "a forced call may follow thinking, or thinking that nobody asked for gives way to it";
constexpr std::string_view kSchema = "a schema that is not enforced is not compiled";
constexpr std::string_view kStrict = "a strict schema may be any that can be enforced, and is shown as received";
constexpr std::string_view kArguments = "clients leave arguments out, send null or the object itself";
constexpr std::string_view kServerTools = "server tools and their blocks are left out";
constexpr std::string_view kModel =
    "a model that is not served is 404, and the message names the one that is";
constexpr std::string_view kOrder =
    "calls and results keep their order, so a prompt's beginning never changes";
constexpr std::string_view kParameterName = "parameter names may hold spaces and are escaped as JSON";
constexpr std::string_view kCut = "a call that is cut is closed to valid JSON where the protocol needs it";
constexpr std::string_view kJson = "JSON ends at its bracket, and no spaces stand for what is around it";
constexpr std::string_view kCustom = "every custom tool is taken";

// The package's plain bugs first: output that it loses or breaks.
constexpr KnownDifference kKnown[] = {
    {"stream-call-pname-*", kParameterName},
    {"P08-v41", kParameterName},
    {"stream-call-bad-json-*", "raw values that are not JSON become strings"},
    {"stream-call-no-attr-*", "a missing string attribute is tolerated"},
    {"stream-call-json-body-*", "a JSON object as call body becomes the arguments"},
    {"stream-call-unclosed-param-*", "a new parameter closes the one before"},
    {"stream-call-unclosed-invoke-*", "a new call closes the one before"},
    {"stream-call-cut-*", kCut},
    {"stream-marker-prose-*", "a marker that opens no block stays text"},
    {"stream-marker-ascii-*", "calls in ASCII spelling are read"},
    {"stream-block-empty-*", "a block without a call comes back as text"},
    {"stream-forced-plain-*", "an answer without the forced call comes back as text"},
    {"stream-json-*", kJson},
    {"P20", kJson},
    {"stream-resp-custom-cut", kCut},
    {"stream-resp-tool-search-cut", kCut},
    // Requests that clients really send.
    {"err-chat-field-01-n", "n up to 128"},
    {"err-chat-msg-call-*", kArguments},
    {"err-chat-msg-developer", "a developer message is a system message"},
    {"err-choice-required-thinking-*", kForced},
    {"X01", kForced},
    {"err-tool-schema-*", kSchema},
    {"strict-*", kStrict},
    {"tools-strict-v4*", kStrict},
    {"rf-schema-strict-v4*", kStrict},
    {"rf-resp-schema-v4*", kStrict},
    {"err-resp-json-no-word", "a grammar makes sure of JSON, whatever the words"},
    {"err-msgs-redacted", "hidden thinking is left out"},
    {"err-msgs-search-result", "its text is shown to the model"},
    {"err-msgs-text-after-use", "clients send text after calls"},
    {"err-msgs-tool-custom-type", "`custom` is the name of the default"},
    {"err-msgs-tool-server", kServerTools},
    {"err-msgs-tool-web", kServerTools},
    {"msgs-web-reject-block", kServerTools},
    {"X21", kServerTools},
    {"err-resp-custom-other", kCustom},
    {"resp-choice-custom", kCustom},
    {"X25", kCustom},
    {"err-resp-item-bad-role-block", "a refusal is text"},
    {"resp-choice-allowed", "allowed_tools is done"},
    {"msgs-choice-any*", kAny},
    {"opt-max-completion-tokens", "max_completion_tokens is read"},
    {"opt-resp-logprobs-include", "include asks for log probabilities too"},
    {"err-chat-msg-file-object-id", "the file of OpenAI's form is read"},
    {"msgs-documents-*", "a document of plain text is shown"},
    {"E34", "a document of plain text is shown"},
    {"args-empty-string-*", kArguments},
    {"args-null-*", kArguments},
    {"err-effort-int-*", "numbers from 1 to 100 are efforts too"},
    {"stream-eos-literal-*", "a written end of sentence at the end is left out"},
    {"tokens-eos-visible", "a written end of sentence at the end is left out"},
    {"stream-resp-echo", "a summary of reasoning that was asked for is given, and settings are echoed as asked"},
    {"err-choice-no-tools-*", "a call can't be forced where there is no tool"},
    {"err-chat-field-34-tool_choice", "a call can't be forced where there is no tool"},
    // Ours by choice.
    {"reason-reject-*", "missing reasoning never refuses a request"},
    {"opt-chat-bound", "there is one bound of max_tokens"},
    {"stream-usage-none", "an answer always has a fingerprint"},
    {"stream-no-ready", "an answer always has a fingerprint"},
    {"stream-signature", "the signature of a thought is the id of its message"},
    {"err-unknown-model-*", kModel},
    {"X17", "the message names the field, as the package does since 0.2.0"},
    {"resp-calls-sorted-*", kOrder},
    {"resp-calls-numeric-ids", kOrder},
    {"resp-custom-apply-patch", "the description of the patch language is our own"},
    {"resp-namespace-named-choice", "a named choice leaves one tool, so one name"},
    {"msgs-trailing-assistant-*", "the answer continues a last message of the assistant, as with Anthropic"},
    {"prefix-stream-content", "an answer that goes on from the client's text opens as any other"},
};

}  // namespace

std::string_view known_difference(std::string_view id) {
  for (const KnownDifference& known : kKnown) {
    const bool open = known.id.ends_with('*');
    const std::string_view stem = open ? known.id.substr(0, known.id.size() - 1) : known.id;
    if (open ? id.starts_with(stem) : id == stem) return known.reason;
  }
  return "";
}

}  // namespace deepinfer
