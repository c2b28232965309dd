// Outputs: pieces to events, to the frames and the whole answer of their protocol.
#include <optional>

#include "recipe_check/replay.h"

namespace deepinfer {
namespace {

// Text and token pieces in, events out; counts as the official package does.
class OutputReplay {
 public:
  OutputReplay(OutputOptions options, const Tokenizer* tokenizer, OutputSink sink)
      : parser_(std::move(options)), sink_(std::move(sink)) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }

  void push(const JsonRef& piece) {
    if (parser_.matched_stop_sequence()) return;
    if (piece["tokens"].present()) {
      for (const JsonRef& id : elements_of(piece["tokens"])) {
        const std::string text = decoder_->push(static_cast<TokenId>(int_of(id)));
        parser_.push(text, sink_);
        ++completion_tokens;
        reasoning_tokens += parser_.in_reasoning();
      }
      return;
    }
    const bool plain = piece.value()->string() != nullptr;
    parser_.push(plain ? *piece.value()->string() : text_of(piece["text"]), sink_);
    completion_tokens += plain ? 1 : int_of(piece["token_count"]);
  }

  void finish(const std::string& reason) {
    if (decoder_) parser_.push(decoder_->flush(), sink_);
    parser_.finish(reason == "length" || reason == "content_filter" ? OutputEnd::kLength : OutputEnd::kStop,
                   sink_);
  }

  const OutputParser& parser() const { return parser_; }
  int64_t completion_tokens = 0, reasoning_tokens = 0;

 private:
  OutputParser parser_;
  OutputSink sink_;
  std::optional<IncrementalDecoder> decoder_;
};

AnswerEnding ending(const OutputParser& parser, const std::string& finish) {
  if (const auto stop = parser.matched_stop_sequence()) return {AnswerEnd::kStopSequence, *stop};
  if (finish == "length") return {AnswerEnd::kLength};
  if (finish == "content_filter") return {AnswerEnd::kContentFilter};
  return {parser.num_tool_calls() > 0 ? AnswerEnd::kToolCalls : AnswerEnd::kStop};
}

OutputStage stage_of(const JsonRef& parsing) {
  if (flag_of(parsing["starts_in_tool_calls"])) return OutputStage::kToolCalls;
  const std::string stage = text_of(parsing["thinking_initial_stage"]);
  if (stage == "reasoning_start") return OutputStage::kReasoning;
  if (stage == "reasoning_continuation") return OutputStage::kReasoningContinuation;
  return stage.empty() ? OutputStage::kContent : OutputStage::kContentContinuation;
}

OutputOptions options_of(const JsonRef& parsing) {
  OutputOptions options;
  options.start = stage_of(parsing);
  options.parse_tool_calls = flag_of(parsing["parse_tool_calls"]);
  options.json_output = flag_of(parsing["parse_json_output"]);
  for (const JsonRef& stop : elements_of(parsing["stop_sequences"])) {
    options.stop_sequences.push_back(text_of(stop));
  }
  return options;
}

// Ids that were drawn at random, as the records write them.
void normalise(JsonValue& value) {
  if (JsonValue::Array* array = value.array()) {
    for (JsonValue& element : *array) normalise(element);
  }
  if (JsonValue::Object* object = value.object()) {
    // Joining deltas leaves gaps in the numbers.
    std::erase_if(*object, [](const JsonMember& member) { return member.key == "sequence_number"; });
    for (JsonMember& member : *object) {
      const std::string* text = member.value.string();
      if (text != nullptr && text->starts_with("call_") && text->size() == 32) {
        member.value = JsonValue(text->substr(0, 8) + "*");
      }
      normalise(member.value);
    }
  }
}

// The text that a delta brings, in any protocol; nullptr for other frames.
JsonValue* delta_text(JsonValue& frame) {
  JsonValue* delta = frame.find("delta");
  if (delta == nullptr) {
    JsonValue* choices = frame.find("choices");
    if (choices == nullptr || choices->array() == nullptr || choices->array()->empty()) return nullptr;
    delta = choices->array()->front().find("delta");
    if (delta == nullptr) return nullptr;
    if (JsonValue* calls = delta->find("tool_calls")) {
      JsonValue& call = calls->array()->front();
      return call.find("id") == nullptr ? call.find("function")->find("arguments") : nullptr;
    }
  }
  if (delta->string() != nullptr) return delta;
  for (const char* name : {"content", "reasoning_content", "thinking", "text", "partial_json"}) {
    JsonValue* text = delta->find(name);
    if (text != nullptr && text->string() != nullptr && !text->string()->empty()) return text;
  }
  return nullptr;
}

// Frames with adjacent deltas of one kind as one: their grain is free.
std::vector<JsonValue> joined(std::vector<JsonValue> frames) {
  std::vector<JsonValue> out;
  std::string shape, text;
  for (JsonValue& frame : frames) {
    normalise(frame);
    JsonValue* delta = delta_text(frame);
    if (delta == nullptr) {
      shape.clear();
      out.push_back(std::move(frame));
      continue;
    }
    const std::string piece = std::exchange(*delta, JsonValue("")).string()[0];
    const std::string this_shape = to_json(frame);
    text = this_shape == shape ? text + piece : piece;
    *delta = JsonValue(text);
    this_shape == shape ? void(out.back() = frame) : out.push_back(frame);
    shape = this_shape;
  }
  return out;
}

std::vector<JsonValue> frames_of(std::string_view stream) {
  std::vector<JsonValue> frames;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    const std::string_view frame = stream.substr(0, end);
    stream.remove_prefix(std::min(end, stream.size() - 2) + 2);
    const size_t data = frame.find("data: ");
    if (data == std::string_view::npos || frame.substr(data + 6) == "[DONE]") continue;
    if (Result<JsonValue> json = parse_json(frame.substr(data + 6)); json.ok()) frames.push_back(*json);
  }
  return frames;
}

