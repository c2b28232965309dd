"""Constants of the Engram n-gram hash: token classes, primes, offsets, multipliers, and row numbers of a text."""
import unicodedata

import numpy as np


def byte_decoder():
    """Byte-level BPE alphabet: character -> byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars = {chr(b): b for b in keep}
    for n, b in enumerate(sorted(set(range(256)) - set(keep))):
        chars[chr(256 + n)] = b
    return chars


def normalized(text):
    """Key of a token text: compatibility form, no marks, lower case, single spaces, stripped."""
    s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    s = "".join(c.lower() for c in s if unicodedata.category(c)[0] != "M")
    out = []
    for c in s:
        if c in " \t\r\n":
            if not out or out[-1] != " ":
                out.append(" ")
        else:
            out.append(c)
    s = "".join(out)
    return s if s == " " else s.strip() or text


def token_map(tokenizer, size):
    """Class number of every id. `tokenizer` is the parsed tokenizer.json."""
    names = {i: t for t, i in tokenizer["model"]["vocab"].items()}
    added = {a["id"]: a["content"] for a in tokenizer["added_tokens"]}
    table, classes, out = byte_decoder(), {}, np.zeros(size, np.int32)
    for i in range(size):
        if i in added:
            raw = text = added[i]
        else:
            raw = names[i]
            text = bytes(table[c] for c in raw).decode("utf-8", "replace")
        key = raw if "\ufffd" in text else normalized(text)
        out[i] = classes.setdefault(key, len(classes))
    return out


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


class Hash:
    """Row numbers of the Engram tables for sequences of token ids."""

    def __init__(self, text_config, tmap):
        t = text_config
        orders, heads = t["engram_max_ngram_size"] - 1, t["engram_n_heads"]
        self.map, self.heads, self.n = tmap, heads, t["engram_max_ngram_size"]
        self.pad = tmap[t["engram_pad_token_id"]]
        bound = ((2 ** 63 - 1) // t["engram_compressed_vocab_size"]) // 2
        self.primes, self.offsets, self.mults = [], [], []
        last = t["engram_vocab_size"] - 1
        for layer in t["engram_layer_ids"]:
            cols = []
            for _ in range(orders * heads):
                last += 1
                while not is_prime(last):
                    last += 1
                cols.append(last)
            self.primes.append(cols)
            self.offsets.append(np.cumsum([0] + cols[:-1]))
            self.mults.append(np.random.default_rng(10007 * layer).integers(0, bound, self.n) * 2 + 1)
        self.primes, self.offsets, self.mults = (np.array(v, np.int64) for v in (self.primes, self.offsets, self.mults))

    def table_rows(self):
        """engram_num_embeddings."""
        return [int(v) for v in self.primes.sum(1)]

    def rows(self, ids, start):
        """ids, start: [B, T]; `start` is the position of the document's first token. -> [layers, B, T, columns]."""
        B, T = ids.shape
        pos, cls = np.arange(T)[None], self.map[ids].astype(np.int64)
        back = []
        for d in range(self.n):
            shifted = np.concatenate([np.full((B, min(d, T)), self.pad), cls[:, :T - d]], 1)[:, :T]
            back.append(np.where(pos - d < start, self.pad, shifted))
        out = np.zeros((len(self.mults), B, T, self.primes.shape[1]), np.int32)
        for i, m in enumerate(self.mults):
            acc = back[0] * m[0]
            for g in range(1, self.n):
                acc = acc ^ (back[g] * m[g])
                c = slice((g - 1) * self.heads, g * self.heads)
                out[i, :, :, c] = acc[..., None] % self.primes[i, c] + self.offsets[i, c]
        return out
