// The functions of a namespace as a table (private to the kernels room); to be included inside the namespace, below them.

inline Ops make_table(std::string_view name) {
  return {
      .name = name,
      .linear_list = linear_list,
      .quantize_rows = quantize_rows,
      .pair_rows = pair_rows,
      .encode_int8 = encode_int8,
      .rms_norm = rms_norm,
      .rotate = rotate,
      .hc_mix = hc_mix,
      .hc_fold = hc_fold,
      .hc_unfold = hc_unfold,
      .swiglu = swiglu,
      .sum_rows = sum_rows,
      .sparse_attention = sparse_attention,
      .index_scores = index_scores,
      .engram_gate = engram_gate,
      .pool_pair = ref::pool_pair,
  };
}
