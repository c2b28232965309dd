#include "tokenizer/tokenizer_file.h"

#include <cctype>

#include "json/json.h"
#include "tokenizer/pre_tokenizer.h"

namespace deepinfer {
namespace {

Error wrong(const JsonRef& place, std::string_view found, std::string_view expected) {
  return Error(Code::kInvalidArgument, "{}: found {}, expected {}", place.path(), found, expected);
}

Status expect_type(const JsonRef& object, std::string_view expected) {
  ASSIGN_OR_RETURN(const std::string found, object["type"].string());
  if (found != expected) return wrong(object["type"], '"' + found + '"', expected);
  return {};
}

Status expect_flag(const JsonRef& place, bool expected) {
  ASSIGN_OR_RETURN(const bool found, place.boolean());
  if (found != expected) return wrong(place, found ? "true" : "false", expected ? "true" : "false");
  return {};
}

Status expect_absent(const JsonRef& place) {
  if (!place.present() || place.is_null()) return {};
  return wrong(place, place.value()->kind_name(), "null");
}

// A flag that files may leave out when it is false.
Status expect_false_or_absent(const JsonRef& place) {
  return place.present() && !place.is_null() ? expect_flag(place, false) : Status();
}

Status check_normalizer(const JsonRef& normalizer) {
  if (!normalizer.present() || normalizer.is_null()) return {};
  RETURN_IF_ERROR(expect_type(normalizer, "Sequence"));
  ASSIGN_OR_RETURN(const auto steps, normalizer["normalizers"].array());
  if (!steps.empty()) return wrong(normalizer["normalizers"], "a normalizer", "none");
  return {};
}

// Files write the same pattern with real or escaped newlines, and with or without a backslash before the
// quote.
std::string plain_pattern(std::string_view pattern) {
  std::string plain;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i, 2) == "\\\"") continue;
    if (pattern[i] == '\r') {
      plain += "\\r";
    } else if (pattern[i] == '\n') {
      plain += "\\n";
    } else {
      plain += pattern[i];
    }
  }
  return plain;
}

Status check_split(const JsonRef& split, std::string_view pattern) {
  RETURN_IF_ERROR(expect_type(split, "Split"));
  ASSIGN_OR_RETURN(const std::string found, split["pattern"]["Regex"].string());
  if (plain_pattern(found) != pattern) return wrong(split["pattern"]["Regex"], '"' + found + '"', pattern);
  ASSIGN_OR_RETURN(const std::string behavior, split["behavior"].string());
  if (behavior != "Isolated") return wrong(split["behavior"], '"' + behavior + '"', "Isolated");
  return expect_false_or_absent(split["invert"]);
}

Status check_pre_tokenizer(const JsonRef& pre_tokenizer) {
  RETURN_IF_ERROR(expect_type(pre_tokenizer, "Sequence"));
  const JsonRef list = pre_tokenizer["pretokenizers"];
  ASSIGN_OR_RETURN(const auto steps, list.array());
  if (steps.size() != kSplitPatterns.size() + 1) {
    return wrong(list, fmt::format("{} steps", steps.size()), "three Split steps and ByteLevel");
  }
  for (size_t i = 0; i < kSplitPatterns.size(); ++i)
    RETURN_IF_ERROR(check_split(steps[i], kSplitPatterns[i]));
  const JsonRef& byte_level = steps.back();
  RETURN_IF_ERROR(expect_type(byte_level, "ByteLevel"));
  RETURN_IF_ERROR(expect_flag(byte_level["add_prefix_space"], false));
  return expect_flag(byte_level["use_regex"], false);
}

Status check_pipeline(const JsonRef& file) {
  RETURN_IF_ERROR(expect_absent(file["truncation"]));
  RETURN_IF_ERROR(expect_absent(file["padding"]));
  RETURN_IF_ERROR(check_normalizer(file["normalizer"]));
  RETURN_IF_ERROR(check_pre_tokenizer(file["pre_tokenizer"]));
  const JsonRef post_processor =
      file["post_processor"];  // ByteLevel only trims offsets, which don't exist here
  if (post_processor.present() && !post_processor.is_null())
    RETURN_IF_ERROR(expect_type(post_processor, "ByteLevel"));
  return expect_type(file["decoder"], "ByteLevel");
}

Status check_model(const JsonRef& model) {
  RETURN_IF_ERROR(expect_type(model, "BPE"));
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    RETURN_IF_ERROR(expect_absent(model[key]));
  }
  for (const char* key : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
    RETURN_IF_ERROR(expect_false_or_absent(model[key]));
  }
  return {};
}

