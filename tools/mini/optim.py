"""Muon for the matrices of the blocks, Adam for everything else, over the flat parameter dict."""
import jax
import jax.numpy as jnp

import model as M

ADAM_RATE = {"embed.weight": 0.01, "head.weight": 0.004, "engram.embed": 0.02, "hc_": 0.004, "norm": 0.004,
             "gate.weight": 0.004, "_weight": 0.004}


def uses_muon(name):
    return M.kind(name) in ("fp8", "fp4") or "compressor.w" in name or "indexer.w" in name


def adam_rate(name):
    return next((v for k, v in ADAM_RATE.items() if k in name), 0.004)


def init(params):
    mu = {k: jnp.zeros_like(v) for k, v in params.items()}
    nu = {k: jnp.zeros_like(v) for k, v in params.items() if not uses_muon(k)}
    return {"mu": mu, "nu": nu, "count": jnp.zeros((), jnp.int32)}


def orthogonal(g):
    """Newton-Schulz iteration on [n, rows, cols]; singular values end near 1."""
    flip = g.shape[-2] > g.shape[-1]
    x = g.swapaxes(-1, -2) if flip else g
    x = x / (jnp.sqrt((x * x).sum((-1, -2), keepdims=True)) + 1e-12)
    for _ in range(5):
        a = x @ x.swapaxes(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.swapaxes(-1, -2) if flip else x


def update(params, grads, state, rate, muon_rate=0.02, decay=0.05):
    """One step; `rate` in 0..1 scales all learning rates. Parameters without a gradient entry stay."""
    count = state["count"] + 1
    norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-9))
    new, mu, nu, groups = dict(params), dict(state["mu"]), dict(state["nu"]), {}
    for k, g in grads.items():
        g = g * clip
        if uses_muon(k):
            mu[k] = 0.95 * mu[k] + 0.05 * g
            step = 0.95 * mu[k] + 0.05 * g
            groups.setdefault(g.shape[-2:], []).append((k, step.reshape((-1,) + g.shape[-2:])))
            continue
        mu[k] = 0.9 * mu[k] + 0.1 * g
        nu[k] = 0.97 * nu[k] + 0.03 * g * g
        m, v = mu[k] / (1 - 0.9 ** count), nu[k] / (1 - 0.97 ** count)
        new[k] = params[k] - rate * adam_rate(k) * m / (jnp.sqrt(v) + 1e-10)
    for shape, items in groups.items():
        o = orthogonal(jnp.concatenate([s for _, s in items]))
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        at = 0
        for k, s in items:
            w = params[k]
            new[k] = w * (1 - rate * muon_rate * decay) - rate * muon_rate * scale * o[at:at + len(s)].reshape(w.shape)
            at += len(s)
    return new, {"mu": mu, "nu": nu, "count": count}, norm