std::vector<JsonValue> recorded_frames(const JsonRef& events) {
  std::vector<JsonValue> frames;
  for (const JsonRef& push : elements_of(events)) {
    for (const JsonRef& event : elements_of(push)) frames.push_back(value_of(event["data"]));
  }
  return frames;
}

std::string answer(const JsonRef& input, const ReplayedRequest& request, const Tokenizer* tokenizer,
                   bool stream) {
  AnswerIdentity identity;
  identity.id = text_of(input["response_id"]);
  identity.created = 1700000000;
  identity.model = text_of(input["response_model"]);
  identity.system_fingerprint = text_of(input["ready"]["system_fingerprint"]);
  identity.call_id_key = 7;
  const auto writer = request.make_writer(std::move(identity), stream);
  std::string out;
  const std::vector<ScoredToken> no_tokens;
  const Conversation& conversation = request.request.conversation;
  OutputOptions options = options_of(input["parsing"]);
  options.tools = output_options(conversation, render(conversation)).tools;
  OutputReplay replay(std::move(options), tokenizer,
                      [&](const OutputEvent& event) { writer->add(0, event, no_tokens, out); });
  const JsonRef prompt = input["ready"]["prompt_usage"];
  Usage usage;
  usage.prompt_tokens = int_of(prompt["prompt_tokens"]);
  usage.cached_tokens = int_of(prompt["prompt_cache_hit_tokens"]);
  writer->start(usage, out);
  for (const JsonRef& piece : elements_of(input["pieces"])) replay.push(piece);
  const std::string finish = text_of(input["finish"]);
  replay.finish(finish);
  usage.completion_tokens = replay.completion_tokens;
  if (tokenizer != nullptr && conversation.thinking) {
    usage.reasoning_tokens = replay.reasoning_tokens;
  }
  writer->end(0, ending(replay.parser(), finish), &usage, out);
  return out;
}

bool has_tokens(const JsonRef& input) {
  for (const JsonRef& piece : elements_of(input["pieces"])) {
    if (piece["tokens"].present()) return true;
  }
  return false;
}

// What an engine of ours always says: why it ended, how long the prompt was.
std::string_view reason_to_skip(const JsonRef& record, bool needs_tokenizer, const Tokenizer* tokenizer) {
  const JsonRef input = record["input"];
  if (text_of(record["area"]) == "stream.logprobs") {
    return "log probabilities are joined to text in the gateway, whose tests cover them";
  }
  if (record["expected"]["error"].present()) return "the error is one of the package's own interface";
  if (needs_tokenizer && tokenizer == nullptr) return "needs a tokenizer (--tokenizer)";
  if (input["signature"].present() && !input["signature"].is_null()) {
    return "signatures of thoughts are the server's own";
  }
  if (input["finish"].is_null()) return "an engine of ours always says why an answer ended";
  if (input["ready"].is_null() || input["ready"]["prompt_usage"].is_null()) {
    return "an engine of ours always says how long the prompt was";
  }
  return "";
}

}  // namespace

void check_stream(const JsonRef& record, const CheckTokenizers& tokenizers, Comparison& compare) {
  const JsonRef input = record["input"];
  const bool needs_tokenizer = has_tokens(input);
  const Tokenizer* tokenizer = needs_tokenizer ? tokenizers.v41 : nullptr;
  if (const std::string_view reason = reason_to_skip(record, needs_tokenizer, tokenizer); !reason.empty()) {
    return compare.skip(reason);
  }
  const std::string body = to_json(value_of(input["request"]));
  const Result<ReplayedRequest> request =
      convert_request(text_of(input["protocol"]), body, text_of(input["request"]["model"]));
  if (!request.ok()) {
    if (request.error().code() == Code::kUnimplemented) return compare.skip(request.error().message());
    return compare.differs("request", request.error().message(), "a request that is accepted");
  }
  const Result<JsonValue> complete = parse_json(answer(input, *request, tokenizer, false));
  if (!complete.ok()) return compare.differs("complete", complete.error().message(), "JSON");
  JsonValue whole = *complete;
  normalise(whole);
  compare.same("complete", whole, value_of(record["expected"]["complete"]));

  const std::vector<JsonValue> ours = joined(frames_of(answer(input, *request, tokenizer, true)));
  const std::vector<JsonValue> theirs = joined(recorded_frames(record["expected"]["events"]));
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    compare.same(fmt::format("frame {}", i), ours[i], theirs[i]);
  }
  compare.equal("frames", std::to_string(ours.size()), std::to_string(theirs.size()));
}

}  // namespace deepinfer
