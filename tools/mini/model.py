"""DeepSeek-V4.1 architecture in JAX: one position-wise forward for training, export checks and golden data.

Parameters are a flat dict with the checkpoint's tensor names (fp32, `[out, in]`); routed experts are stacked
(`layers.0.ffn.experts.w1.weight` is `[E, I, D]`). Batches are `[B, T]` token ids with `seg` numbers: several
documents may share a row, a document starts at an even position, `seg < 0` is padding.
"""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

import quant as Q

NEG = -1e30
INDEX_EVERY = 2   # the indexer's loss looks at every second position
fast = None   # the module fast.py where the trainer uses its C++ kernels


@dataclasses.dataclass(frozen=True)
class Mode:
    """What a forward simulates. Training starts with all False."""
    weights: bool = False    # FP8 / FP4 weights
    caches: bool = False     # window rows Q8, compressed rows Q4k, index vectors Q4i
    acts: bool = False       # Q8 activations and every bf16 rounding
    restrict: bool = False   # true top-k
    candidates: bool = True  # and candidate blocks
    index_loss: bool = False # collect the indexer's KL loss
    exact_topk: bool = False # break ties as the engine does (slower)
    collect: bool = False    # return intermediates


class Config:
    """The values of config.json that the forward needs."""

    def __init__(self, raw):
        t = raw["text_config"]
        self.raw = raw
        self.__dict__.update({k: v for k, v in t.items() if not isinstance(v, dict)})
        self.yarn = t["rope_scaling"]
        self.n_layers = t["num_hidden_layers"]
        self.D, self.H, self.Dh, self.Dr = (t["hidden_size"], t["num_attention_heads"], t["head_dim"],
                                            t["qk_rope_head_dim"])
        self.W, self.I, self.Di, self.Hi = (t["sliding_window"], t["moe_intermediate_size"], t["index_head_dim"],
                                            t["index_n_heads"])
        self.S = t["hc_mult"]

    def source(self, ids, layer):
        """Nearest source layer at or before `layer`."""
        return max(i for i in ids if i <= layer)


# ---------------------------------------------------------------- parameters

