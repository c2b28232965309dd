"""C++ kernels (*.cc) with gradients for the parts of the forward that XLA's CPU backend runs slowly."""
import ctypes
import functools
import hashlib
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np


def _library():
    here = os.path.dirname(os.path.abspath(__file__))
    sources = [os.path.join(here, n) for n in ("fast.cc", "attention.cc", "experts.cc", "indexer.cc")]
    tag = hashlib.sha256(b"".join(open(s, "rb").read() for s in sources + [os.path.join(here, "vector.h")])).hexdigest()[:12]
    path = os.path.expanduser(f"~/.cache/deepinfer-mini/fast-{tag}.so")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run(["g++", "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fPIC",
                        "-shared", "-pthread", "-isystem", jax.ffi.include_dir(), *sources, "-o", path + ".new"], check=True)
        os.replace(path + ".new", path)
    return ctypes.cdll.LoadLibrary(path)


_lib = _library()
for _n in ("Unfold", "UnfoldGrad", "Fold", "FoldGrad", "Sinkhorn", "SinkhornGrad", "Rms", "RmsGrad", "Attend", "AttendGrad",
           "Select", "IndexLoss", "Experts", "ExpertsGrad"):
    jax.ffi.register_ffi_target("mini_" + _n, jax.ffi.pycapsule(getattr(_lib, _n + "_")), platform="cpu")


def _call(name, out, *args):
    return jax.ffi.ffi_call("mini_" + name, out)(*args)


def _like(*xs):
    return tuple(jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in xs)


@jax.custom_vjp
def unfold(y, h, P, C):
    """P y + C^T h for y [N, D], h [N, 4, D], P [4, N], C [4, 4, N]."""
    return _call("Unfold", _like(h)[0], y, h, P, C)


unfold.defvjp(lambda *a: (unfold(*a), a), lambda a, g: _call("UnfoldGrad", _like(*a), *a, g))


@jax.custom_vjp
def fold(h, w):
    """sum_i w[i] h[:, i] for h [N, 4, D], w [4, N]."""
    return _call("Fold", jax.ShapeDtypeStruct((h.shape[0], h.shape[2]), jnp.float32), h, w)


fold.defvjp(lambda h, w: (fold(h, w), (h, w)), lambda a, g: _call("FoldGrad", _like(*a), *a, g))


@jax.custom_vjp
def sinkhorn(c):
    """[4, 4, N] logits -> doubly stochastic matrices, 20 rounds; N must be a multiple of 16."""
    return _call("Sinkhorn", _like(c)[0], c)


sinkhorn.defvjp(lambda c: (sinkhorn(c), c), lambda c, g: (_call("SinkhornGrad", _like(c)[0], c, g),))


def _rms(x, w):
    return _call("Rms", (_like(x)[0], jax.ShapeDtypeStruct(x.shape[:-1], jnp.float32)), x, w)


@jax.custom_vjp
def rms_norm(x, w):
    return _rms(x, w)[0]


def _rms_fwd(x, w):
    y, r = _rms(x, w)
    return y, (x, w, r)


rms_norm.defvjp(_rms_fwd, lambda a, g: _call("RmsGrad", _like(a[0], a[1]), *a, g))


def _attend(window, mass, q, w, c, sink, start, select):
    B, T, H, _ = q.shape
    f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    shares = f32(B, T // mass, c.shape[1]) if mass else f32(B, T, 0)
    return jax.ffi.ffi_call("mini_Attend", (f32(*q.shape), f32(B, T, H), shares))(
        q, w, c, sink, start, select, window=np.int64(window))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend(window, mass, q, w, c, sink, start, select):
    """Attention outputs [B, T, 4, 64] and, at every `mass`-th position (1, 2, 4, 8; 0: none),
    every compressed row's share summed over heads [B, T / mass, C].

    q [B, T, 4, 64]; w [B, T, 64] window rows; c [B, C, 64] compressed rows (C = 0, T or T / 2); sink [4]; start [B, T] first
    position of the own document; select [B, T, C] allowed compressed rows, or empty: all.
    """
    out = _attend(window, mass, q, w, c, sink, start, select)
    return out[0], out[2]


def _attend_fwd(window, mass, *args):
    out, lse, m = _attend(window, mass, *args)
    return (out, m), (*args, out, lse)


def _attend_bwd(window, mass, saved, g):
    q, w, c, sink = saved[:4]
    grads = jax.ffi.ffi_call("mini_AttendGrad", _like(q, w, c, sink))(*saved, g[0], window=np.int64(window))
    return (*grads, None, None)


attend.defvjp(_attend_fwd, _attend_bwd)


def select(q, w, keys, start, allowed, k, blocks, size):
    """The k best rows [B, T, C] for queries q [B, T, 4, 32] with weights w [B, T, 4] among keys [B, C, 32] of the own document
    (which starts at start [B, T]) that are in allowed [B, T, C], or empty: all; and, with `blocks`, the rows in the best so
    many blocks of `size` rows."""
    mask = lambda c: jax.ShapeDtypeStruct((*w.shape[:2], c), jnp.bool_)
    return jax.ffi.ffi_call("mini_Select", (mask(keys.shape[1]), mask(keys.shape[1] if blocks else 0)))(
        q, w, keys, start, allowed, k=np.int64(k), blocks=np.int64(blocks), size=np.int64(size))


def _index_loss(q, w, keys, start, shares, focus):
    return jax.ffi.ffi_call("mini_IndexLoss", (jax.ShapeDtypeStruct((), jnp.float32), *_like(q, w, keys)))(
        q, w, keys, start, shares, focus)


@jax.custom_vjp
def index_loss(q, w, keys, start, shares, focus):
    """Mean KL(shares || softmax(score)) of queries q [B, P, 4, 32] with weights w [B, P, 4] at every T / P-th position over
    the keys [B, C, 32] of the own document, which starts at start [B, T]; shares [B, P, C]; focus [B, P] weighs
    the positions."""
    return _index_loss(q, w, keys, start, shares, focus)[0]


def _index_loss_fwd(*args):
    loss, *grads = _index_loss(*args)
    return loss, grads


index_loss.defvjp(_index_loss_fwd, lambda grads, g: (*(g * d for d in grads), None, None, None))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def experts(limit, x, w, w1, w2, w3):
    """sum_e w_e W2_e (silu(min(W1_e x, limit)) clip(W3_e x)); x [N, 128], w [N, E], w1, w3 [E, 64, 128], w2 [E, 128, 64]."""
    return jax.ffi.ffi_call("mini_Experts", _like(x)[0])(x, w, w1, w2, w3, limit=np.float32(limit))


experts.defvjp(lambda limit, *a: (experts(limit, *a), a),
               lambda limit, a, g: jax.ffi.ffi_call("mini_ExpertsGrad", _like(*a))(*a, g, limit=np.float32(limit)))
