// The operations that a forward pass is put together from, as data: what is computed, on which numbers, in which shapes
// (docs/model.md reads a layer aloud). No address and no code: activations are buffer and offset, weights are named by
// their block, rows are those of the batch. A backend runs a list of them (program.h): cpu_backend.h divides each among
// threads.
//
// An op does not say how it is cut. What stands together in one is what a part of its columns or rows can go on with
// alone: the unfold behind the last product of a sublayer, a norm behind a fold.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>

#include "kernels/ops.h"
#include "model/buffers.h"
#include "model/layer_plan.h"

namespace deepinfer {

// ---- operands
// ---------------------------------------------------------------------------------------------------------

// A backbone layer, or num_hidden_layers + DSpark stage, or kWholeModel.
using Block = int32_t;
inline constexpr Block kWholeModel = -1;

enum class MatrixName : uint8_t {
  kWqA,
  kWqB,
  kWkv,
  kWoB,  // attention; wo_a is read by GroupedOutput alone
  kRouter,
  kCompressorWkv,
  kCompressorWgate,
  kIndexWk,
  kIndexWqB,
  kIndexWeightsProj,
  kEngramWkv,
  kHead,
  kMainProj,
  kMarkovHead,
  kConfidence,  // of the whole model
};
struct MatrixRef {
  Block block = kWholeModel;
  MatrixName name = MatrixName::kHead;
};

enum class NormName : uint8_t { kQuery, kLatent, kFinal, kDsparkMain, kDsparkFinal };
struct NormRef {
  Block block = kWholeModel;
  NormName name = NormName::kFinal;
};

enum class Sublayer : uint8_t { kAttention, kFfn };
// The mixing weights of a sublayer.
struct HcRef {
  Block block = kWholeModel;
  Sublayer sublayer = Sublayer::kAttention;
};

// Rows as the products read them (kernels/ops.h): in pairs, through Q8, and in INT8 in the fast mode. What does not
// exist is not made.
struct OperandRefs {
  Ref<Bf16> paired, quantized;
  Ref<Int8Block> int8;
};

// What a sublayer begins and ends with: the same for all ops of a program.
struct StreamRefs {
  Ref<Bf16> h;           // [rows][4][hidden]
  Ref<float> pre;        // [rows][4]
  Ref<HcMix> mix;        // [rows], of the running sublayer
  Ref<Bf16> x, y;        // [rows][hidden], its input and its output
  OperandRefs operands;  // of x
};

// ---- between sublayers
// ------------------------------------------------------------------------------------------------

// mix(h), x = norm(fold(h, pre)) and its operands. `begun`: the op that left h began the mix already.
struct EnterSublayer {
  HcRef hc;
  int64_t rows = 0;
  bool begun = false;
};

// h = P y + C^T h, pre = A. Part of the last product of a sublayer. `next`: the mix to begin with the columns at hand.
struct LeaveSublayer {
  bool has_next = false;
  HcRef next;
};

struct Embed {  // the embedding of each row's id in all four streams, fold weights one-hot
  int64_t rows = 0;
  Ref<int32_t> ids;
  Ref<Bf16> h;
  Ref<float> pre;
};
struct FoldRows {  // x = fold(h, pre)
  int64_t rows = 0;
};
struct MeanOfStreams {  // a DSpark target: out[row] = mean over the streams of h
  int64_t rows = 0, target = 0, width = 0;
  Ref<Bf16> h, out;
};
struct GatherRows {  // out[i] = x[index[i]]
  int64_t count = 0, width = 0;
  Ref<int32_t> index;
  Ref<Bf16> x, out;
};
struct CheckFinite {  // a row whose fold weights are not finite is noted as a fault behind this layer
  int64_t rows = 0, layer = 0;
  Ref<float> pre;
};

struct CheckLogits {  // a row of logits that is not finite is noted as a fault of row index[i]
  int64_t count = 0;
  Ref<int32_t> index;
  Ref<float> logits;
};

// ---- products and what prepares them
// ----------------------------------------------------------------------------------

struct InputRows {
  Ref<Bf16> values;
  Ref<Int8Block> int8;  // where it exists, FP4 weights read it instead
  int64_t count = 0, stride = 0;
};
struct Product {  // y = W x, to one of the two
  MatrixRef weights;
  InputRows x;
  Ref<float> f32;
  Ref<Bf16> bf16;
  int64_t stride = 0;
};
struct Products {  // of the same rows, beside each other
  std::array<Product, 2> list;
  int count = 0;
};
struct NormRows {  // out = norm(x), which may be the same rows, and its operands
  NormRef norm;
  int64_t rows = 0, width = 0;
  Ref<Bf16> x, out;
  OperandRefs operands;
};
struct MakeOperands {  // of rows that stay as they are; paired rows have an even stride
  int64_t rows = 0, width = 0;
  Ref<Bf16> x;
  OperandRefs operands;
};

// ---- attention
// --------------------------------------------------------------------------------------------------------

enum class Half : uint8_t { kEncoder, kDecoder };

struct SetAngles {  // cos and sin of the rows' positions, for the rotations that follow
  RopeKind kind = RopeKind::kPlain;
};
struct WindowRows {  // norm, rotation, packing
  Block block = 0;
  int64_t rows = 0;
  Ref<Bf16> kv;
  Ref<std::byte> packed;
};
struct ListWindow {  // the window rows that each row sees: of its ring, and of this batch
  int64_t window_layer = 0;
  Half half = Half::kEncoder;
};
struct ListDraftWindow {  // of a DSpark stage: the ring, and all rows of the pass
  int64_t window_layer = 0;
};
struct ListCompressed {  // the selected rows of an earlier choice, in the blocks of a KV source
  int64_t group = 0;
};
struct Attend {  // per head: rotation, attention over the list, rotation back, operand
  Block block = 0;
  int64_t rows = 0;
  Ref<Bf16> q, o, o_paired;
};
struct GroupedOutput {  // z of group g = wo_a of g times the heads of g; Q8
  Block block = 0;
  int64_t rows = 0;
  Ref<Bf16> o_paired, z, z_quantized;
};
struct AttentionOutput {  // y = wo_b z; leaves
  Block block = 0;
  LeaveSublayer leave;
  InputRows z;
};
struct StoreWindow {  // the packed rows into the rings
  int64_t window_layer = 0;
  Ref<std::byte> packed;
};

// ---- compressor and index
// ---------------------------------------------------------------------------------------------

struct ListLatents {  // the rows that finish a latent, and the angles of their groups
  int64_t ratio = 1;
};
struct PoolPairs {  // through the rings, row after row
  int64_t pair_group = 0, rows = 0, latents = 0;
  Ref<float> values, gates;
  Ref<Bf16> out;
};
struct PackLatents {  // norm of the keys, rotation, packing into the blocks
  Block block = 0;
  int64_t group = 0, ratio = 1, latents = 0;
  Ref<Bf16> rows, keys;
};
struct IndexQuery {  // rotation, Q4i; weights of the heads
  int64_t rows = 0;
  Ref<Bf16> query_bf16, weights_bf16;
  Ref<float> query, weights;
};
struct SelectRows {  // scores, candidate blocks, the list of every row
  int64_t group = 0, ratio = 1, rows = 0;
  bool picks_candidates = false, uses_candidates = false, wants_margin = false;
  Ref<float> query, weights;
};

// ---- experts
// ----------------------------------------------------------------------------------------------------------

struct Route {
  Block block = 0;
  int64_t rows = 0;
  Ref<float> logits;
  Ref<int32_t> ids;    // [rows][k]
  Ref<float> weights;  // [rows][k]
};
// What stands on the slots of a layer. A slot is one (token, chosen expert), sorted by expert, then token; the shared
// expert's slots, one a token, stand behind them.
struct ExpertWork {
  Block block = 0;
  int64_t rows = 0, experts_per_token = 0;
  InputRows x;
  Ref<int32_t> ids;
  Ref<float> weights;
};
struct DispatchExperts {  // slots of the chosen experts; the ops below work on them
  ExpertWork work;
};
struct ExpertUp {  // gate, up, SwiGLU and operand, of the chosen experts or of the shared one
  Block block = 0;
  bool shared = false;
  int64_t rows = 0;
};
struct ExpertDown {  // down products, and y = their sum, token by token: ascending by expert, then the shared one;
                     // leaves
  Block block = 0;
  LeaveSublayer leave;
  int64_t rows = 0;
};

// ---- Engram
// -----------------------------------------------------------------------------------------------------------

struct HashEngram {    // rows of the tables for each row
  int64_t engram = 0;  // of engram_layer_ids
};
struct GatherEngram {
  Block block = 0;
  int64_t count = 0;
  Ref<int64_t> rows;
  Ref<Bf16> out;
};
struct EngramGate {
  Block block = 0;
  int64_t rows = 0;
  Ref<Bf16> key_value, h;
};

// ---- DSpark
// -----------------------------------------------------------------------------------------------------------

struct GatherMarkov {  // of the k-th draft of each start: [x; embedding of the id before it], and that embedding alone
  int64_t count = 0, draft = 0;
  Ref<int32_t> ids;  // [count]
  Ref<Bf16> x, features, rows;
};
struct AddMarkov {  // to the k-th row of logits of each start
  int64_t count = 0, draft = 0;
  Ref<float> markov, logits;
};

using Op = std::variant<EnterSublayer, Embed, FoldRows, GatherRows, CheckLogits, GatherMarkov, AddMarkov, MeanOfStreams,
                        CheckFinite, Products, NormRows, MakeOperands, SetAngles, WindowRows, ListWindow,
                        ListDraftWindow, ListCompressed, Attend, GroupedOutput, AttentionOutput, StoreWindow,
                        ListLatents, PoolPairs, PackLatents, IndexQuery, SelectRows, Route, DispatchExperts, ExpertUp,
                        ExpertDown, HashEngram, GatherEngram, EngramGate>;

// Its name, for whoever watches.
std::string_view op_name(const Op& op);

}  // namespace deepinfer
