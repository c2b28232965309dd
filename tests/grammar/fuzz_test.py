"""Schemas against two other judges: random ones with what hurts, whose answers `jsonschema` must accept, and those of the
JSON-Schema-Test-Suite, whose invalid instances no answer may be. The grammar room is asked without a model."""

import json
import pathlib
import random
import subprocess

import jsonschema
import pytest

import served

PROBE = served.BINARY.parent / "tests/grammar_probe"
SUITE = next(pathlib.Path(served.ROOT / ".tools/test").glob("jsonschema-*")) / "json/tests/draft2020-12"
VALIDATOR = jsonschema.Draft202012Validator
ALPHABET = "{}[]\",: \\/bfnrtu0123456789abcdefABCDxX.eE+-_\n\t\r\x01\x1fé｜😀"


def ask(questions):
    """What the room says to each question; one process for all of them."""
    lines = "".join(json.dumps({"texts": [], "walks": 0, "alphabet": ALPHABET, "seed": 0, **one}) + "\n" for one in questions)
    done = subprocess.run([PROBE], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(questions), done.stderr
    return answers


# ---- Random schemas ----


class Schemas:
    """Draws schemas from what a grammar library gets wrong: escapes, hexadecimal digits, controls, edges of Unicode and of
    numbers, names that need escapes."""

    PIECES = ["a", "B", "7", " ", r"\\", '"', r"\"", r"\n", r"\t", "\t", r"\x22", r"\x41", r"\x5c", r"\x0a", r"\x1f", r"\x7f", "b", "0", "f", r"\u0041", r"\u0022", r"\u00e9", "é", "😀", "｜", "/", r"\/", r"\.", r"\-", "<", ",", ":", r"\{", r"\}", "}", r"\[", r"\]"]
    CLASSES = [".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[abc]", "[^a]", r'[a"]', r"[a\\]", r"[\\]", '["]', r"[^\"\\]", "[ -~]", "[!-~]", r"[\x00-\x1f]", r"[\x00-\x7f]", r"[\n\t]", r"[^\n]", r"[\s\S]", r"[\w-]", "[a-f0-9]", "[é-ü]", r"[^\x00-\x7f]", "[-a]", r"[\]x]", r"[^\d]", r"[^\W]", r"[\u4e00-\u9fff]", "[😀-😃]"]
    COUNTS = ["", "", "", "", "?", "*", "+", "{2}", "{0,3}", "{1,}", "{3,5}", "{0}"]
    NAMES = ["a", "b", "aa", "", "é", 'q"q', "s\\s", "x/y", "n\nn", "u0061", "｜", "😀", "A b", "constructor", "\x7f"]
    EDGES = [0, 1, -1, 9, 10, 99, 100, 101, -100, 0.1, 0.25, -0.5, 0.0000004, 600.1234567, 600.1234569, 500.0000004, 123456.5, 12345.1234564, 999999999999, 2**53, -(2**53), 1e-7, 3.0, -7.25, 1e14]
    VALUES = [None, True, False, 0, -1, 1.0, 0.1, -0.0, 1e22, 1e-7, 2**53 + 1, 2**63, -(2**63), 2**64 - 1, 0.30000000000000004, 12345678901234567890123, "", "a", '"', "\\", "\n", "\x01", "\x7f", "é", "😀", "</think>", "<think>", "｜", "\u2028", [], [1, 2.5], {}, {"a": 0.1}, {"é": ["\\"]}]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, items):
        return self.random.choice(items)

    def pattern(self, depth=0):
        out = ""
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.random()
            if kind < 0.15 and depth < 2:
                out += "(" + self.pick(["", "?:"]) + self.pattern(depth + 1) + self.pick(["", "|" + self.pattern(depth + 1)]) + ")"
            else:
                out += self.pick(self.PIECES if kind < 0.65 else self.CLASSES)
            out += self.pick(self.COUNTS)
        return out

    def bounds(self, whole):
        low, high = sorted([self.edge(whole), self.edge(whole)])
        out = {}
        if self.random.random() < 0.7:
            out[self.pick(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.7:
            out[self.pick(["maximum", "exclusiveMaximum"])] = high
        return out

    def edge(self, whole):
        value = self.pick(self.EDGES)
        if self.random.random() < 0.5:
            value += round(self.random.uniform(-2, 2), self.random.randint(0, 8))
        return int(value) if whole and self.random.random() < 0.7 else value

    def leaf(self):
        kind = self.random.randrange(9)
        if kind == 0:
            return {"type": "string", "pattern": "^" + self.pattern() + "$"}
        if kind == 1:
            return {"type": "string", "pattern": self.pattern()}
        if kind == 2:
            low, high = sorted([self.random.randint(0, 6), self.random.randint(0, 6)])
            return {"type": "string", **self.pick([{"minLength": low}, {"maxLength": high}, {"minLength": low, "maxLength": high}])}
        if kind == 3:
            return {"type": "number", **self.bounds(False)}
        if kind == 4:
            return {"type": "integer", **self.bounds(True)}
        if kind == 5:
            low = self.random.randint(-60, 60)
            return {"type": "integer", "multipleOf": self.random.randint(1, 30), **self.pick([{}, {"minimum": low, "maximum": low + self.random.randint(0, 90)}])}
        if kind == 6:
            return {self.pick(["enum"]): [self.pick(self.VALUES) for _ in range(self.random.randint(1, 4))]}
        if kind == 7:
            return {"const": self.pick(self.VALUES)}
        return {"type": self.pick(["boolean", "null", ["string", "null"], "string", "number", "integer", ["integer", "boolean"]])}

    def schema(self, depth=0):
        kind = self.random.random()
        if depth > 2 or kind < 0.4:
            return self.leaf()
        if kind < 0.6:
            names = self.random.sample(self.NAMES, self.random.randint(1, 4))
            return {
                "type": "object",
                "properties": {name: self.schema(depth + 1) for name in names},
                "required": [name for name in names if self.random.random() < 0.6],
                **self.pick([{}, {"additionalProperties": False}, {"additionalProperties": True}, {"additionalProperties": self.leaf()}]),
            }
        if kind < 0.65:
            return {"type": "object", "additionalProperties": self.leaf()}
        if kind < 0.75:
            low, high = sorted([self.random.randint(0, 3), self.random.randint(0, 3)])
            return {"type": "array", "items": self.schema(depth + 1), **self.pick([{}, {"minItems": low}, {"maxItems": high}, {"minItems": low, "maxItems": high}])}
        if kind < 0.8:
            return {"type": "array", "prefixItems": [self.schema(depth + 1) for _ in range(self.random.randint(1, 2))], **self.pick([{}, {"items": False}, {"items": self.leaf()}, {"minItems": 1}, {"maxItems": 3}])}
        if kind < 0.88:
            return {"anyOf": [self.schema(depth + 1) for _ in range(2)]}
        if kind < 0.96:
            return {"oneOf": [self.pick([self.schema(depth + 1), {"minimum": 5}, {"maxLength": 2}, {"required": ["a"]}]) for _ in range(2)]}
        return {"properties": {"a": self.leaf()}, **self.pick([{}, {"required": ["a"]}])}


def problem(schema, text):
    """What is wrong with a finished answer, or None."""
    try:
        value = json.loads(text)
        VALIDATOR(schema).validate(value)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def fuzz(first_seed, schemas, walks):
    questions = [{"schema": Schemas(seed).schema(), "walks": walks, "seed": seed} for seed in range(first_seed, first_seed + schemas)]
    refused = samples = 0
    for question, answer in zip(questions, ask(questions)):
        refused += "error" in answer
        for text in answer.get("samples", []):
            samples += 1
            wrong = problem(question["schema"], text)
            assert wrong is None, f"seed {question['seed']}: {json.dumps(question['schema'])}: {text!r}: {wrong}"
        assert "check failed" not in answer.get("error", "").lower(), answer
    print(f"seeds {first_seed} to {first_seed + schemas - 1}: {samples} answers valid, {refused} of {schemas} schemas refused")
    return samples, refused


def test_answers_to_random_schemas_are_valid():
    samples, refused = fuzz(1, 300, 4)
    assert samples > 300 and refused < 150


@pytest.mark.nightly
def test_answers_to_many_random_schemas_are_valid():
    """New seeds each time; the failure names the one to repeat."""
    first = random.SystemRandom().randrange(10**9)
    samples, _ = fuzz(first, 20_000, 6)
    assert samples > 20_000


# Each was answered with something else once.
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": r"^[A-Z]:\\[a-z]+$"},
        {"type": "string", "pattern": r'^"a\\b"$'},
        {"type": "string", "pattern": r"^a\nb$"},
        {"type": "string", "pattern": "^a\tb$"},
        {"type": "string", "pattern": r"^\x41b$"},
        {"type": "number", "minimum": 600.0000004},
        {"type": "number", "minimum": 600.1234567, "maximum": 600.1234569},
        {"type": "number", "exclusiveMaximum": 12345.1234564, "minimum": 12345.123},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"é": {"type": "integer"}}, "required": ["é"], "additionalProperties": {"type": "string"}},
        {"type": "string", "maxLength": 128},
        {"type": "string", "minLength": 3, "maxLength": 140},
        {"const": 0.1},
        {"enum": ["</think>", "<think>", "\n\n"]},
    ],
)
def test_what_was_wrong_once(schema):
    (answer,) = ask([{"schema": schema, "walks": 40, "seed": 5}])
    assert answer["samples"], answer
    for text in answer["samples"]:
        assert problem(schema, text) is None, text


