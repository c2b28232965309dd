"""Reads and writes the released safetensors layout (docs/spec/model.md 11.1) for the JAX model."""
import glob
import json
import os
import struct

import ml_dtypes
import numpy as np

import model as M
import quant as Q

DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": np.uint8,
          "I8": np.int8, "I32": np.int32, "I64": np.int64, "U8": np.uint8}


def read_file(path):
    """All tensors of one safetensors file (E8M0 scales as raw bytes)."""
    blob = open(path, "rb").read()
    n = struct.unpack("<Q", blob[:8])[0]
    head = json.loads(blob[8:8 + n])
    head.pop("__metadata__", None)
    out = {}
    for k, v in head.items():
        a, b = v["data_offsets"]
        out[k] = np.frombuffer(blob[8 + n + a:8 + n + b], DTYPES[v["dtype"]]).reshape(v["shape"])
    return out


def write_file(path, tensors):
    """tensors: name -> (dtype name, array)."""
    head, parts, at = {"__metadata__": {"format": "pt"}}, [], 0
    for k, (dtype, v) in tensors.items():
        b = np.ascontiguousarray(v).tobytes()
        head[k] = {"dtype": dtype, "shape": list(v.shape), "data_offsets": [at, at + len(b)]}
        parts.append(b)
        at += len(b)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(parts)
    return at


def load(folder):
    """(config, params as fp32) of a checkpoint folder."""
    cfg = M.Config(json.load(open(os.path.join(folder, "config.json"))))
    raw = {}
    for path in sorted(glob.glob(os.path.join(folder, "model-*.safetensors"))):
        raw |= read_file(path)
    power = lambda b: np.ldexp(np.float32(1), b.astype(np.int32) - 127).astype(np.float32)

    def tensor(name):
        kind, v = M.kind(name), raw[name]
        if kind in ("f32", "bf16"):
            return v.astype(np.float32)
        s = power(raw[name[:-len("weight")] + "scale"])
        if kind == "fp8":
            return v.astype(np.float32) * np.repeat(np.repeat(s, 32, 0), 32, 1)
        if kind == "rows8":
            return v.astype(np.float32) * np.repeat(s, 32, 1)
        levels = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
        u = v.view(np.uint8)
        return np.stack([levels[u & 15], levels[u >> 4]], -1).reshape(v.shape[0], -1) * np.repeat(s, 32, 1)

    params = {}
    for name, shape in M.shapes(cfg).items():
        if ".ffn.experts." in name:
            head, tail = name.split(".experts.")
            params[name] = np.stack([tensor(f"{head}.experts.{e}.{tail}") for e in range(shape[0])])
        else:
            params[name] = tensor(name)
        assert params[name].shape == shape, (name, params[name].shape, shape)
    return cfg, params


def packed(params):
    """Checkpoint tensors: name -> (dtype, array), experts split, scales beside their weights."""
    out = {}
    for name, v in params.items():
        v, kind = np.asarray(v, np.float32), M.kind(name)
        scale = name[:-len("weight")] + "scale"
        if kind == "fp4":
            codes, s = Q.w4_parts(v)
            head, tail = name.split(".experts.")
            for e in range(v.shape[0]):
                full = f"{head}.experts.{e}.{tail}"
                out[full] = ("I8", codes[e])
                out[full[:-len("weight")] + "scale"] = ("F8_E8M0", s[e])
        elif kind in ("fp8", "rows8"):
            codes, s = (Q.w8_parts if kind == "fp8" else Q.rows8_parts)(v)
            out[name] = ("F8_E4M3", codes.astype(ml_dtypes.float8_e4m3fn))
            out[scale] = ("F8_E8M0", s)
        elif kind == "bf16":
            out[name] = ("BF16", v.astype(ml_dtypes.bfloat16))
        else:
            out[name] = ("F32", v)
            if name.endswith("ffn.gate.bias"):
                out[name + "_vl"] = ("F32", v)
    return out


def save(folder, cfg, params):
    """Write config, index and shards."""
    os.makedirs(folder, exist_ok=True)
    tensors = packed(params)
    half = next(i for i, r in enumerate(cfg.compress_ratios) if r == 1)
    groups = [[] for _ in range(5)]
    for k in tensors:
        part = k.split(".")
        if part[0] == "embed":
            g = 0
        elif part[0] == "mtp":
            g = 3
        elif "engram" in k:
            g = 4
        elif part[0] == "layers" and int(part[1]) < half:
            g = 1
        else:
            g = 2
        groups[g].append(k)
    where, total = {}, 0
    for g, names in enumerate(groups):
        file = f"model-{g + 1:05d}-of-{len(groups):05d}.safetensors"
        total += write_file(os.path.join(folder, file), {k: tensors[k] for k in names})
        where |= {k: file for k in names}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
    json.dump(index, open(os.path.join(folder, "model.safetensors.index.json"), "w"), indent=1)
    json.dump(cfg.raw, open(os.path.join(folder, "config.json"), "w"), indent=1)
