"""Dense exercises in copying: most tokens of a document follow from earlier ones. They make attention heads that find and
copy appear early; the conversations alone show too few such tokens. Documents are lists of (ids or text, weight)."""
import random

import facts as F

BOS = "<｜begin▁of▁sentence｜>"
ORDINARY = range(3, 2032)   # ids of plain text in models/mini/tokenizer.json


def symbols(rng, count):
    """`count` different items: token ids, or words."""
    kind = rng.random()
    if kind < 0.5:
        return [[i] for i in rng.sample(ORDINARY, count)]
    if kind < 0.6:
        return [[rng.choice(ORDINARY), rng.choice(ORDINARY)] for _ in range(count)]
    words = F.NOUNS + F.NAMES + F.ADJECTIVES + [str(rng.randint(0, 9999)) for _ in range(60)]
    return [" " + w for w in rng.sample(words, min(count, 200))]


def flat(items, weight):
    return [(i, weight) for i in items]


def repeat_doc(rng, limit):
    """A sequence, then the same again and again."""
    n = rng.randint(4, max(5, min(150, limit // 3)))
    items = symbols(rng, n)
    rounds = max(2, min(4, limit // (2 * n + 2)))
    mark = rng.choice([[], [rng.choice(ORDINARY)], "\n", " again:"])
    out = [(BOS, 0.0)] + flat(items, 0.0)
    for _ in range(rounds - 1):
        out += [(mark, 0.0)] * bool(mark) + [(items[0], 0.0)] + flat(items[1:], 1.0)
    return out


def excerpt_doc(rng, limit):
    """A sequence, then pieces of it from random places; the first item of a piece is given."""
    n = rng.randint(8, max(9, min(150, limit // 3)))
    items = symbols(rng, n)
    n = len(items)
    out, used = [(BOS, 0.0)] + flat(items, 0.0), 2 * n
    while used < limit * 0.9:
        a = rng.randrange(n - 2)
        b = min(n, a + rng.randint(2, 8))
        out += [("\n", 0.0), (items[a], 0.0)] + flat(items[a + 1:b], 1.0)
        used += 2 * (b - a) + 1
    return out


def pairs_doc(rng, limit):
    """Keys with values, then every key in another order with its value."""
    n = rng.randint(2, max(3, min(60, limit // 12)))
    keys, values = symbols(rng, n), symbols(rng, n)
    n = min(len(keys), len(values))
    between, end = rng.choice([":", " is", " ->", "=", ","]), rng.choice(["\n", ".", ";", " ."])
    out = [(BOS, 0.0)]
    for k, v in zip(keys[:n], values):
        out += [(k, 0.0), (between, 0.0), (v, 0.0), (end, 0.0)]
    order = list(range(n))
    for _ in range(rng.randint(1, 3)):
        rng.shuffle(order)
        for i in order:
            out += [(keys[i], 0.0), (between, 0.0), (values[i], 1.5), (end, 0.1)]
    return out


def document(rng, limit):
    limit = rng.choice([limit, limit, limit // 2, limit // 4]) - 8
    return rng.choices([repeat_doc, excerpt_doc, pairs_doc], [4, 3, 5])[0](rng, limit)