def test_constants_are_printed_as_they_came():
    for value in (0.1, 1e-7, 2**64 - 1, [1.5, {"a": 0.1}]):
        (answer,) = ask([{"schema": {"const": value}, "walks": 1}])
        assert json.loads(answer["samples"][0]) == value
    (answer,) = ask([{"schema": {"const": 0.1}, "walks": 1}])
    assert answer["samples"] == ["0.1"]


def test_other_spellings_of_a_declared_name_are_no_other_names():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "x/y": {"type": "integer"}, "é": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    texts = ['{"\\u0061":"b"}', '{"a":"b"}', '{"x\\/y":"b"}', '{"x/y":"b"}', '{"é":"b"}', '{"\\u00e9":"b"}', '{"aa":"b"}', '{"x":"b"}', '{"":"b"}', '{"ê":"b"}']
    (answer,) = ask([{"schema": schema, "texts": texts}])
    assert answer["said"] == [False] * 6 + [True] * 4


@pytest.mark.parametrize(
    "schema, found",
    [
        ({"oneOf": [{"minimum": 5}, {"type": "string"}]}, "oneOf: branches 0 and 1 do not differ"),
        ({"oneOf": [{"const": [1]}, {"const": [1.0]}]}, "oneOf: branches 0 and 1 do not differ"),
        ({"oneOf": [{"const": {"a": 1, "b": 2}}, {"const": {"b": 2, "a": 1}}]}, "oneOf: branches 0 and 1 do not differ"),
        ({"const": 123456789012345678901234567890}, "const: whole numbers beyond 64 bits can't be enforced"),
        ({"properties": {"a": {"$id": "http://x/y", "$ref": "#/$defs/b", "$defs": {"b": {"type": "null"}}}}}, "$id: references from a base of its own can't be enforced"),
        ({"$ref": "#/$defs/a/$defs/b", "$defs": {"a": {"$id": "http://x/y", "$defs": {"b": {"type": "null"}}}}}, "is inside a schema with its own $id"),
    ],
)
def test_what_would_be_weaker_is_refused(schema, found):
    (answer,) = ask([{"schema": schema}])
    assert found in answer["error"]


