#include "checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fake_checkpoint.h"
#include "json/json.h"

namespace deepinfer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class ConfigTest : public ::testing::Test {
 protected:
  // Sets a key given by its path; "text_config.head_dim" and so on.
  void set(std::string_view path, JsonValue value) {
    JsonValue* place = &config_;
    for (;;) {
      const size_t dot = path.find('.');
      JsonValue* next = place->find(path.substr(0, dot));
      if (next == nullptr) {
        place->object()->push_back({std::string(path), std::move(value)});
        return;
      }
      place = next;
      if (dot == std::string_view::npos) break;
      path.remove_prefix(dot + 1);
    }
    *place = std::move(value);
  }
  void erase(std::string_view object, std::string_view key) {
    auto& members = *(object.empty() ? config_.object() : config_.find(object)->object());
    std::erase_if(members, [&](const JsonMember& member) { return member.key == key; });
  }
  ConfigReport read() const { return read_model_config(to_json(config_)); }

  JsonValue config_ = *parse_json(small_config_text());
};

TEST_F(ConfigTest, TheReleasedConfigIsReadInFull) {
  const auto config = parse_model_config(flash_config_text());
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->vocab_size, 129280);
  EXPECT_EQ(config->rms_norm_eps, 1e-20);
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_EQ(config->compress_ratios.size(), 43u);
  EXPECT_EQ(config->first_decoder_layer(), 20);
  EXPECT_THAT(config->engram_num_embeddings, ElementsAre(384006168, 384016682));
  EXPECT_THAT(config->index_k_source_layer_ids, ElementsAre(2, 8, 14, 20));
  EXPECT_EQ(config->candidate_source_layer_id, 20);
  EXPECT_EQ(config->vision->min_pixels, 295936);
  EXPECT_EQ(config->vision->max_wh_ratio, std::nullopt);
  EXPECT_THAT(config->unknown_keys, IsEmpty());
}

TEST_F(ConfigTest, ASourceIsTheNearestLayerAtOrBefore) {
  const std::vector<int64_t> sources = {2, 8, 14};
  EXPECT_EQ(ModelConfig::source_of(sources, 1), std::nullopt);
  EXPECT_EQ(ModelConfig::source_of(sources, 2), 2);
  EXPECT_EQ(ModelConfig::source_of(sources, 13), 8);
  EXPECT_EQ(ModelConfig::source_of(sources, 99), 14);
}

TEST_F(ConfigTest, WithoutRatioOneThereIsNoDecoderHalf) {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.compress_ratios = {0, 2, 2, 1};  // the last entry is a DSpark stage's
  EXPECT_EQ(config.first_decoder_layer(), 3);
}

TEST_F(ConfigTest, AKvSourceBehindTheFirstDecoderLayerIsRefused) {
  for (const char* list : {"kv_source_layer_ids", "index_k_source_layer_ids", "index_source_layer_ids"}) {
    set(std::string("text_config.") + list, JsonValue::Array{2, 4, 6, 8});
  }
  const ConfigReport report = read();
  EXPECT_THAT(report.faults, ::testing::Contains(::testing::HasSubstr(
                                 "kv_source_layer_ids: found layer 8, expected none behind the first decoder layer 6")));
}

TEST_F(ConfigTest, AnotherValueOfAKeyThatChangesTheNumbersIsRefusedByName) {
  const std::pair<const char*, JsonValue> kCases[] = {
      {"text_config.hidden_act", "gelu"},
      {"text_config.scoring_func", "sigmoid"},
      {"text_config.topk_method", "greedy"},
      {"text_config.norm_topk_prob", false},
      {"text_config.hc_shifted", false},
      {"text_config.use_fp4_sparse_kv", false},
      {"text_config.dspark_target_attn_input", false},
      {"text_config.attention_bias", true},
      {"text_config.attention_dropout", 0.1},
      {"text_config.tie_word_embeddings", true},
      {"text_config.num_key_value_heads", 2},
      {"text_config.n_shared_experts", 2},
      {"text_config.rope_scaling.type", "linear"},
      {"text_config.rope_scaling.rope_type", "dynamic"},
      {"text_config.model_type", "deepseek_v4"},
      {"text_config.dtype", "float16"},
      {"quantization_config.quant_method", "int8"},
      {"quantization_config.activation_scheme", "static"},
      {"quantization_config.weight_block_size", JsonValue::Array{128, 128}},
      {"quantization_config.scale_fmt", "float"},
      {"quantization_config.expert_dtype", "fp8"},
      {"dtype", "float16"},
      {"model_type", "deepseek_v4"},
      {"architectures", JsonValue::Array{"DeepseekV41ForCausalLM", "Other"}},
      {"vision_config.model_type", "other"},
  };
  const JsonValue sound = config_;
  for (const auto& [path, value] : kCases) {
    config_ = sound;
    set(path, value);
    const ConfigReport report = read();
    ASSERT_EQ(report.faults.size(), 1u) << path;
    EXPECT_THAT(report.faults[0], ::testing::StartsWith(std::string(path) + ": found ")) << path;
    EXPECT_THAT(report.faults[0], ::testing::HasSubstr("expected")) << path;
  }
}

