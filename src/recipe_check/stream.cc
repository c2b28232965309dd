// Outputs: pieces to events, to the frames and the whole answer of their protocol.
#include <optional>

#include "api/token_attribution.h"
#include "recipe_check/replay.h"

namespace deepinfer {
namespace {

// Text and token pieces in, events out; counts as the official package does.
class OutputReplay {
 public:
  using Sink = std::function<void(const OutputEvent&, const std::vector<ScoredToken>&)>;

  OutputReplay(OutputOptions options, const Tokenizer* tokenizer, Sink sink)
      : tokenizer_(tokenizer), parser_(std::move(options)) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
    sink_ = [this, sink = std::move(sink)](const OutputEvent& event) {
      const bool is_text =
          event.kind == OutputEvent::Kind::kReasoning || event.kind == OutputEvent::Kind::kContent;
      sink(event, is_text ? attribution_.take(event.text) : std::vector<ScoredToken>());
    };
  }

  void push(const JsonRef& piece) {
    if (parser_.matched_stop_sequence()) return;
    if (piece["tokens"].present()) {
      const std::vector<JsonRef> ids = elements_of(piece["tokens"]), scores = elements_of(piece["logprobs"]);
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::string text = decoder_->push(static_cast<TokenId>(int_of(ids[i])));
        if (i < scores.size()) attribution_.push(scored(ids[i], scores[i]), text);
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
  ScoredToken::Entry entry(const JsonRef& id, const JsonRef& logprob) const {
    return {std::string(tokenizer_->token_bytes(static_cast<TokenId>(int_of(id)))),
            static_cast<float>(logprob.number().ok() ? *logprob.number() : 0)};
  }
  // [logprob, [[id, logprob], ...]]
  ScoredToken scored(const JsonRef& id, const JsonRef& score) const {
    ScoredToken token;
    token.id = static_cast<TokenId>(int_of(id));
    token.chosen = entry(id, score[0]);
    for (const JsonRef& other : elements_of(score[1])) token.top.push_back(entry(other[0], other[1]));
    return token;
  }

  const Tokenizer* tokenizer_;  // null: text pieces only
  OutputParser parser_;
  OutputSink sink_;
  std::optional<IncrementalDecoder> decoder_;
  TokenAttribution attribution_;
};

// "": the stream ended without saying why.
AnswerEnding ending(const OutputParser& parser, const std::string& finish) {
  if (const auto stop = parser.matched_stop_sequence()) return {AnswerEnd::kStopSequence, *stop};
  if (finish.empty()) return {AnswerEnd::kStop};
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

// The log probabilities that a delta brings; nullptr: none.
JsonValue::Array* delta_tokens(JsonValue& frame) {
  JsonValue* choices = frame.find("choices");
  const bool is_chat = choices != nullptr && choices->array() != nullptr && !choices->array()->empty();
  JsonValue* tokens = (is_chat ? choices->array()->front() : frame).find("logprobs");
  if (tokens == nullptr || tokens->object() == nullptr) return tokens == nullptr ? nullptr : tokens->array();
  return tokens->object()->empty() ? nullptr : tokens->object()->front().value.array();
}

// Frames with adjacent deltas of one kind as one: their grain is free.
std::vector<JsonValue> joined(std::vector<JsonValue> frames) {
  std::vector<JsonValue> out;
  std::string shape, text;
  JsonValue::Array tokens;
  for (JsonValue& frame : frames) {
    normalise(frame);
    JsonValue* delta = delta_text(frame);
    if (delta == nullptr) {
      shape.clear();
      out.push_back(std::move(frame));
      continue;
    }
    const std::string piece = std::exchange(*delta, JsonValue("")).string()[0];
    JsonValue::Array* place = delta_tokens(frame);
    JsonValue::Array these = place == nullptr ? JsonValue::Array() : std::exchange(*place, {});
    const std::string this_shape = to_json(frame);
    const bool joins = this_shape == shape;
    if (!joins) text.clear(), tokens.clear();
    text += piece;
    std::move(these.begin(), these.end(), std::back_inserter(tokens));
    *delta = JsonValue(text);
    if (place != nullptr) *place = tokens;
    joins ? void(out.back() = frame) : out.push_back(frame);
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
  const Conversation& conversation = request.request.conversation;
  OutputOptions options = options_of(input["parsing"]);
  options.tools = output_options(conversation, render(conversation)).tools;
  OutputReplay replay(std::move(options), tokenizer,
                      [&](const OutputEvent& event, const std::vector<ScoredToken>& tokens) {
                        writer->add(0, event, tokens, out);
                      });
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

std::string_view reason_to_skip(const JsonRef& record, bool needs_tokenizer, const Tokenizer* tokenizer) {
  const JsonRef input = record["input"];
  if (record["expected"]["error"].present()) return "the error is one of the package's own interface";
  if (needs_tokenizer && tokenizer == nullptr) return "needs a tokenizer (--tokenizer)";
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