# ---- JSON-Schema-Test-Suite ----


def suite_cases():
    for file in sorted([*SUITE.glob("*.json"), *SUITE.glob("optional/format/*.json")]):
        for case in json.loads(file.read_text(encoding="utf-8")):
            yield f"{file.stem}: {case['description']}", case["schema"], case["tests"]


def spellings(value):
    yield json.dumps(value)
    yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    yield json.dumps(value, ensure_ascii=False, indent=1)


def test_no_invalid_instance_of_the_test_suite_can_be_said():
    """Each schema is refused, or none of its invalid instances can be an answer, and all that can be is valid."""
    cases = list(suite_cases())
    assert len(cases) > 300
    questions = [{"schema": schema, "texts": [text for test in tests for text in spellings(test["data"])], "walks": 4, "seed": 3} for _, schema, tests in cases]
    taken = valid_said = 0
    for (name, schema, tests), answer in zip(cases, ask(questions)):
        if "error" in answer:
            continue
        taken += 1
        said = iter(answer["said"])
        for test in tests:
            ways = [next(said) for _ in range(3)]
            assert test["valid"] or not any(ways), f"{name}: {test['description']}: {test['data']!r}"
            valid_said += test["valid"] and any(ways)
        if not name.startswith(("format", "content")):
            for text in answer["samples"]:
                assert problem(schema, text) is None, f"{name}: {json.dumps(schema)}: {text!r}"
    print(f"{taken} of {len(cases)} schemas are enforced, the others refused; {valid_said} valid instances can be said")
    assert taken > 100