TEST_F(ConfigTest, AFaultShowsFoundAndExpected) {
  set("text_config.hidden_act", "gelu");
  EXPECT_THAT(read().faults, ElementsAre(R"(text_config.hidden_act: found "gelu", expected "silu")"));
  EXPECT_TRUE(read().shapes_known);
}

TEST_F(ConfigTest, AllFaultsAreReportedAtOnce) {
  set("text_config.hidden_size", "wide");
  set("text_config.scoring_func", "softmax");
  set("text_config.rms_norm_eps", -1);
  erase("text_config", "q_lora_rank");
  const ConfigReport report = read();
  EXPECT_THAT(
      report.faults,
      UnorderedElementsAre("text_config.hidden_size: found string, expected integer",
                           R"(text_config.scoring_func: found "softmax", expected "sqrtsoftplus")",
                           "text_config.rms_norm_eps: found -1, expected a number > 0 in the range of fp32",
                           "text_config.q_lora_rank: found nothing, expected integer"));
  EXPECT_FALSE(report.shapes_known);
  EXPECT_EQ(parse_model_config(to_json(config_)).error().code(), Code::kInvalidArgument);
}

TEST_F(ConfigTest, ANumberThatFp32CannotHoldIsRefused) {
  for (const double value : {1e39, 1e-39, -1e-39, 0.0}) {
    set("text_config.rms_norm_eps", value);
    EXPECT_THAT(read().faults, ElementsAre(::testing::StartsWith("text_config.rms_norm_eps: found ")))
        << value;
  }
}

TEST_F(ConfigTest, EveryKeyOfTheTextModelIsNeededUnlessItHasADefault) {
  const std::vector<std::string> optional = {"initializer_range", "use_cache", "attention_dropout",
                                             "candidate_source_layer_id"};
  const JsonValue sound = config_;
  for (const JsonMember& member : *sound.find("text_config")->object()) {
    config_ = sound;
    erase("text_config", member.key);
    const bool is_optional = std::find(optional.begin(), optional.end(), member.key) != optional.end();
    if (member.key == "engram_layer_ids") continue;  // absent: a model without Engram
    EXPECT_EQ(read().faults.empty(), is_optional) << member.key;
  }
}

TEST_F(ConfigTest, UnknownKeysAreNotedNotRefused) {
  set("text_config.use_sliding_window", true);
  set("novelty", 1);
  const ConfigReport report = read();
  EXPECT_THAT(report.faults, IsEmpty());
  EXPECT_THAT(report.config.unknown_keys, UnorderedElementsAre("text_config.use_sliding_window", "novelty"));
}

TEST_F(ConfigTest, ATextModelWithoutEngramDsparkCandidatesAndVisionIsSound) {
  set("text_config.engram_layer_ids", JsonValue::Array{});
  set("text_config.num_nextn_predict_layers", 0);
  set("text_config.compress_ratios", JsonValue::Array{0, 0, 2, 2, 2, 2, 1, 1, 1, 1});
  set("text_config.candidate_source_layer_id", JsonValue());
  erase("", "vision_config");
  erase("", "image_token_id");
  EXPECT_THAT(read().faults, IsEmpty());
}

struct RuleCase {
  const char* path;
  JsonValue value;
  const char* fault_begins;
};

