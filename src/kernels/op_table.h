// The functions of a namespace as a table (private to the kernels room); to be included inside the namespace, below them.

inline Ops make_table(std::string_view name) {
  return {
      .name = name,
      .linear_groups = linear_groups,
      .quantize_rows = quantize_rows,
      .pair_rows = pair_rows,
      .encode_int8 = encode_int8,
      .rms_norm = rms_norm,
      .rotate = rotate,
      .hc_sums = hc_sums,
      .hc_finish = hc_finish,
      .hc_fold = hc_fold,
      .hc_unfold = hc_unfold,
      .swiglu = swiglu,
      .sum_rows = sum_rows,
      .attend = attend,
      .index_scores = index_scores,
      .engram_gate = engram_gate,
      .pool_pair = ref::pool_pair,
  };
}
