"""Trains the byte-level BPE of the mini model and writes tokenizer.json / tokenizer_config.json in the released layout."""
import json
import random
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import data

HAN = "[一-龥぀-ゟ゠-ヿ]+"
REST = ("[!\\\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
        " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
FIRST = [data.BOS, data.EOS, "<｜▁pad▁｜>"]
LAST = [(data.SYSTEM, False), (data.USER, False), (data.ASSISTANT, False), ("<think>", False), ("</think>", False),
        (data.DSML, False), ("<｜latest_reminder｜>", False), ("<｜deepseek_image｜>", None)]


def train(vocab_size, seed, count):
    """Merges learned on generated documents; digits stay single tokens because training splits every digit."""
    split = lambda r: pre_tokenizers.Split(Regex(r), "isolated")
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [split("\\p{N}"), split(HAN), split(REST), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    rng = random.Random(seed)
    control = FIRST + [t for t, _ in LAST]

    def texts():
        for _ in range(count):
            for text in data.sample_text(rng):
                for c in control:
                    text = text.replace(c, "\0")
                yield from (p for p in text.split("\0") if p)
    size = vocab_size - 16
    trainer = trainers.BpeTrainer(vocab_size=size - 3, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                  show_progress=False, min_frequency=2)
    tok.train_from_iterator(texts(), trainer)
    learned = json.loads(tok.to_str())["model"]
    vocab = {t: i for i, t in enumerate(FIRST)}
    vocab |= {t: i + 3 for t, i in sorted(learned["vocab"].items(), key=lambda kv: kv[1])}
    for i in range(len(vocab), size):
        raise ValueError(f"corpus too small: only {i} entries")
    return vocab, [" ".join(m) if isinstance(m, list) else m for m in learned["merges"]]


def write(folder, vocab_size, seed, count):
    vocab, merges = train(vocab_size, seed, count)
    added = [{"id": i, "content": t, "special": True, "normalized": False} for i, t in enumerate(FIRST)]
    names = LAST + [(f"<｜place▁holder▁{i}｜>", None) for i in range(16 - len(LAST))]
    for i, (t, flag) in enumerate(names):
        added.append({"id": vocab_size - 16 + i, "content": t, "special": False, "normalized": flag is not None})
    added = [{"id": a["id"], "content": a["content"], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": a["normalized"], "special": a["special"]} for a in added]
    split = lambda r: {"type": "Split", "pattern": {"Regex": r}, "behavior": "Isolated", "invert": False}
    level = lambda **k: {"type": "ByteLevel", **k}
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
           "normalizer": {"type": "Sequence", "normalizers": []},
           "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
               split("\\p{N}{1,3}"), split(HAN), split(REST),
               level(add_prefix_space=False, trim_offsets=True, use_regex=False)]},
           "post_processor": level(add_prefix_space=True, trim_offsets=False, use_regex=True),
           "decoder": level(add_prefix_space=True, trim_offsets=True, use_regex=True),
           "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                     "vocab": vocab, "merges": merges}}
    json.dump(out, open(f"{folder}/tokenizer.json", "w"), ensure_ascii=False, indent=1)
    json.dump({"add_bos_token": False, "add_eos_token": False, "bos_token": FIRST[0], "eos_token": FIRST[1],
               "pad_token": FIRST[2], "model_max_length": 8192, "tokenizer_class": "PreTrainedTokenizerFast"},
              open(f"{folder}/tokenizer_config.json", "w"), ensure_ascii=False, indent=1)


if __name__ == "__main__":
    write(sys.argv[1], 2048, 1, 30000)