TEST_F(ConfigTest, KeysThatContradictEachOtherAreRefused) {
  const RuleCase kCases[] = {
      {"text_config.compress_ratios", JsonValue::Array{0, 0, 2},
       "text_config.compress_ratios: found 3 entries, expected 12"},
      {"text_config.compress_ratios", JsonValue::Array{0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 2},
       "text_config.compress_ratios[11]"},
      {"text_config.compress_ratios", JsonValue::Array{0, 0, 2, 2, 0, 2, 1, 1, 1, 1, 0, 0},
       "text_config.compress_ratios[4]"},
      {"text_config.compress_ratios", JsonValue::Array{0, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0},
       "text_config.compress_ratios[1]"},
      {"text_config.compress_ratios", JsonValue::Array{0, 0, 2, 2, 2, 1, 1, 1, 1, 1, 0, 0},
       "text_config.compress_ratios[5]"},
      {"text_config.hidden_size", 72, "text_config.hidden_size: found 72, expected a multiple of 32"},
      {"text_config.q_lora_rank", 40, "text_config.q_lora_rank"},
      {"text_config.o_lora_rank", 40, "text_config.o_lora_rank"},
      {"text_config.moe_intermediate_size", 40, "text_config.moe_intermediate_size"},
      {"text_config.head_dim", 40, "text_config.head_dim"},
      {"text_config.index_head_dim", 40, "text_config.index_head_dim"},
      {"text_config.qk_rope_head_dim", 34, "text_config.qk_rope_head_dim"},
      {"text_config.qk_rope_head_dim", 7, "text_config.qk_rope_head_dim"},
      {"text_config.o_groups", 3, "text_config.o_groups"},
      {"text_config.num_experts_per_tok", 5, "text_config.num_experts_per_tok"},
      {"text_config.dspark_num_experts_per_tok", 5, "text_config.dspark_num_experts_per_tok"},
      {"text_config.kv_source_layer_ids", JsonValue::Array{2, 3, 6},
       "text_config.index_k_source_layer_ids: found layer 3"},
      {"text_config.kv_source_layer_ids", JsonValue::Array{4, 2, 6}, "text_config.kv_source_layer_ids[1]"},
      {"text_config.kv_source_layer_ids", JsonValue::Array{2, 4, 6, 10},
       "text_config.kv_source_layer_ids[3]"},
      {"text_config.kv_source_layer_ids", JsonValue::Array{2, 4}, "text_config.compress_ratios[6]"},
      {"text_config.index_k_source_layer_ids", JsonValue::Array{2, 4, 6, 7},
       "text_config.index_k_source_layer_ids"},
      {"text_config.candidate_source_layer_id", 7, "text_config.candidate_source_layer_id"},
      {"text_config.candidate_source_layer_id", 2, "text_config.candidate_source_layer_id"},
      {"text_config.candidate_topk_blocks", 2, "text_config.candidate_topk_blocks: found 2 blocks of 4"},
      {"text_config.engram_layer_ids", JsonValue::Array{1, 6}, "text_config.engram_layer_ids: found 6"},
      {"text_config.engram_num_embeddings", JsonValue::Array{300}, "text_config.engram_num_embeddings"},
      {"text_config.engram_head_dim", 8, "text_config.engram_head_dim"},
      {"text_config.engram_pad_token_id", 256, "text_config.vocab_size"},
      {"text_config.dspark_noise_token_id", 256, "text_config.vocab_size"},
      {"text_config.dspark_target_layer_ids", JsonValue::Array{}, "text_config.dspark_target_layer_ids"},
      {"text_config.dspark_target_layer_ids", JsonValue::Array{8, 10},
       "text_config.dspark_target_layer_ids[1]"},
      {"text_config.dspark_target_layer_ids", JsonValue::Array{5, 8},
       "text_config.dspark_target_layer_ids: found 5 to 8"},
      {"text_config.n_routed_experts", 4096, "text_config.n_routed_experts"},
      {"text_config.vocab_size", int64_t{1} << 40, "text_config.vocab_size"},
      {"eos_token_id", 300, "text_config.vocab_size"},
      {"image_token_id", JsonValue(), "image_token_id"},
      {"vision_config.num_attention_heads", 3, "vision_config.hidden_size"},
  };
  const JsonValue sound = config_;
  for (const RuleCase& rule : kCases) {
    config_ = sound;
    if (std::string_view(rule.path).ends_with("n_routed_experts")) {
      JsonValue::Array ratios(60, 0);
      set("text_config.num_hidden_layers", 60);
      set("text_config.num_nextn_predict_layers", 0);
      set("text_config.compress_ratios", std::move(ratios));
    }
    set(rule.path, rule.value);
    EXPECT_THAT(read().faults, ::testing::Contains(::testing::StartsWith(rule.fault_begins)))
        << rule.path << " = " << to_json(rule.value);
  }
}

TEST_F(ConfigTest, EveryPrefixOfTheTextIsRefused) {
  const std::string text = to_json(config_);
  ASSERT_TRUE(parse_model_config(text).ok());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(parse_model_config(text.substr(0, length)).ok()) << length;
  }
}

TEST_F(ConfigTest, AKeyThatAppearsTwiceIsRefused) {
  const std::string text = R"({"model_type":"deepseek_v41",)" + to_json(config_).substr(1);
  EXPECT_THAT(read_model_config(text).faults,
              ElementsAre(::testing::HasSubstr("key 'model_type' appears twice")));
}

TEST_F(ConfigTest, TextThatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "null", "3", R"({"text_config":[]})", R"({"a":1,"a":2})"}) {
    EXPECT_FALSE(parse_model_config(text).ok()) << text;
  }
}

}  // namespace
}  // namespace deepinfer
