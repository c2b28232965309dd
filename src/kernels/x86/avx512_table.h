// A table with what avx512_linear.h and avx512_attention.h made in this namespace, and the rest of another (private to the
// kernels room); to be included inside the namespace, below them.

inline Ops make_table(std::string_view name, const Ops& rest) {
  Ops ops = rest;
  ops.name = name;
  ops.linear_groups = linear_groups;
  ops.attend = attend;
  ops.index_scores = index_scores;
  return ops;
}