def block_shapes(cfg, pre, layer=None):
    """Names and shapes of one block (`layers.L.` or `mtp.S.`)."""
    D, I, S = cfg.D, cfg.I, cfg.S
    E = cfg.n_routed_experts if layer is not None else cfg.dspark_n_routed_experts
    mix = (2 + S) * S
    out = {}
    for part in ("attn", "ffn"):
        out[f"hc_{part}_fn"], out[f"hc_{part}_base"], out[f"hc_{part}_scale"] = (mix, S * D), (mix,), (3,)
    g, r = cfg.o_groups, cfg.o_lora_rank
    out |= {"attn.attn_sink": (cfg.H,), "attn.wq_a.weight": (cfg.q_lora_rank, D), "attn.q_norm.weight": (cfg.q_lora_rank,),
            "attn.wq_b.weight": (cfg.H * cfg.Dh, cfg.q_lora_rank), "attn.wkv.weight": (cfg.Dh, D),
            "attn.kv_norm.weight": (cfg.Dh,), "attn.wo_a.weight": (g * r, cfg.H * cfg.Dh // g),
            "attn.wo_b.weight": (D, g * r), "attn_norm.weight": (D,), "ffn_norm.weight": (D,),
            "ffn.gate.weight": (E, D), "ffn.gate.bias": (E,)}
    for w, shape in (("w1", (I, D)), ("w2", (D, I)), ("w3", (I, D))):
        out[f"ffn.experts.{w}.weight"] = (E,) + shape
        out[f"ffn.shared_experts.{w}.weight"] = shape
    if layer is not None:
        if layer in cfg.kv_source_layer_ids:
            out |= {"attn.compressor.wkv.weight": (cfg.Dh, D), "attn.compressor.norm.weight": (cfg.Dh,),
                    "attn.indexer.wk.weight": (cfg.Di, cfg.Dh), "attn.indexer.k_norm.weight": (cfg.Di,)}
            if cfg.compress_ratios[layer] == 2:
                out["attn.compressor.wgate.weight"] = (cfg.Dh, D)
        if layer in cfg.index_source_layer_ids:
            out |= {"attn.indexer.wq_b.weight": (cfg.Hi * cfg.Di, cfg.q_lora_rank),
                    "attn.indexer.weights_proj.weight": (cfg.Hi, D)}
        if layer in cfg.engram_layer_ids:
            cols = (cfg.engram_max_ngram_size - 1) * cfg.engram_n_heads
            rows = cfg.engram_num_embeddings[cfg.engram_layer_ids.index(layer)]
            out |= {"engram.embed.weight": (rows, cfg.engram_head_dim),
                    "engram.wkv.weight": ((S + 1) * D, cols * cfg.engram_head_dim),
                    "engram.q_weight": (S, D), "engram.k_weight": (S, D)}
    return {pre + k: v for k, v in out.items()}


def shapes(cfg):
    """All parameters of the model."""
    V, D = cfg.vocab_size, cfg.D
    out = {"embed.weight": (V, D), "head.weight": (V, D), "norm.weight": (D,)}
    for L in range(cfg.n_layers):
        out |= block_shapes(cfg, f"layers.{L}.", L)
    for s in range(cfg.num_nextn_predict_layers):
        out |= block_shapes(cfg, f"mtp.{s}.")
    last, rank = f"mtp.{cfg.num_nextn_predict_layers - 1}.", cfg.dspark_markov_rank
    out |= {"mtp.0.main_proj.weight": (D, D * len(cfg.dspark_target_layer_ids)), "mtp.0.main_norm.weight": (D,),
            last + "norm.weight": (D,), last + "markov_head.embed.weight": (V, rank),
            last + "markov_head.head.weight": (V, rank), last + "confidence_head.proj.weight": (1, D + rank)}
    return out


def kind(name):
    """Storage class of a tensor: fp8, fp4, rows8, bf16 or f32."""
    if "hc_" in name or "attn_sink" in name or "gate.bias" in name:
        return "f32"
    if ".ffn.experts." in name:
        return "fp4"
    if "engram.embed" in name:
        return "rows8"
    fp8 = ("attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b", "shared_experts", "engram.wkv",
           "indexer.wq_b", "main_proj")
    return "fp8" if any(f in name for f in fp8) else "bf16"


def init(cfg, seed):
    """Fresh parameters."""
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes(cfg).items():
        if name.endswith(("norm.weight", "q_weight", "k_weight")):
            v = np.ones(shape)
        elif name.endswith(("attn_sink", "gate.bias", "confidence_head.proj.weight")):
            v = np.zeros(shape)
        elif name.endswith("_base"):
            S = cfg.S
            mix = 3.0 * np.eye(S) + 0.1 * rng.standard_normal((S, S))
            v = np.concatenate([-1.1 + 0.5 * rng.standard_normal(S), 0.3 * rng.standard_normal(S), mix.ravel()])
        elif name.endswith("_scale"):
            v = np.full(shape, 0.1)
        elif name in ("embed.weight",):
            v = 0.5 * rng.standard_normal(shape)
        elif name == "head.weight":
            v = 0.02 * rng.standard_normal(shape)
        elif "markov_head" in name:
            v = 0.1 * rng.standard_normal(shape)
        elif "engram.embed" in name:
            v = 0.3 * rng.standard_normal(shape)
        else:
            v = rng.standard_normal(shape) / np.sqrt(shape[-1])
            if "wo_b" in name or ".w2." in name or "engram.wkv" in name:
                v *= 0.5
        out[name] = v.astype(np.float32)
    return out


def quantized(params):
    """The parameters as the checkpoint will hold them, straight-through."""
    table = {"fp8": Q.w8, "fp4": Q.w4, "rows8": Q.rows8, "bf16": Q.bf16, "f32": lambda x: x}
    return {k: table[kind(k)](v) for k, v in params.items()}


# ---------------------------------------------------------------- pieces

def rms_norm(x, w, mode):
    if fast and not mode.acts:
        return fast.rms_norm(x, w)
    y = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-20) * w
    return Q.bf16(y) if mode.acts else y


def linear(w, x, mode, act=True):
    """y = W x; `act` says that the checkpoint's rule quantizes the input to Q8."""
    if mode.acts and act:
        x = Q.q8(x)
    y = jax.lax.dot_general(x, w, (((x.ndim - 1,), (1,)), ((), ())))
    return Q.bf16(y) if mode.acts else y


