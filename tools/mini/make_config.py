"""Writes config.json of the mini model; the Engram class count and table sizes are derived from its tokenizer."""
import json
import sys

import engram

VOCAB = 2048


def build(tokenizer):
    text = {
        "model_type": "deepseek_v41_text", "vocab_size": VOCAB, "hidden_size": 128, "num_hidden_layers": 10,
        "moe_intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 64,
        "qk_rope_head_dim": 16, "q_lora_rank": 64, "o_lora_rank": 64, "o_groups": 2, "hidden_act": "silu",
        "swiglu_limit": 10.0, "rms_norm_eps": 1e-20, "initializer_range": 0.02, "attention_bias": False,
        "attention_dropout": 0.0, "use_cache": True, "tie_word_embeddings": False, "max_position_embeddings": 8192,
        "rope_theta": 10000,
        "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                         "original_max_position_embeddings": 512},
        "compress_rope_theta": 160000, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "sliding_window": 128, "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0],
        "kv_source_layer_ids": [2, 4, 6], "index_source_layer_ids": [2, 4, 6, 8], "index_n_heads": 4,
        "index_head_dim": 32, "index_topk": 256, "candidate_source_layer_id": 6, "candidate_topk_blocks": 64,
        "candidate_block_size": 8, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06, "engram_layer_ids": [1, 4],
        "engram_num_embeddings": [], "engram_max_ngram_size": 4, "engram_vocab_size": 8000, "engram_n_heads": 2,
        "engram_head_dim": 32, "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": int(engram.token_map(tokenizer, VOCAB).max()) + 1,
        "num_nextn_predict_layers": 3, "dspark_block_size": 5,
        "dspark_noise_token_id": next(a["id"] for a in tokenizer["added_tokens"] if a["content"] == "<｜System｜>"),
        "dspark_target_layer_ids": [7, 8, 9], "dspark_markov_rank": 32, "dspark_n_routed_experts": 4,
        "dspark_num_experts_per_tok": 2}
    text["engram_num_embeddings"] = engram.Hash(text, engram.token_map(tokenizer, VOCAB)).table_rows()
    return {
        "architectures": ["DeepseekV41ForCausalLM"], "_name_or_path": "deepinfer-mini", "model_type": "deepseek_v41", "dtype": "bfloat16",
        "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        "image_token_id": next(a["id"] for a in tokenizer["added_tokens"] if "image" in a["content"]),
        "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
                                "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
        "text_config": text}


if __name__ == "__main__":
    folder = sys.argv[1]
    config = build(json.load(open(f"{folder}/tokenizer.json")))
    json.dump(config, open(f"{folder}/config.json", "w"), indent=1)