Status read_vocabulary(const JsonRef& vocab, Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const auto* entries, vocab.object());
  for (const auto& [spelling, value] : *entries) {
    const auto id = value.int64();
    if (!id) return wrong(vocab[spelling], value.kind_name(), "integer");
    if (const Status added = vocabulary.add(spelling, *id); !added.ok())
      return added.error().in(vocab.path());
  }
  return {};
}

// A merge is "left right" or ["left", "right"].
std::optional<std::pair<std::string_view, std::string_view>> merge_parts(const JsonValue& value) {
  if (const std::string* text = value.string()) {
    const size_t space = text->find(' ');
    if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) return std::nullopt;
    return std::pair(std::string_view(*text).substr(0, space), std::string_view(*text).substr(space + 1));
  }
  const JsonValue::Array* pair = value.array();
  if (pair == nullptr || pair->size() != 2 || !(*pair)[0].string() || !(*pair)[1].string())
    return std::nullopt;
  return std::pair<std::string_view, std::string_view>(*(*pair)[0].string(), *(*pair)[1].string());
}

Result<Merge> read_merge(const JsonValue& value, const Vocabulary& vocabulary) {
  const auto parts = merge_parts(value);
  if (!parts) return Error(Code::kInvalidArgument, "found {}, expected two tokens", value.kind_name());
  const auto& [left, right] = *parts;
  const std::string joined = std::string(left).append(right);
  for (const std::string_view token : {left, right, std::string_view(joined)}) {
    if (!vocabulary.find(token)) return Error(Code::kInvalidArgument, "'{}' is not in the vocabulary", token);
  }
  return Merge{*vocabulary.find(left), *vocabulary.find(right), *vocabulary.find(joined)};
}

Status read_merges(const JsonRef& list, const Vocabulary& vocabulary, std::vector<Merge>& merges) {
  const JsonValue::Array* values = list.present() ? list.value()->array() : nullptr;
  if (values == nullptr) return list.array().status();
  merges.reserve(values->size());
  for (size_t rank = 0; rank < values->size(); ++rank) {
    auto merge = read_merge((*values)[rank], vocabulary);
    if (!merge.ok()) return merge.error().in(fmt::format("{}[{}]", list.path(), rank));
    merges.push_back(*merge);
  }
  return {};
}

Result<AddedToken> read_added_token(const JsonRef& entry) {
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    RETURN_IF_ERROR(expect_false_or_absent(entry[key]));
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, entry["content"].string());
  if (token.content.empty()) return wrong(entry["content"], "an empty string", "the token's text");
  ASSIGN_OR_RETURN(const int64_t id, entry["id"].int64());
  if (id < 0 || id >= Vocabulary::kMaxSize) {
    return wrong(entry["id"], std::to_string(id), fmt::format("0 to {}", Vocabulary::kMaxSize - 1));
  }
  token.id = static_cast<TokenId>(id);
  ASSIGN_OR_RETURN(token.special, entry["special"].boolean());
  ASSIGN_OR_RETURN(token.normalized, entry["normalized"].boolean());
  return token;
}

Status read_added_tokens(const JsonRef& list, TokenizerFile& file) {
  if (!list.present() || list.is_null()) return {};
  ASSIGN_OR_RETURN(const auto entries, list.array());
  for (const JsonRef& entry : entries) {
    ASSIGN_OR_RETURN(AddedToken token, read_added_token(entry));
    const Status added = file.vocabulary.add(token.content, token.id);
    if (!added.ok()) return added.error().in(entry.path());
    file.added_tokens.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view json_text) {
  ASSIGN_OR_RETURN(const JsonValue document, parse_json(json_text));
  const JsonRef root(document);
  if (document.object() == nullptr)
    return wrong(JsonRef(document, "document"), document.kind_name(), "object");
  RETURN_IF_ERROR(check_pipeline(root));
  const JsonRef model = root["model"];
  RETURN_IF_ERROR(check_model(model));
  TokenizerFile file;
  RETURN_IF_ERROR(read_vocabulary(model["vocab"], file.vocabulary));
  RETURN_IF_ERROR(read_merges(model["merges"], file.vocabulary, file.merges));
  RETURN_IF_ERROR(read_added_tokens(root["added_tokens"], file));
  return file;
}

}  // namespace deepinfer