@functools.lru_cache(None)
def rope_tables(dim, rd, theta, yarn, positions):
    """cos and sin over all `dim` channels (ones and zeros before the rotary part) and the pair-swap matrix."""
    i = np.arange(rd // 2, dtype=np.float32)
    f = (1.0 / np.power(np.float32(theta), 2 * i / np.float32(rd))).astype(np.float32)
    if yarn:
        factor, fast, slow, orig = yarn
        corr = lambda n: rd * np.log(orig / (n * 2 * np.pi)) / (2 * np.log(theta))
        low, high = max(np.floor(corr(fast)), 0), min(np.ceil(corr(slow)), rd - 1)
        if low == high:
            high += 0.001
        ramp = np.clip((i - low) / (high - low), 0, 1).astype(np.float32)
        f = (f / np.float32(factor) * ramp + f * (1 - ramp)).astype(np.float32)
    start, count, step = positions
    ang = (np.arange(start, start + count * step, step).astype(np.float32)[:, None] * f).astype(np.float32)
    cos, sin = np.ones((count, dim), np.float32), np.zeros((count, dim), np.float32)
    cos[:, dim - rd:] = np.repeat(np.cos(ang), 2, 1)
    sin[:, dim - rd:] = np.repeat(np.sin(ang), 2, 1)
    swap = np.zeros((dim, dim), np.float32)
    for k in range(dim - rd, dim, 2):
        swap[k + 1, k], swap[k, k + 1] = -1, 1   # (a, b) -> (-b, a)
    return cos, sin, swap


class Rope:
    """Rotation tables of one kind (plain or compress) for vectors of width `dim`."""

    def __init__(self, cfg, dim, compress, count, step=1):
        y = cfg.yarn
        yarn = (y["factor"], y["beta_fast"], y["beta_slow"], y["original_max_position_embeddings"]) if compress else None
        theta = cfg.compress_rope_theta if compress else cfg.rope_theta
        self.cos, self.sin, self.swap = rope_tables(dim, cfg.Dr, float(theta), yarn, (0, count, step))

    def __call__(self, x, mode, inverse=False, at=None):
        """x is [B, T, dim] or [B, T, H, dim]; `at` picks table rows instead of 0..T-1."""
        cos, sin = (self.cos, self.sin) if at is None else (jnp.asarray(self.cos)[at], jnp.asarray(self.sin)[at])
        if x.ndim == cos.ndim + 2 or (at is not None and x.ndim == cos.ndim + 1):
            cos, sin = cos[..., None, :], sin[..., None, :]
        y = x * cos + (x @ self.swap) * (-sin if inverse else sin)
        return Q.bf16(y) if mode.acts else y


def sinkhorn(c):
    """[S, S, N] logits -> doubly stochastic matrices; 20 rounds, gradients through the rounds."""
    if fast:   # takes a multiple of 16 tokens
        pad = -c.shape[-1] % 16
        return fast.sinkhorn(jnp.pad(c, ((0, 0), (0, 0), (0, pad))))[..., :c.shape[-1]]
    c = jnp.exp(c - jax.lax.stop_gradient(c.max(1, keepdims=True)))
    c = c / c.sum(1, keepdims=True) + 1e-6
    c = c / (c.sum(0, keepdims=True) + 1e-6)

    def one(c, _):
        c = c / (c.sum(1, keepdims=True) + 1e-6)
        return c / (c.sum(0, keepdims=True) + 1e-6), None
    return jax.lax.scan(one, c, None, length=19)[0]


def mix(p, pre, part, h):
    """Weights A [S, N], P [S, N], C [S, S, N] of one sublayer from the streams h [N, S, D]."""
    fn, base, scale = (p[f"{pre}hc_{part}_{k}"] for k in ("fn", "base", "scale"))
    N, S, D = h.shape
    x = h.reshape(N, S * D)
    rho = jax.lax.rsqrt(jnp.mean(x * x, -1) + 1e-20)
    m = jax.lax.dot_general(fn, x, (((1,), (1,)), ((), ()))) * rho
    A = jax.nn.sigmoid(m[:S] * scale[0] + base[:S, None]) + 1e-6
    P = 2 * jax.nn.sigmoid(m[S:2 * S] * scale[1] + base[S:2 * S, None])
    C = sinkhorn((m[2 * S:] * scale[2] + base[2 * S:, None]).reshape(S, S, N))
    return A, P, C


def fold(h, w, mode):
    if fast and not mode.acts:
        return fast.fold(h, w)
    x = sum(w[i][:, None] * h[:, i] for i in range(h.shape[1]))
    return Q.bf16(x) if mode.acts else x


def unfold(y, h, P, C, mode):
    if fast and not mode.acts:
        return fast.unfold(y, h, P, C)
    Ct = C.transpose(2, 0, 1)
    s = sum(Ct[:, i, :, None] * h[:, i:i + 1] for i in range(h.shape[1]))
    out = P.T[:, :, None] * y[:, None] + s
    return Q.bf16(out) if mode.acts else out


def route(p, pre, x, k):
    """Dense routing weights [N, E] (0 for experts not chosen), chosen mask."""
    z = jax.lax.dot_general(x, p[pre + "ffn.gate.weight"], (((1,), (1,)), ((), ())))
    s = jnp.sqrt(jax.nn.softplus(z))
    v = jax.lax.stop_gradient(s + p[pre + "ffn.gate.bias"])
    E = v.shape[-1]
    earlier = np.arange(E)[:, None] < np.arange(E)[None]
    ahead = (v[:, :, None] > v[:, None, :]) | ((v[:, :, None] == v[:, None, :]) & earlier)
    chosen = ahead.sum(1) < k
    w = jnp.where(chosen, s, 0.0)
    return w / (w.sum(-1, keepdims=True) + 1e-20), chosen, v


def moe(cfg, p, pre, x, k, mode):
    """Routed and shared experts; all experts are computed and the ones not chosen get weight 0."""
    w, chosen, biased = route(p, pre, x, k)
    w = w * cfg.routed_scaling_factor
    E = w.shape[-1]
    ew = {n: p[f"{pre}ffn.experts.{n}.weight"] for n in ("w1", "w2", "w3")}
    sw = {n: p[f"{pre}ffn.shared_experts.{n}.weight"] for n in ("w1", "w2", "w3")}
    D, I = cfg.D, cfg.I
    if fast and not mode.acts:
        each = [jnp.concatenate([ew[n], sw[n][None]]) for n in ("w1", "w2", "w3")]
        y = fast.experts(cfg.swiglu_limit, x, jnp.concatenate([w, jnp.ones_like(w[:, :1])], 1), *each)
        return y, {"w": w, "chosen": chosen, "biased": biased}
    up = jnp.concatenate([ew["w1"].reshape(E * I, D), sw["w1"], ew["w3"].reshape(E * I, D), sw["w3"]])
    gu = linear(up, x, mode)
    n = (E + 1) * I
    g, u = jnp.minimum(gu[:, :n], cfg.swiglu_limit), jnp.clip(gu[:, n:], -cfg.swiglu_limit, cfg.swiglu_limit)
    a = (jax.nn.silu(g) * u).reshape(-1, E + 1, I)
    a = a * jnp.concatenate([w, jnp.ones_like(w[:, :1])], 1)[:, :, None]
    if mode.acts:
        a = Q.q8(Q.bf16(a))
        each = [jax.lax.dot_general(a[:, e], ew["w2"][e] if e < E else sw["w2"], (((1,), (1,)), ((), ())))
                for e in range(E + 1)]
        y = Q.bf16(sum(Q.bf16(v) for v in each))
    else:
        down = jnp.concatenate([ew["w2"], sw["w2"][None]])
        y = jax.lax.dot_general(a, down, (((1, 2), (0, 2)), ((), ())))
    return y, {"w": w, "chosen": chosen, "biased": biased}


# ---------------------------------------------------------------- attention

class Layout:
    """Masks and rotation tables of one [B, T] batch."""

    def __init__(self, cfg, seg):
        B, T = seg.shape
        self.B, self.T = B, T
        self.bq = min(64, cfg.W)
        prev = cfg.W // self.bq
        self.nb = T // self.bq
        self.prev = prev
        t = np.arange(T).reshape(self.nb, self.bq)
        key = (np.arange(self.nb)[:, None] - prev) * self.bq + np.arange((prev + 1) * self.bq)
        near = (key[:, None] <= t[:, :, None]) & (t[:, :, None] - key[:, None] < cfg.W) & (key[:, None] >= 0)
        self.window_column = np.maximum(key[:, None] - np.maximum(t[:, :, None] - cfg.W + 1, 0), 0)
        segk = seg[:, np.maximum(key, 0)]
        self.window = near & (segk[:, :, None] == seg.reshape(B, self.nb, self.bq)[..., None])
        self.visible = {}
        for r in (1, 2):
            j = np.arange(T // r)
            self.visible[r] = ((j * r + r - 1)[None, None] <= np.arange(T)[None, :, None]) & \
                              (seg[:, None, ::r][:, :, :T // r] == seg[:, :, None])
        at = np.arange(T, dtype=np.int32)
        new = jnp.concatenate([jnp.ones((B, 1), bool), seg[:, 1:] != seg[:, :-1]], 1)
        self.start = jax.lax.cummax(jnp.where(new, at, 0), axis=1)
        self.rope = {c: Rope(cfg, cfg.Dh, c, T) for c in (False, True)}
        self.rope_rows = {r: Rope(cfg, cfg.Dh, True, T // r, r) for r in (1, 2)}
        self.rope_index = Rope(cfg, cfg.Di, True, T)
        self.rope_keys = {r: Rope(cfg, cfg.Di, True, T // r, r) for r in (1, 2)}

    def blocks(self, kv):
        """Window keys of every query block: [B, T, d] -> [B, nb, (prev+1)*bq, d]."""
        k = jnp.pad(kv, ((0, 0), (self.prev * self.bq, 0), (0, 0))).reshape(self.B, self.nb + self.prev, self.bq, -1)
        return jnp.concatenate([k[:, i:i + self.nb] for i in range(self.prev + 1)], 2)


def top_rows(score, visible, k, exact):
    """Mask of the k best visible rows (all visible ones if fewer)."""
    R = score.shape[-1]
    if R <= k:
        return visible
    s = jnp.where(visible, score, NEG)
    if exact:   # ties to the smaller row, as lax.top_k does
        idx = jax.lax.top_k(s, k)[1]
        hit = jnp.zeros(s.shape, bool)
        b, t = jnp.indices(s.shape[:2], sparse=True)
        return hit.at[b[..., None], t[..., None], idx].set(True) & visible
    return (s >= jax.lax.top_k(s, k)[0][..., -1:]) & visible


def candidates(cfg, score, visible):
    """Rows that lie in the best blocks; the block with the newest row is always kept."""
    B, T, R = score.shape
    size, keep = cfg.candidate_block_size, cfg.candidate_topk_blocks
    nblk = -(-R // size)
    if nblk <= keep:
        return visible
    pad = ((0, 0), (0, 0), (0, nblk * size - R))
    vis = jnp.pad(visible, pad)
    best = jnp.where(vis, jnp.pad(score, pad), NEG).reshape(B, T, nblk, size).max(-1)
    newest = (jnp.where(vis, jnp.arange(nblk * size), -1).max(-1, keepdims=True) // size) == jnp.arange(nblk)
    best = jnp.where(newest, 1e30, best)
    kept = top_rows(best, best > NEG, keep, True)
    return jnp.repeat(kept, size, -1)[..., :R] & visible


def indexer(cfg, p, pre, L, x, lay, state, mode):
    """Queries of an index source; updates the selection (and candidates) in `state`. Its loss trains the query latent too."""
    r = cfg.compress_ratios[L]
    keys = state["ik"][cfg.source(cfg.kv_source_layer_ids, L)]
    B, T = lay.B, lay.T
    sg = jax.lax.stop_gradient
    qr = rms_norm(linear(p[pre + "attn.wq_a.weight"], sg(x), mode), sg(p[pre + "attn.q_norm.weight"]), mode)
    q = linear(p[pre + "attn.indexer.wq_b.weight"], qr, mode).reshape(B, T, cfg.Hi, cfg.Di)
    q = lay.rope_index(q, mode)
    if mode.caches:
        q = Q.q4i(q)
    w = linear(p[pre + "attn.indexer.weights_proj.weight"], sg(x), mode, act=False) * (cfg.Di * cfg.Hi) ** -0.5
    query = (q, w.reshape(B, T, cfg.Hi), keys)
    state["index"], state["mass"], state["sel"] = state["index"] + [query], state["mass"] + [0.0], lay.visible[r]
    if not mode.restrict:
        return
    source = cfg.candidate_source_layer_id
    later = source is not None and L > source and mode.candidates
    if fast:
        state["sel"], near = fast.select(*(sg(v) for v in query), lay.start,
                                         state["cand"] if later else jnp.zeros((B, T, 0), bool), cfg.index_topk,
                                         cfg.candidate_topk_blocks if L == source else 0, cfg.candidate_block_size)
        if L == source:
            state["cand"] = near
        return
    s = sg(index_scores(*query))
    if L == source:
        state["cand"] = candidates(cfg, s, lay.visible[r])
    state["sel"] = top_rows(s, state["cand"] if later else lay.visible[r], cfg.index_topk, mode.exact_topk)


def index_scores(q, w, keys):
    """Scores [B, P, R] of queries q [B, P, Hi, Di] with head weights w [B, P, Hi]."""
    d = jnp.einsum("bqd,bkd->bqk", q.reshape(q.shape[0], -1, q.shape[-1]), keys).reshape(w.shape + (-1,))
    return (jax.nn.relu(d) * w[..., None]).sum(2)


def index_kl(query, mass, visible, lay):
    """KL(attention mass || softmax(score)) over visible rows, weighted mean over the looked-at positions that see two or
    more."""
    q, w, keys = query[0][:, ::INDEX_EVERY], query[1][:, ::INDEX_EVERY], query[2]
    visible, focus = visible[:, ::INDEX_EVERY], lay.focus[:, ::INDEX_EVERY]
    if fast:
        return fast.index_loss(q, w, keys, lay.start, mass, focus)
    some = jnp.where(visible.sum(-1) > 1, focus, 0.0)
    target = mass / jnp.maximum(mass.sum(-1, keepdims=True), 1e-9)
    logp = jax.nn.log_softmax(jnp.where(visible, index_scores(q, w, keys), NEG))
    kl = (target * (jnp.log(jnp.maximum(target, 1e-9)) - jnp.where(visible, logp, 0.0))).sum(-1)
    return (kl * some).sum() / some.sum()


def index_losses(cfg, state, lay):
    """One KL for every index source; what later sources need has to be among the candidates of theirs."""
    out = []
    for i, L in enumerate(cfg.index_source_layer_ids):
        mass = state["mass"][i]
        if L == cfg.candidate_source_layer_id:   # its own layers bear a miss better
            mass = 0.25 * mass + sum(state["mass"][i + 1:])
        out.append(index_kl(state["index"][i], mass, lay.visible[cfg.compress_ratios[L]], lay))
    return out


def attention(cfg, p, pre, L, x, lay, state, mode, out):
    """Attention of a backbone layer for x [N, D]."""
    B, T, r = lay.B, lay.T, cfg.compress_ratios[L]
    rope = lay.rope[r > 0]
    qr = rms_norm(linear(p[pre + "attn.wq_a.weight"], x, mode), p[pre + "attn.q_norm.weight"], mode)
    q = rope(linear(p[pre + "attn.wq_b.weight"], qr, mode).reshape(B, T, cfg.H, cfg.Dh), mode)
    kv = rms_norm(linear(p[pre + "attn.wkv.weight"], x, mode), p[pre + "attn.kv_norm.weight"], mode)
    kv = rope(kv.reshape(B, T, cfg.Dh), mode)
    if mode.caches:
        kv = Q.q8(kv)
    if L in cfg.kv_source_layer_ids:
        compress(cfg, p, pre, L, x, lay, state, mode)
    if L in cfg.index_source_layer_ids and (mode.restrict or mode.index_loss or mode.collect):
        indexer(cfg, p, pre, L, x, lay, state, mode)

    sink = p[pre + "attn.attn_sink"]
    ck = state["ck"][cfg.source(cfg.kv_source_layer_ids, L)] if r else None
    if fast:
        chosen = state["sel"] if r and mode.restrict else jnp.zeros((B, T, 0), bool)
        every = INDEX_EVERY if r and mode.index_loss else 0
        o, mass = fast.attend(cfg.W, every, q, kv, jnp.zeros((B, 0, cfg.Dh)) if ck is None else ck, sink, lay.start, chosen)
    else:
        o, mass = plain_attend(cfg, q, kv, ck, sink, lay, (state["sel"] if mode.restrict else lay.visible[r]) if r else None,
                               mode)
    if r and mode.index_loss:
        state["mass"] = state["mass"][:-1] + [state["mass"][-1] + jax.lax.stop_gradient(mass)]
    if mode.acts:
        o = Q.bf16(o)
    if mode.collect:
        out["win"].append(kv)
    o = rope(o, mode, inverse=True)
    return project_out(cfg, p, pre, o.reshape(B * T, -1), mode)


def plain_attend(cfg, q, kv, ck, sink, lay, sel, mode):
    """Outputs [B, T, H, Dh] of window rows `kv` and compressed rows `ck` (or None); the rows' shares if the mode wants."""
    B, T = lay.B, lay.T
    scale, mass = cfg.Dh ** -0.5, None
    kw = lay.blocks(kv)
    sw = jnp.einsum("bnqd,bnkd->bnqk", q.reshape(B, lay.nb, lay.bq * cfg.H, cfg.Dh) * scale, kw)
    sw = sw.reshape(B, lay.nb, lay.bq, cfg.H, -1)
    sw = jnp.where(lay.window[:, :, :, None], sw, NEG)
    top = sw.max(-1).reshape(B, T, cfg.H)
    if not mode.acts:   # the rounded form takes probabilities relative to the best entry, the sink enters last
        top = jnp.maximum(top, sink)
    if ck is not None:
        sc = jnp.einsum("bqd,bkd->bqk", q.reshape(B, T * cfg.H, cfg.Dh) * scale, ck).reshape(B, T, cfg.H, -1)
        sc = jnp.where(sel[:, :, None], sc, NEG)
        top = jnp.maximum(top, sc.max(-1))
    top = jax.lax.stop_gradient(top)
    wtop = top.reshape(B, lay.nb, lay.bq, cfg.H, 1)
    pw = jnp.exp(sw - wtop)
    den = pw.sum(-1).reshape(B, T, cfg.H) + jnp.exp(sink - top)
    if ck is not None:
        pc = jnp.exp(sc - top[..., None])
        den = den + pc.sum(-1)
    if mode.acts:   # the reference multiplies rows by bf16 probabilities, the denominator stays fp32
        if mode.exact_topk:
            pw, pc = round_by_chunk(cfg, lay, sw, top, (sc, sel) if ck is not None else None)
        else:
            pw, pc = Q.bf16(pw), Q.bf16(pc) if ck is not None else None
    o = jnp.einsum("bnqk,bnkd->bnqd", pw.reshape(B, lay.nb, lay.bq * cfg.H, -1), kw).reshape(B, T, cfg.H, cfg.Dh)
    if ck is not None:
        o = o + jnp.einsum("bqk,bkd->bqd", pc.reshape(B, T * cfg.H, -1), ck).reshape(o.shape)
        mass = (pc / den[..., None]).sum(2)[:, ::INDEX_EVERY] if mode.index_loss else None
    return o / den[..., None], mass


def round_by_chunk(cfg, lay, sw, top, compressed):
    """Probabilities of window and compressed scores as the engine rounds them: to bf16, relative to the maximum up to the
    end of their chunk of 64 columns (window rows oldest first, compressed rows from column W on), then rescaled to `top`."""
    B, T, H = lay.B, lay.T, cfg.H
    shape = (B, lay.nb, lay.bq, H)
    cw = jnp.asarray(lay.window_column // 64)[None, :, :, None]
    if compressed:
        sc, sel = compressed
        cc = ((cfg.W + jnp.cumsum(sel, -1) - 1) // 64)[:, :, None]
    best, own_w, own_c = jnp.full((B, T, H), NEG), NEG, NEG
    for c in range(-(-(cfg.W + (cfg.index_topk if compressed else 0)) // 64)):
        best = jnp.maximum(best, jnp.where(cw == c, sw, NEG).max(-1).reshape(B, T, H))
        if compressed:
            best = jnp.maximum(best, jnp.where(cc == c, sc, NEG).max(-1))
            own_c = jnp.where(cc == c, best[..., None], own_c)
        own_w = jnp.where(cw == c, best.reshape(shape + (1,)), own_w)
    scaled = lambda s, own, top: Q.bf16(jnp.exp(s - own)) * jnp.exp(jnp.minimum(own - top, 0))
    pw = scaled(jnp.where(sw > NEG, sw, 2 * NEG), own_w, top.reshape(shape + (1,)))
    if not compressed:
        return pw, None
    return pw, scaled(jnp.where(sel[:, :, None], sc, 2 * NEG), own_c, top[..., None])


def project_out(cfg, p, pre, o, mode):
    """Grouped first projection (no activation quantization), then wo_b."""
    g = cfg.o_groups
    wa = p[pre + "attn.wo_a.weight"].reshape(g, cfg.o_lora_rank, -1)
    o = o.reshape(o.shape[0], g, -1)
    z = jnp.concatenate([jax.lax.dot_general(o[:, i], wa[i], (((1,), (1,)), ((), ()))) for i in range(g)], 1)
    return linear(p[pre + "attn.wo_b.weight"], Q.bf16(z) if mode.acts else z, mode)


def compress(cfg, p, pre, L, x, lay, state, mode):
    """Compressed rows and index keys of a KV source."""
    B, T, r = lay.B, lay.T, cfg.compress_ratios[L]
    a = jax.lax.dot_general(x, p[pre + "attn.compressor.wkv.weight"], (((1,), (1,)), ((), ())))
    if r == 2:
        g = jax.lax.dot_general(x, p[pre + "attn.compressor.wgate.weight"], (((1,), (1,)), ((), ())))
        a, g = (v.reshape(B, T // 2, 2, cfg.Dh) for v in (a, g))
        a = (jax.nn.softmax(g, axis=2) * a).sum(2)
    else:
        a = a.reshape(B, T, cfg.Dh)
    lat = rms_norm(Q.bf16(a) if mode.acts else a, p[pre + "attn.compressor.norm.weight"], mode)
    key = rms_norm(linear(p[pre + "attn.indexer.wk.weight"], jax.lax.stop_gradient(lat), mode, act=False),
                   p[pre + "attn.indexer.k_norm.weight"], mode)
    key = lay.rope_keys[r](key, mode)
    row = lay.rope_rows[r](lat, mode)
    if mode.caches:
        key, row = Q.q4i(key), Q.q4k(row)
    state["ck"][L], state["ik"][L] = row, key


# ---------------------------------------------------------------- Engram

def engram(cfg, p, pre, h, rows, mode):
    """Add the n-gram memory to the streams h [N, S, D]; rows are table rows [N, columns]."""
    N, S, D = h.shape
    e = p[pre + "engram.embed.weight"][rows].reshape(N, -1)
    kv = linear(p[pre + "engram.wkv.weight"], e, mode)
    key, value = kv[:, :S * D].reshape(N, S, D), kv[:, S * D:]
    rk = jax.lax.rsqrt(jnp.mean(h * h, -1) + 1e-20) * jax.lax.rsqrt(jnp.mean(key * key, -1) + 1e-20)
    dot = (h * (p[pre + "engram.q_weight"] * p[pre + "engram.k_weight"]) * key).sum(-1) * rk * D ** -0.5
    gate = jax.nn.sigmoid(jnp.copysign(jnp.sqrt(jnp.maximum(jnp.abs(dot), 1e-6)), dot))
    out = h + gate[..., None] * value[:, None]
    return Q.bf16(out) if mode.acts else out


# ---------------------------------------------------------------- whole model

def block(cfg, p, pre, h, fold_w, attend, k, mode, out):
    """One transformer block on the streams; returns new streams, next fold weights, routing info."""
    A, P, C = mix(p, pre, "attn", h)
    x = rms_norm(fold(h, fold_w, mode), p[pre + "attn_norm.weight"], mode)
    y = attend(x)
    h = unfold(y, h, P, C, mode)
    A2, P2, C2 = mix(p, pre, "ffn", h)
    x2 = rms_norm(fold(h, A, mode), p[pre + "ffn_norm.weight"], mode)
    y2, info = moe(cfg, p, pre, x2, k, mode)
    h = unfold(y2, h, P2, C2, mode)
    if mode.collect:
        for key, v in (("attn_in", x), ("attn_out", y), ("ffn_in", x2), ("ffn_out", y2), ("h_out", h),
                       ("pre_out", A2.T), ("route", info)):
            out[key].append(v)
    return h, A2, info


def streams(cfg, x):
    """Embedding rows -> (streams, one-hot fold weights)."""
    h = jnp.repeat(x[:, None], cfg.S, 1)
    return h, jnp.zeros((cfg.S, x.shape[0])).at[0].set(1.0)


def backbone(cfg, p, ids, seg, rows, mode, focus=None):
    """Final normed states [N, D], main_hidden [N, 3 D], and a dict with losses / intermediates.

    ids, seg: [B, T]; rows: [n_engram_layers, B, T, columns]; focus: [B, T] weights of the positions in the indexer's loss.
    """
    B, T = ids.shape
    lay = Layout(cfg, seg)
    lay.focus = jnp.ones((B, T)) if focus is None else focus
    out = {k: [] for k in ("win", "attn_in", "attn_out", "ffn_in", "ffn_out", "h_out", "pre_out", "route", "engram",
                           "sel", "main", "chosen")}
    state = {"ck": {}, "ik": {}, "index": [], "mass": []}
    h, fw = streams(cfg, p["embed.weight"][ids.reshape(-1)])
    for L in range(cfg.n_layers):
        pre = f"layers.{L}."
        if L in cfg.engram_layer_ids:
            i = cfg.engram_layer_ids.index(L)
            h = engram(cfg, p, pre, h, rows[i].reshape(B * T, -1), mode)
            if mode.collect:
                out["engram"].append(h)
        if L in cfg.dspark_target_layer_ids:
            main = h.mean(1)
            out["main"].append(Q.bf16(main) if mode.acts else main)
        attend = lambda x: attention(cfg, p, pre, L, x, lay, state, mode, out)
        h, fw, info = block(cfg, p, pre, h, fw, attend, cfg.num_experts_per_tok, mode, out)
        out["chosen"].append(info["chosen"].sum(0))
        if mode.collect and L in cfg.index_source_layer_ids:
            out["sel"].append(state["sel"])
    x = rms_norm(fold(h, fw, mode), p["norm.weight"], mode)
    out |= {"ck": state["ck"], "ik": state["ik"], "kl": index_losses(cfg, state, lay) if mode.index_loss else [],
            "cand": state.get("cand")}
    return x, jnp.concatenate(out["main"], -1), out


def logits(p, x):
    return jax.lax.dot_general(x, p["head.weight"], (((1,), (1,)), ((), ())))


# ---------------------------------------------------------------- DSpark

def dspark(cfg, p, main, ids, seg, anchors, mode):
    """Draft logits for blocks after anchor positions.

    main [B, T, 3 D]; anchors [B, A] positions p (p + 1 + block <= T - 1). Row k of a block predicts position p+2+k
    and reads the true token at p+1+k in its Markov term. Returns logits [B, A, block, V], confidence [B, A, block].
    """
    B, T = ids.shape
    A, nblk, H, Dh = anchors.shape[1], cfg.dspark_block_size, cfg.H, cfg.Dh
    mx = rms_norm(linear(p["mtp.0.main_proj.weight"], main.reshape(B * T, -1), mode), p["mtp.0.main_norm.weight"], mode)
    pos = anchors[..., None] + 1 + np.arange(nblk)                                    # [B, A, 5]
    b = np.arange(B)[:, None, None]
    known = ids[b, pos]
    x = jnp.concatenate([known[..., :1], jnp.full((B, A, nblk - 1), cfg.dspark_noise_token_id)], -1)
    h, fw = streams(cfg, p["embed.weight"][x.reshape(-1)])
    rope = Rope(cfg, Dh, False, T + nblk)
    ring = anchors[..., None] - np.arange(cfg.W)[::-1]                                # [B, A, W]
    ring_ok = (ring >= 0) & (seg[b, jnp.maximum(ring, 0)] == seg[b, anchors[..., None]])
    ring = jnp.maximum(ring, 0)
    mask = jnp.concatenate([ring_ok, jnp.ones((B, A, nblk), bool)], -1)
    last = f"mtp.{cfg.num_nextn_predict_layers - 1}."
    for s in range(cfg.num_nextn_predict_layers):
        pre = f"mtp.{s}."

        def rows_of(v, at):
            kv = rms_norm(linear(p[pre + "attn.wkv.weight"], v, mode), p[pre + "attn.kv_norm.weight"], mode)
            kv = rope(kv.reshape(at.shape + (Dh,)), mode, at=at)
            return Q.q8(kv) if mode.caches else kv

        def attend(x):
            qr = rms_norm(linear(p[pre + "attn.wq_a.weight"], x, mode), p[pre + "attn.q_norm.weight"], mode)
            q = linear(p[pre + "attn.wq_b.weight"], qr, mode).reshape(B, A, nblk, H, Dh)
            q = rope(q, mode, at=pos)
            own = rows_of(x, pos)
            all_rows = rows_of(mx, np.broadcast_to(np.arange(T), (B, T)))
            keys = jnp.concatenate([all_rows[b, ring], own], 2)                       # [B, A, W+5, Dh]
            sc = jnp.einsum("baqd,bakd->baqk", q.reshape(B, A, nblk * H, Dh) * Dh ** -0.5, keys)
            sc = jnp.where(mask[:, :, None], sc, NEG).reshape(B, A, nblk, H, -1)
            sink = p[pre + "attn.attn_sink"]
            top = jax.lax.stop_gradient(jnp.maximum(sc.max(-1), sink))
            pr = jnp.exp(sc - top[..., None])
            den = pr.sum(-1) + jnp.exp(sink - top)
            o = jnp.einsum("baqk,bakd->baqd", pr.reshape(B, A, nblk * H, -1), keys).reshape(B, A, nblk, H, Dh)
            o = o / den[..., None]
            o = rope(Q.bf16(o) if mode.acts else o, mode, inverse=True, at=pos)
            return project_out(cfg, p, pre, o.reshape(B * A * nblk, -1), mode)
        quiet = dataclasses.replace(mode, collect=False)
        h, fw, _ = block(cfg, p, pre, h, fw, attend, cfg.dspark_num_experts_per_tok, quiet, None)
    x = fold(h, fw, mode)
    base = logits(p, rms_norm(x, p[last + "norm.weight"], mode)).reshape(B, A, nblk, -1)
    e = p[last + "markov_head.embed.weight"][known]
    conf = (jnp.concatenate([x.reshape(B, A, nblk, -1), e], -1) @ p[last + "confidence_head.proj.weight"][0])
    return base + e @ p[last + "markov_head.head.weight"].T, conf
