"""Number formats of the V4.1 checkpoint and caches, as fp32 values with straight-through gradients.

Every function maps an fp32 array to the fp32 array that the format can hold (spec section 4.1).
`*_parts` variants return codes and scales for the exporter (NumPy).
"""
import jax
import jax.numpy as jnp
import numpy as np

INV448 = np.float32(1.0) / np.float32(448.0)
INV6 = np.float32(1.0) / np.float32(6.0)


def bf16(x):
    """Round to bf16, nearest even; the gradient passes through."""
    return jax.lax.reduce_precision(x, 8, 7)


def pow2_ceil(v):
    """Smallest power of two >= v for positive fp32 v, on the bits."""
    bits = jax.lax.bitcast_convert_type(v, jnp.int32)
    exp = (bits >> 23) + jnp.where((bits & 0x7FFFFF) != 0, 1, 0)
    return jax.lax.bitcast_convert_type(exp << 23, jnp.float32)


def e4m3(x):
    """Round to E4M3 (clamped to +-448, subnormals of 2^-9)."""
    x = jnp.clip(x, -448.0, 448.0)
    normal = jax.lax.reduce_precision(x, 8, 3)
    small = jnp.round(x * 512.0) / 512.0
    return jnp.where(jnp.abs(x) < 2.0 ** -6, small, normal)


def e2m1(x):
    """Round to E2M1 (0 .5 1 1.5 2 3 4 6), ties to the even code."""
    x = jnp.clip(x, -6.0, 6.0)
    a = jnp.abs(x)
    return jnp.where(a < 2, jnp.round(x * 2) / 2, jnp.where(a < 4, jnp.round(x), jnp.round(x / 2) * 2))


def ste(fn):
    """Straight-through wrapper: forward fn(x), gradient of the identity."""
    def wrapped(x):
        return x + jax.lax.stop_gradient(fn(x) - x)
    return wrapped


def _blocks(x, n):
    return x.reshape(x.shape[:-1] + (x.shape[-1] // n, n))


@ste
def q8(x):
    """Activations and window rows: E4M3 with a power-of-two scale per 32."""
    b = _blocks(x, 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-4) * INV448)
    return (e4m3(b / s) * s).reshape(x.shape)


@ste
def q4i(x):
    """Index queries and keys: E2M1 with a power-of-two scale per 32."""
    b = _blocks(x, 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 6 * 2.0 ** -126) * INV6)
    return (e2m1(b / s) * s).reshape(x.shape)


@ste
def q4k(x):
    """Compressed KV rows: E2M1 with an E4M3 scale per 16."""
    b = _blocks(x, 16)
    s = e4m3(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 6 * 2.0 ** -9) / 6.0)
    return (e2m1(b / s) * s).reshape(x.shape)


def _w8_scale(w):
    n, k = w.shape[-2:]
    b = w.reshape(w.shape[:-2] + (n // 32, 32, k // 32, 32))
    amax = jnp.abs(b).max((-3, -1), keepdims=True)
    return b, pow2_ceil(jnp.maximum(amax, 1e-12) * INV448)


@ste
def w8(w):
    """Dense weights: E4M3 with a power-of-two scale per 32x32 block."""
    b, s = _w8_scale(w)
    return (e4m3(b / s) * s).reshape(w.shape)


@ste
def w4(w):
    """Expert weights: E2M1 with a power-of-two scale per row and 32 inputs."""
    b = _blocks(w, 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-12) * INV6)
    return (e2m1(b / s) * s).reshape(w.shape)


@ste
def rows8(t):
    """Engram tables: E4M3 with a power-of-two scale per row and 32 columns."""
    b = _blocks(t, 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-12) * INV448)
    return (e4m3(b / s) * s).reshape(t.shape)


def w8_parts(w):
    """(E4M3 values / scale as fp32, E8M0 bytes) of a dense weight."""
    b, s = _w8_scale(jnp.asarray(w))
    codes = np.asarray(e4m3(b / s)).reshape(w.shape)
    return codes, np.asarray(scale_byte(s))[..., :, 0, :, 0]


def w4_parts(w):
    """(packed nibbles as int8, E8M0 bytes) of an expert weight."""
    b = _blocks(jnp.asarray(w), 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-12) * INV6)
    v = np.asarray(e2m1(b / s)).reshape(w.shape)
    levels = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)
    code = np.searchsorted(levels, np.abs(v)).astype(np.uint8) | (np.signbit(v) & (v != 0)).astype(np.uint8) << 3
    return (code[..., 0::2] | code[..., 1::2] << 4).view(np.int8), np.asarray(scale_byte(s))[..., 0]


def rows8_parts(t):
    """(E4M3 values / scale as fp32, E8M0 bytes) of an Engram table."""
    b = _blocks(jnp.asarray(t), 32)
    s = pow2_ceil(jnp.maximum(jnp.abs(b).max(-1, keepdims=True), 1e-12) * INV448)
    return np.asarray(e4m3(b / s)).reshape(t.shape), np.asarray(scale_byte(s))[..., 0]


def scale_byte(s):
    """E8M0 byte of a power of two."""
    return (jax.lax.bitcast_convert_type(s, jnp.int32) >> 23).astype(jnp.uint8)
