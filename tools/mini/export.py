"""Writes a training checkpoint in the released format, reads it back, and compares the two forwards."""
import argparse
import json
import os
import pickle

import jax.numpy as jnp
import numpy as np

import checkpoint
import engram
import model as M

EXACT = M.Mode(caches=True, acts=True, restrict=True, exact_topk=True)


def difference(cfg, folder, a, b, length=256):
    """Largest logit difference of two parameter sets on one row of ids that is made from the config alone."""
    tmap = engram.token_map(json.load(open(f"{folder}/tokenizer.json")), cfg.vocab_size)
    hashes = engram.Hash(cfg.raw["text_config"], tmap)
    ids = np.random.default_rng(3).integers(3, 1000, (1, length)).astype(np.int32)
    rows = hashes.rows(ids, np.zeros_like(ids))

    def run(p):
        return np.asarray(M.logits(p, M.backbone(cfg, p, ids, np.zeros_like(ids), rows, EXACT)[0]))
    return float(np.abs(run(a) - run(b)).max())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint", help="pickle written by train.py")
    ap.add_argument("--model", default="models/mini", help="folder with config.json and tokenizer.json; shards go here")
    ap.add_argument("--mean", action="store_true", help="export the running mean of the weights, not the last ones")
    a = ap.parse_args()
    cfg = M.Config(json.load(open(os.path.join(a.model, "config.json"))))
    state = pickle.load(open(a.checkpoint, "rb"))
    params = {k: jnp.asarray(v) for k, v in state["mean" if a.mean else "params"].items()}
    checkpoint.save(a.model, cfg, params)
    _, back = checkpoint.load(a.model)
    want = {k: np.asarray(v) for k, v in M.quantized(params).items()}
    wrong = [k for k in want if not np.array_equal(want[k], back[k])]
    assert not wrong, f"read back differently: {wrong[:5]} ({len(wrong)} tensors)"
    size = sum(os.path.getsize(os.path.join(a.model, f)) for f in os.listdir(a.model) if f.endswith(".safetensors"))
    print(f"step {state['step']}, {state['tokens'] / 1e6:.2f} Mtok, {size / 1e6:.2f} MB; every tensor reads back equal; "
          f"largest logit difference {difference(cfg, a.model, want, back):g}")


if __name__ == "__main__":
    main()
