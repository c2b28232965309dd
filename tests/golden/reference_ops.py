"""Golden data of single operations from seeds of one's choice: an independent reference in NumPy, in fp64.

    python reference_ops.py DIR [--seed N]

writes DIR/ops in the format of docs/verify.md: every op whose inputs come from the generator. It shares no code with the
engine; what it rounds, and where, is docs/numerics.md.
"""
import argparse
import json
import os

import numpy as np

HIDDEN, HEAD, INDEX_DIM, ROTARY, INNER = 5120, 512, 128, 64, 2304
EPS = 1e-20


# ---- generator ---------------------------------------------------------------------------------------------------------

def words(seed, count):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def cut(seed, count, dtype):
    per_word = 8 // np.dtype(dtype).itemsize
    return words(seed, -(-count // per_word)).view(dtype)[:count]


def bf16_bits(seed, e0, count):
    r = cut(seed, count, np.uint16)
    return (r & 0x8000) | ((e0 + ((r >> 7) & 7)) << 7).astype(np.uint16) | (r & 0x7F)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def gen_bf16(seed, e0, *shape):
    return widen(bf16_bits(seed, e0, int(np.prod(shape)))).reshape(shape)


def gen_f32(seed, shift, *shape):
    r = cut(seed, int(np.prod(shape)), np.uint32)
    return ((r >> 8).astype(np.float64) - 2.0 ** 23).reshape(shape) * 2.0 ** -shift


E4M3 = np.array([(-1.0) ** (c >> 7) * ((c & 7) * 2.0 ** -9 if (c >> 3) & 15 == 0 else
                                       (1 + (c & 7) / 8) * 2.0 ** (((c >> 3) & 15) - 7)) for c in range(256)])
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def gen_e4m3(seed, *shape):
    b = cut(seed, int(np.prod(shape)), np.uint8)
    return E4M3[(b & 0x80) | ((4 + ((b >> 3) & 7)) << 3) | (b & 7)].reshape(shape)


def gen_scales(seed, base, *shape):
    b = cut(seed, int(np.prod(shape)), np.uint8)
    return 2.0 ** (base + (b & 3).astype(np.float64) - 127).reshape(shape)


def fp8_matrix(seed, scale_seed, base, rows, cols):
    scales = gen_scales(scale_seed, base, rows // 32, cols // 32)
    return gen_e4m3(seed, rows, cols) * np.repeat(np.repeat(scales, 32, 0), 32, 1)


def fp4_matrix(seed, scale_seed, base, rows, cols):
    b = cut(seed, rows * cols // 2, np.uint8)
    codes = np.stack([b & 15, b >> 4], 1).reshape(rows, cols)
    return E2M1[codes] * np.repeat(gen_scales(scale_seed, base, rows, cols // 32), 32, 1)


# ---- rounding ----------------------------------------------------------------------------------------------------------

def f32(x):
    return np.asarray(x, np.float32).astype(np.float64)


def to_bf16_bits(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf(x):
    return widen(to_bf16_bits(x))


def to_grid(x, fraction_bits, lowest, largest):
    """Nearest number with so many fraction bits, ties to even; steps below 2^lowest stay those of 2^lowest."""
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-300))), lowest)
    step = 2.0 ** (exponent - fraction_bits)
    return np.clip(np.round(x / step) * step, -largest, largest)


def e4m3(x):
    return to_grid(np.clip(x, -448, 448), 3, -6, 448)


def e2m1(x):
    return to_grid(np.clip(x, -6, 6), 1, 0, 6)


def power_of_two_ceiling(x):
    mantissa, exponent = np.frexp(np.asarray(x, np.float32))
    return 2.0 ** np.where(mantissa == 0.5, exponent - 1, exponent)


def blocks(x, size):
    return x.reshape(*x.shape[:-1], -1, size)


def q8(x):
    b = blocks(x, 32)
    amax = np.maximum(np.abs(b).max(-1, keepdims=True), np.float64(np.float32(1e-4)))
    scale = power_of_two_ceiling(np.float32(amax) * (np.float32(1) / np.float32(448)))
    return (e4m3(b / scale) * scale).reshape(x.shape)


def q4i(x):
    b = blocks(x, 32)
    scale = power_of_two_ceiling(np.float32(np.abs(b).max(-1, keepdims=True)) * (np.float32(1) / np.float32(6)))
    return (e2m1(b / scale) * scale).reshape(x.shape)


def q4k(x):
    b = blocks(x, 16)
    scale = e4m3(f32(np.maximum(np.abs(b).max(-1, keepdims=True), 6 * 2.0 ** -9) / 6))
    return (e2m1(f32(b / scale)) * scale).reshape(x.shape)


def rms(x, weight):
    return bf(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- the ops -----------------------------------------------------------------------------------------------------------

class Tensors(dict):
    """Name -> (dtype, array) of one file; the three types that results have."""

    def bf16(self, name, x):
        self[name] = ("BF16", to_bf16_bits(x))

    def f32(self, name, x):
        self[name] = ("F32", np.asarray(x, np.float32))

    def i32(self, name, x):
        self[name] = ("I32", np.asarray(x, np.int32))

    def u8(self, name, x):
        self[name] = ("U8", np.asarray(x, np.uint8))


def rms_norm(s, t):
    exponents = [55, 75, 88, 92, 96, 120, 140]
    for i, size in enumerate((5120, 1280, 512, 128)):
        weight = np.abs(gen_bf16(s + 10 * i, 123, size))
        x = np.stack([gen_bf16(s + 10 * i + 1 + j, e0, size) for j, e0 in enumerate(exponents)] + [np.zeros(size)])
        t.bf16(f"y.{size}", rms(x, weight))
    return (f"size number i = 0..3 of (5120,1280,512,128): w = |bf16(seed {s}+10i, e0 123)|; rows j = 0..6 x = "
            f"bf16(seed {s}+10i+1+j, e0 = 55,75,88,92,96,120,140); row 7 zeros")


def frequencies(theta, yarn):
    i = np.arange(ROTARY // 2)
    f = f32(1 / f32(theta ** f32(2 * i / ROTARY)))
    if not yarn:
        return f
    channel = lambda turns: ROTARY * np.log(65536 / (turns * 2 * np.pi)) / (2 * np.log(theta))
    low, high = max(np.floor(channel(32)), 0), min(np.ceil(channel(1)), ROTARY - 1)
    ramp = f32(np.clip((i - low) / (high - low), 0, 1))
    return f32(f32(f32(f / 16) * ramp) + f32(f * f32(1 - ramp)))


def rotate(x, angles, sign=1):
    """x [rows, dim]: the last ROTARY channels of each row."""
    cos, sin = f32(np.cos(angles)), sign * f32(np.sin(angles))
    a, b = x[:, -ROTARY::2], x[:, 1 - ROTARY::2]
    out = x.copy()
    out[:, -ROTARY::2] = bf(f32(f32(a * cos) - f32(b * sin)))
    out[:, 1 - ROTARY::2] = bf(f32(f32(a * sin) + f32(b * cos)))
    return out


def angles_of(positions, f):
    return f32(np.asarray(positions, np.float64)[:, None] * f)


def rope(s, t):
    positions = np.array([0, 1, 2, 3, 127, 128, 4095, 65535, 65536, 500000, 1048575])
    t.i32("pos", positions)
    for kind, f in (("plain", frequencies(10000.0, False)), ("compress", frequencies(160000.0, True))):
        t.f32(f"{kind}.freq", f)
        t.f32(f"{kind}.cos", np.cos(angles_of(positions, f)))
        t.f32(f"{kind}.sin", np.sin(angles_of(positions, f)))
    x = gen_bf16(s + 1, 122, len(positions), ROTARY)
    t.bf16("compress.rotated", rotate(x, angles_of(positions, f))[None])
    t.bf16("compress.inverse", rotate(x, angles_of(positions, f), -1)[None])
    return f"x bf16(seed {s + 1}, e0 122) [1,len(pos),64]"


def mixes(m, base, scale):
    a = sigmoid(m[:, :4] * scale[0] + base[:4]) + 1e-6
    p = 2 * sigmoid(m[:, 4:8] * scale[1] + base[4:8])
    c = (m[:, 8:] * scale[2] + base[8:]).reshape(-1, 4, 4)
    c = np.exp(c - c.max(2, keepdims=True))
    c = c / c.sum(2, keepdims=True) + 1e-6
    c = c / (c.sum(1, keepdims=True) + 1e-6)
    for _ in range(19):
        c = c / (c.sum(2, keepdims=True) + 1e-6)
        c = c / (c.sum(1, keepdims=True) + 1e-6)
    return a, p, c


def hyper_connections(s, t):
    x = np.concatenate([gen_bf16(s, 122, 3, 4, HIDDEN), gen_bf16(s + 1, 84, 1, 4, HIDDEN)])
    fn, base = gen_f32(s + 2, 28, 24, 4 * HIDDEN), gen_f32(s + 3, 23, 24)
    scale, y = f32([0.7, 0.9, 1.1]), gen_bf16(s + 4, 121, 4, HIDDEN)
    flat = x.reshape(4, -1)
    m = flat @ fn.T / np.sqrt((flat * flat).mean(1, keepdims=True) + EPS)
    for prefix, numbers in (("", m), ("split.", gen_f32(s + 5, 22, 64, 24))):
        for name, values in zip("APC", mixes(numbers, base, scale)):
            t.f32(prefix + name, values)
    a, p, c = (f32(v) for v in mixes(m, base, scale))
    t.f32("scale", scale)
    t.f32("m", m)
    t.bf16("fold", np.einsum("ti,tid->td", a, x))
    t.bf16("unfold", p[:, :, None] * y[:, None] + np.einsum("tij,tid->tjd", c, x))
    return (f"x rows 0..2 bf16(seed {s}, e0 122) [3,4,5120], row 3 bf16(seed {s + 1}, e0 84) [1,4,5120]; fn f32(seed "
            f"{s + 2}, sh 28) [24,20480]; base f32(seed {s + 3}, sh 23) [24]; y bf16(seed {s + 4}, e0 121) [4,5120]; "
            f"split.*: m = f32(seed {s + 5}, sh 22) [64,24], same base and scale")


def router(s, t):
    for prefix, first, experts, k, images in (("backbone", s, 384, 6, 4), ("dspark", s + 10, 128, 3, 6)):
        x = gen_bf16(first + 1, 121, 6, HIDDEN)
        z = x @ gen_bf16(first, 115, experts, HIDDEN).T
        scores = np.sqrt(np.where(z > 20, z, np.log1p(np.exp(np.minimum(z, 20)))))
        bias = np.where(np.arange(6)[:, None] >= images, gen_f32(first + 3, 25, experts), gen_f32(first + 2, 25, experts))
        order = np.argsort(-(scores + bias), 1, kind="stable")
        sorted_scores = np.take_along_axis(scores + bias, order, 1)
        chosen = np.take_along_axis(scores, order[:, :k], 1)
        t.f32(prefix + ".z", z)
        t.f32(prefix + ".s", scores)
        t.i32(prefix + ".idx", order[:, :k])
        t.f32(prefix + ".w", chosen / (chosen.sum(1, keepdims=True) + 1e-20) * 1.5)
        t.f32(prefix + ".margin", sorted_scores[:, k - 1] - sorted_scores[:, k])
    return (f"backbone: W bf16(seed {s}, e0 115) [384,5120], x bf16(seed {s + 1}, e0 121) [6,5120], bias f32(seed {s + 2}, "
            f"sh 25), bias_vl f32(seed {s + 3}, sh 25) [384]; dspark: the same with seeds {s + 10}..{s + 13} and 128 "
            "experts, no image tokens")


def compressor(s, t):
    x = gen_bf16(s, 121, 9, HIDDEN)
    kv, gate = (f32(x @ gen_bf16(s + n, 114, HEAD, HIDDEN).T) for n in (1, 2))
    norm, k_norm = np.abs(gen_bf16(s + 3, 123, HEAD)), np.abs(gen_bf16(s + 5, 123, INDEX_DIM))
    wk = gen_bf16(s + 4, 117, INDEX_DIM, HEAD)
    t.f32("r2.pend_kv", kv[8])
    t.f32("r2.pend_gate", gate[8])
    weight = sigmoid(gate[0:8:2] - gate[1:8:2])
    pairs = bf(weight * kv[0:8:2] + (1 - weight) * kv[1:8:2])
    for prefix, ratio, latent in (("r2.", 2, rms(pairs, norm)), ("r1.", 1, rms(bf(kv), norm))):
        angles = angles_of(np.arange(len(latent)) * ratio, frequencies(160000.0, True))
        t.bf16(prefix + "latent", latent)
        t.bf16(prefix + "index_key", q4i(rotate(rms(bf(latent @ wk.T), k_norm), angles)))
        t.bf16(prefix + "row", q4k(rotate(latent, angles)))
    return (f"x bf16(seed {s}, e0 121) [9,5120]; wkv bf16(seed {s + 1}, e0 114), wgate bf16(seed {s + 2}, e0 114) [512,5120]; "
            f"norm |bf16(seed {s + 3}, e0 123)| [512]; wk bf16(seed {s + 4}, e0 117) [128,512]; k_norm |bf16(seed {s + 5}, "
            "e0 123)| [128]; positions from 0")


def indexer(s, t):
    q, k = q4i(gen_bf16(s, 122, 3, 32, INDEX_DIM)), q4i(gen_bf16(s + 1, 122, 700, INDEX_DIM))
    weights = gen_bf16(s + 2, 120, 3, 32) * 2.0 ** -6
    scores = np.einsum("th,thk->tk", weights, np.maximum(q @ k.T, 0))
    visible = np.array([700, 655, 513])
    top = [np.argsort(-row[:n], kind="stable")[:513] for row, n in zip(scores, visible)]
    t.i32("visible", visible)
    t.f32("f32.score", scores)
    t.i32("f32.top512", [np.sort(order[:512]) for order in top])
    t.f32("f32.margin", [row[order[511]] - row[order[512]] for row, order in zip(scores, top)])
    rows = gen_f32(s + 3, 20, 2, 20003)
    lengths, kept = np.array([20003, 17001]), np.zeros((2, 2501), np.uint8)
    for i, length in enumerate(lengths):
        best = np.full(-(-length // 8) * 8, -np.inf)
        best[:length] = rows[i, :length]
        best = best.reshape(-1, 8).max(1)
        best[-1] = np.inf
        kept[i, np.argsort(-best, kind="stable")[:2048]] = 1
    t.i32("cand.len", lengths)
    t.u8("cand.block_kept", kept)
    t.i32("cand.count", kept.sum(1))
    return (f"q bf16(seed {s}, e0 122) [3,32,128] then Q4i; k bf16(seed {s + 1}, e0 122) [700,128] then Q4i; w bf16(seed "
            f"{s + 2}, e0 120) [3,32] (before the factor 128^-0.5*32^-0.5); candidate scores f32(seed {s + 3}, sh 20) "
            "[2,20003]")


def sparse_attention(s, t):
    q, kv = gen_bf16(s, 124, 4, 64, HEAD), gen_bf16(s + 1, 121, 768, HEAD)
    sinks = gen_f32(s + 2, 21, 64)
    random = np.random.default_rng(s)
    lists = np.full((4, 640), -1, np.int32)
    for token, empty in enumerate((0, 0, 100, 320)):  # two full lists, two with gaps
        lists[token] = random.permutation(768)[:640]
        lists[token, random.permutation(640)[:empty]] = -1
    exact, rounded = np.zeros((4, 64, HEAD)), np.zeros((4, 64, HEAD))
    for token in range(4):
        present = lists[token] >= 0
        scores = np.where(present, q[token] @ kv[lists[token]].T / np.sqrt(HEAD), -np.inf)
        peak = np.maximum(scores.max(1), sinks)
        p = np.exp(scores - peak[:, None])
        exact[token] = p @ kv[lists[token]] / (p.sum(1) + np.exp(sinks - peak))[:, None]
        m, total, out = np.full(64, -np.inf), np.zeros(64), np.zeros((64, HEAD))
        for first in range(0, 640, 64):  # online, probabilities rounded relative to the maximum so far
            chunk = scores[:, first:first + 64]
            m_new = np.maximum(m, chunk.max(1))
            shrink = np.where(np.isinf(m), 0, np.exp(np.where(np.isinf(m), 0, m) - m_new))
            p = np.exp(chunk - m_new[:, None])
            total = total * shrink + p.sum(1)
            out = out * shrink[:, None] + bf(p) @ kv[lists[token, first:first + 64]]
            m = m_new
        rounded[token] = out / (total + np.exp(sinks - m))[:, None]
    t.i32("idx", lists)
    t.bf16("o", rounded)
    t.f32("o_exact", exact)
    return (f"q bf16(seed {s}, e0 124) [4,64,512]; kv bf16(seed {s + 1}, e0 121) [768,512]; sink f32(seed {s + 2}, sh 21) "
            "[64]; idx stored")


def heads(s, t):
    head, x = gen_bf16(s, 116, 4096, HIDDEN), gen_bf16(s + 1, 122, 2, HIDDEN)
    embedded, markov = gen_bf16(s + 2, 123, 5, 256), gen_bf16(s + 3, 119, 4096, 256)
    hidden, proj = gen_bf16(s + 4, 121, 5, HIDDEN), gen_bf16(s + 5, 116, HIDDEN + 256)
    t.f32("logits", x @ head.T)
    t.f32("markov_logits", embedded @ markov.T)
    t.f32("confidence", np.concatenate([hidden, embedded], 1) @ proj)
    return (f"head bf16(seed {s}, e0 116) [4096,5120], x bf16(seed {s + 1}, e0 122) [2,5120]; markov embed rows bf16(seed "
            f"{s + 2}, e0 123) [5,256], markov head bf16(seed {s + 3}, e0 119) [4096,256]; hidden bf16(seed {s + 4}, e0 121) "
            f"[5,5120], proj bf16(seed {s + 5}, e0 116) [1,5376]")


def sampling(s, t):
    logits = gen_f32(s, 20, 4, 1000)
    noise = f32(-np.log((cut(s + 1, 4000, np.uint32).astype(np.float64) + 0.5) / 2.0 ** 32)).reshape(4, 1000)
    t.i32("greedy", logits.argmax(1))
    t.f32("noise", noise)
    for temperature in (1.0, 0.6, 0.05):
        scaled = f32(logits / f32(temperature))
        p = np.exp(f32(scaled - scaled.max(1, keepdims=True)))
        p /= p.sum(1, keepdims=True)
        falling = -np.sort(-p, 1)
        t.f32(f"probs.T{temperature}", p)
        t.i32(f"pick.T{temperature}", (p / noise).argmax(1))
        t.i32(f"top_p_count.T{temperature}", (falling.cumsum(1) < 0.95).sum(1) + 1)
    return f"logits f32(seed {s}, sh 20) [4,1000]; noise u32 stream seed {s + 1}"


def expert(s, t):
    x = gen_bf16(s, 118, 4, HIDDEN)
    weight = f32([[0.25], [0.375], [0.5], [0.875]])
    t.f32("route_w", weight)
    for kind, make, first, bases, factor in (("routed", fp4_matrix, s + 1, (121, 121, 119), weight),
                                             ("shared", fp8_matrix, s + 7, (117, 117, 115), 1.0)):
        sizes = ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
        w1, w3, w2 = (make(first + 2 * n, first + 2 * n + 1, bases[n], *sizes[n]) for n in range(3))
        g, u = bf(q8(x) @ w1.T), bf(q8(x) @ w3.T)
        gate = np.minimum(g, 10)
        a = bf(factor * (gate * sigmoid(gate) * np.clip(u, -10, 10)))
        for name, values in (("g", g), ("u", u), ("a", a), ("y", q8(a) @ w2.T)):
            t.bf16(f"{kind}.{name}", values)
    n = [s + i for i in range(13)]
    return (f"x bf16(seed {n[0]}, e0 118) [4,5120]; routed w1,w3,w2 packed bytes(seeds {n[1]},{n[3]},{n[5]}), scales "
            f"e8m0(seeds {n[2]},{n[4]} base 121; {n[6]} base 119); shared w1,w3,w2 e4m3(seeds {n[7]},{n[9]},{n[11]}), "
            f"scales(seeds {n[8]},{n[10]} base 117; {n[12]} base 115)")


def output_projection(s, t):
    o, weights = gen_bf16(s, 119, 2, 8, 4096), fp8_matrix(s + 1, s + 2, 114, 8192, 4096)
    t.bf16("z", np.einsum("tgk,grk->tgr", o, weights.reshape(8, 1024, 4096)))
    return (f"o bf16(seed {s}, e0 119) [2,8,4096]; wo_a e4m3(seed {s + 1}) [8192,4096]; scale e8m0(seed {s + 2}, base 114) "
            "[256,128]")


def engram_apply(s, t):
    e = bf(gen_e4m3(s, 2, 6144) * np.repeat(gen_scales(s + 1, 118, 2, 192), 32, 1))
    kv = bf(q8(e) @ fp8_matrix(s + 2, s + 3, 114, 5 * HIDDEN, 6144).T)
    h = np.stack([gen_bf16(s + 4, 121, 4, HIDDEN), gen_bf16(s + 5, 84, 4, HIDDEN)])
    weights = f32(gen_bf16(s + 6, 124, 4, HIDDEN) * gen_bf16(s + 7, 124, 4, HIDDEN))
    key, value = kv[:, :4 * HIDDEN].reshape(2, 4, HIDDEN), kv[:, None, 4 * HIDDEN:]
    inverse = lambda x: 1 / np.sqrt((x * x).mean(2) + EPS)
    dot = (h * weights * key).sum(2) * inverse(h) * inverse(key) / np.sqrt(HIDDEN)
    gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), 1e-6)), dot))
    t.bf16("e", e)
    t.bf16("kv", kv)
    t.bf16("h_out", h + gate[:, :, None] * value)
    return (f"rows e4m3(seed {s}) [2,24,256], scales e8m0(seed {s + 1}, base 118) [2,24,8]; wkv e4m3(seed {s + 2}) "
            f"[25600,6144], scale e8m0(seed {s + 3}, base 114) [800,192]; h token 0 bf16(seed {s + 4}, e0 121), token 1 "
            f"bf16(seed {s + 5}, e0 84) [4,5120] each; q_weight bf16(seed {s + 6}, e0 124), k_weight bf16(seed {s + 7}, e0 "
            "124) [4,5120]")


def product(make, rows, cols, base, e0):
    def op(s, t):
        acc = q8(gen_bf16(s + 2, e0, 2, cols)) @ make(s, s + 1, base, rows, cols).T
        t.f32("acc", acc)
        t.bf16("y", acc)
        if make is fp4_matrix:
            codes, scales = f"packed bytes(seed {s}) [{rows},{cols // 2}]", f"[{rows},{cols // 32}]"
        else:
            codes, scales = f"e4m3(seed {s}) [{rows},{cols}]", f"[{rows // 32},{cols // 32}]"
        return f"w {codes}; scale e8m0(seed {s + 1}, base {base}) {scales}; x bf16(seed {s + 2}, e0 {e0}) [2,{cols}]"
    return op


def quantizers(s, t):
    x = np.concatenate([gen_bf16(s + n, e0, 24, 32) for n, e0 in enumerate((60, 100, 116, 122, 126))])
    t.bf16("x", x)
    levels = {8: E4M3[:127], 4: E2M1[:8]}

    def codes(values, bits):
        sign = np.signbit(values).astype(np.uint8) << (bits - 1)
        return np.searchsorted(levels[bits], np.abs(values)).astype(np.uint8) | sign

    def packed(c):
        return c[:, 0::2] | c[:, 1::2] << 4

    for name, simulate in (("q8", q8), ("q4i", q4i), ("q4k", q4k)):
        t.bf16(name + ".sim", simulate(x))
    amax = np.abs(x).max(1, keepdims=True)
    scale = power_of_two_ceiling(np.float32(np.maximum(amax, np.float32(1e-4))) * (np.float32(1) / np.float32(448)))
    t.u8("q8.code", codes(e4m3(x / scale), 8))
    t.u8("q8.scale", np.log2(scale) + 127)
    scale = power_of_two_ceiling(np.float32(amax) * (np.float32(1) / np.float32(6)))
    t.u8("q4i.code", packed(codes(e2m1(x / scale), 4)))
    t.u8("q4i.scale", np.log2(scale) + 127)
    b = blocks(x, 16)
    scale = e4m3(f32(np.maximum(np.abs(b).max(2), 6 * 2.0 ** -9) / 6))
    t.u8("q4k.code", packed(codes(e2m1(f32(b / scale[:, :, None])).reshape(x.shape), 4)))
    t.u8("q4k.scale", codes(scale, 8))
    return f"x stored; generator rows bf16(seed {s}..{s + 4})"


OPS = {  # in order of their seeds
    "quant": quantizers, "rmsnorm": rms_norm, "rope": rope, "mhc": hyper_connections, "router": router,
    "compressor": compressor, "indexer": indexer, "sparse_attn": sparse_attention, "heads": heads, "sampling": sampling,
    "expert": expert, "out_proj_a": output_projection, "engram_apply": engram_apply,
    "gemm_fp8_wq_a": product(fp8_matrix, 1280, 5120, 112, 120), "gemm_fp8_wkv": product(fp8_matrix, 512, 5120, 112, 120),
    "gemm_fp8_shared_w2": product(fp8_matrix, 5120, 2304, 113, 120),
    "gemm_fp4_expert_w1": product(fp4_matrix, 2304, 5120, 120, 120),
    "gemm_fp4_expert_w2": product(fp4_matrix, 5120, 2304, 120, 120),
}


def write_safetensors(path, tensors):
    header, offset, parts = {}, 0, []
    for name, (dtype, values) in tensors.items():
        parts.append(np.ascontiguousarray(values).tobytes())
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [offset, offset + len(parts[-1])]}
        offset += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)


def write_ops(directory, seed, names=tuple(OPS)):
    os.makedirs(os.path.join(directory, "ops"), exist_ok=True)
    manifest = {}
    for number, (name, op) in enumerate(OPS.items()):
        if name not in names:
            continue
        tensors = Tensors()
        inputs = op(seed + 100 * number, tensors)
        write_safetensors(os.path.join(directory, "ops", name + ".safetensors"), tensors)
        manifest[name] = {"file": f"ops/{name}.safetensors", "inputs": inputs}
    with open(os.path.join(directory, "ops", "manifest.json"), "w") as file:
        json.dump(manifest, file, indent=1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--seed", type=int, default=7_000_001)
    arguments = parser.parse_args()
    write_ops(arguments.directory, arguments.seed)
