"""Answers under a grammar, over HTTP with models/mini; what is finished must satisfy an independent validator."""

import concurrent.futures
import json
import pathlib
import re

import jsonschema
import pytest

import served

NO_THINKING = {"type": "disabled"}
SCHEMAS = [json.loads(line) for line in pathlib.Path(__file__).with_name("schemas.jsonl").open(encoding="utf-8")]
VALIDATOR = jsonschema.Draft202012Validator
ADDED = {token["content"]: token["id"] for token in json.loads((served.MODEL_DIRECTORY / "tokenizer.json").read_text())["added_tokens"]}
END_ID, THINK_END_ID, DSML_ID = (ADDED[text] for text in ("<｜end▁of▁sentence｜>", "</think>", "｜DSML｜"))


@pytest.fixture(scope="module")
def server():
    running = served.Server()
    yield running
    assert running.stop() == 0


def json_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def check(schema, text):
    VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).validate(json.loads(text))


def sample(server, entry, temperature, n):
    """How many of n answers were finished; each of these satisfies its schema."""
    answer = server.chat(
        prompt=f"Give me JSON: {entry['name']}",
        thinking=NO_THINKING,
        response_format=json_format(entry["schema"]),
        temperature=temperature,
        seed=7,
        n=n,
        max_tokens=400,
    )
    finished = [choice for choice in answer["choices"] if choice["finish_reason"] == "stop"]
    for choice in finished:
        try:
            check(entry["schema"], choice["message"]["content"])
        except Exception as error:
            raise AssertionError(f"{entry['name']}: {choice['message']['content']!r}: {error}") from error
    return len(finished)


def sample_all(server, entries, temperature, n):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        finished = sum(pool.map(lambda entry: sample(server, entry, temperature, n), entries))
    print(f"{len(entries)} schemas x {n} at temperature {temperature}: {finished} finished, all valid")
    return finished


# ---- Schemas ----


def test_there_are_enough_schemas():
    assert len(SCHEMAS) >= 200
    for entry in SCHEMAS:
        VALIDATOR.check_schema(entry["schema"])


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_few_schemas_of_every_kind(server, temperature):
    assert sample_all(server, SCHEMAS[:: len(SCHEMAS) // 15], temperature, 1) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_every_finished_answer_satisfies_its_schema(server, temperature):
    assert sample_all(server, SCHEMAS, temperature, 3) > len(SCHEMAS)


@pytest.mark.parametrize("schema", [{"type": "string", "minLength": 20, "maxLength": 100}, {"type": "string", "minLength": 140, "maxLength": 200}, {"type": "string", "minLength": 140}, {"type": "string", "pattern": "^.{140,200}$"}])
def test_strings_with_a_length_hold_no_raw_control_characters(server, schema):
    """Even when the model is pushed to draw them; lengths above 128 take another way through the library."""
    controls = {str(i): 9 for text in ("\t", "\n", "\r", "\x01", "\x1f", "\n\n", "\t\t") for i in ids_of(server, text)}
    choice = server.chat(thinking=NO_THINKING, response_format=json_format(schema), temperature=1, seed=11, max_tokens=500, logit_bias=controls)["choices"][0]
    assert not re.search(r"[\x00-\x1f]", choice["message"]["content"].strip())
    if choice["finish_reason"] == "stop":
        check(schema, choice["message"]["content"])


# ---- Protocols ----

COLOUR = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"], "additionalProperties": False}


def test_json_object(server):
    choice = server.chat(thinking=NO_THINKING, response_format={"type": "json_object"}, temperature=1.5, seed=3, max_tokens=200)["choices"][0]
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"]), dict)
    else:
        assert choice["message"]["content"].startswith("{")


def test_the_grammar_begins_behind_the_thinking(server):
    choice = server.chat(response_format=json_format(COLOUR), thinking={"type": "enabled", "budget_tokens": 12}, temperature=1, seed=1, max_tokens=100)["choices"][0]
    check(COLOUR, choice["message"]["content"])
    assert "</think>" not in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"


def test_streams_logprobs_and_several_answers(server):
    chunks = server.stream(thinking=NO_THINKING, response_format=json_format(COLOUR), temperature=1, n=3, logprobs=True, top_logprobs=5)
    texts = ["", "", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
            for entry in (choice["logprobs"] or {}).get("content") or []:
                assert entry["logprob"] <= 1e-6
                assert sum(2.718281828 ** top["logprob"] for top in entry["top_logprobs"]) <= 1.001
    for text in texts:
        check(COLOUR, text)


def test_responses_and_messages(server):
    schema_format = {"type": "json_schema", "name": "colour", "schema": COLOUR}
    status, body = server.request("POST", "/v1/responses", {"model": served.MODEL, "input": "A colour?", "reasoning": {"effort": "none"}, "text": {"format": schema_format}, "max_output_tokens": 60})
    assert status == 200, body
    check(COLOUR, body["output"][0]["content"][0]["text"])
    assert body["text"]["format"] == schema_format
    for field in ({"output_format": schema_format}, {"output_config": {"format": schema_format}}):
        status, body = server.request("POST", "/v1/messages", {"model": served.MODEL, "max_tokens": 60, "thinking": NO_THINKING, "messages": [{"role": "user", "content": "A colour?"}], **field})
        assert status == 200, body
        check(COLOUR, body["content"][0]["text"])


@pytest.mark.parametrize(
    "fields, pattern",
    [
        ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_grammar": 'root ::= "a" root | "b"'}, "a*b"),
        ({"guided_json": COLOUR}, r'\{\s*"colour"\s*:\s*"(red|blue)"\s*\}'),
        ({"guided_json": json.dumps(COLOUR)}, r'\{\s*"colour"\s*:\s*"(red|blue)"\s*\}'),
        ({"structured_outputs": {"regex": "[0-9]{2}"}}, "[0-9]{2}"),
        ({"structured_outputs": {"choice": ["left"]}}, "left"),
        ({"structured_outputs": {"structural_tag": {"type": "structural_tag", "format": {"type": "tag", "begin": "<x>", "content": {"type": "regex", "pattern": "[ab]"}, "end": "</x>"}}}}, "<x>[ab]</x>"),
        ({"response_format": {"type": "regex", "pattern": "^ok$"}}, "ok"),
        ({"so_args": {"schema_type": "regex", "schema": "[xyz]"}}, "[xyz]"),
        ({"so_args": {"schema_type": "ebnf", "schema": 'root ::= "q"'}}, "q"),
    ],
)
def test_fields_of_other_servers(server, fields, pattern):
    choice = server.chat(thinking=NO_THINKING, temperature=1, seed=5, max_tokens=80, **fields)["choices"][0]
    if choice["finish_reason"] == "stop":
        assert re.fullmatch(pattern, choice["message"]["content"])


def ids_of(server, text):
    return server.request("POST", "/tokenize", {"model": served.MODEL, "prompt": text, "add_special_tokens": False})[1]["tokens"]


def test_a_trigger_of_ones_own(server):
    """DeepInfer's trigger and bound: free text until the bound, then the trigger, then the grammar."""
    bound, trigger = ids_of(server, "B")[0], ids_of(server, "Z")
    answer = server.chat(
        thinking=NO_THINKING,
        temperature=1.5,
        seed=2,
        max_tokens=40,
        so_args={"schema_type": "regex", "schema": "[0-9]{4}", "trigger_token_ids": trigger, "bound_token_id": bound},
        logit_bias={str(bound): 100},
    )
    assert re.fullmatch("BZ[0-9]{4}", answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("text", ["close it with </think> please", "</think>", "<think>", "\n\n", "<｜end▁of▁sentence｜>", "</invoke>"])
def test_what_the_grammar_accepted_is_what_the_client_gets(server, text):
    """In every protocol, and as a stream: nothing is taken out of a constrained answer."""
    schema, cold = {"enum": [text]}, dict(thinking=NO_THINKING, temperature=0, max_tokens=100)
    schema_format = {"type": "json_schema", "name": "answer", "schema": schema}
    assert json.loads(server.chat(response_format=json_format(schema), **cold)["choices"][0]["message"]["content"]) == text
    assert server.chat(guided_choice=[text], **cold)["choices"][0]["message"]["content"] == text
    streamed = server.stream(guided_choice=[text], **cold)
    assert "".join(choice["delta"].get("content") or "" for chunk in streamed for choice in chunk["choices"]) == text
    behind_thoughts = server.chat(guided_choice=[text], **{**cold, "thinking": {"type": "enabled", "budget_tokens": 3}})
    assert behind_thoughts["choices"][0]["message"]["content"] == text
    _, body = server.request("POST", "/v1/completions", {"model": served.MODEL, "prompt": "x", "temperature": 0, "max_tokens": 100, "guided_choice": [text]})
    assert body["choices"][0]["text"] == text
    _, body = server.request("POST", "/v1/responses", {"model": served.MODEL, "input": "x", "reasoning": {"effort": "none"}, "temperature": 0, "max_output_tokens": 100, "text": {"format": schema_format}})
    assert json.loads(body["output"][0]["content"][0]["text"]) == text
    _, body = server.request("POST", "/v1/messages", {"model": served.MODEL, "max_tokens": 100, "temperature": 0, "thinking": NO_THINKING, "messages": [{"role": "user", "content": "x"}], "output_format": schema_format})
    assert json.loads(body["content"][0]["text"]) == text


def test_a_character_that_the_token_limit_cuts_is_left_out(server):
    text = "a\U0001f9ffb"
    length = len(ids_of(server, text))
    assert length > 4  # the character takes several tokens
    for limit in range(1, length + 1):
        choice = server.chat(thinking=NO_THINKING, guided_choice=[text], temperature=0, max_tokens=limit)["choices"][0]
        assert text.startswith(choice["message"]["content"]), (limit, choice)


# ---- Tools ----

ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "unit": {"enum": ["m", "km"]}, "note": {"type": ["string", "null"], "maxLength": 8}}, "required": ["a", "unit", "note"], "additionalProperties": False}}
NOW = {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}


def functions(*tools, **more):
    return [{"type": "function", "function": {"description": "d", **tool, **more}} for tool in tools]


def check_calls(choice, serial=False):
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert not serial or len(calls) == 1
    for call in calls:
        tool = {"add": ADD, "now": NOW}[call["function"]["name"]]
        check(tool["parameters"], call["function"]["arguments"])


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_forced_call_is_a_call_and_valid(server, temperature):
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        answer = server.chat(thinking=NO_THINKING, tools=functions(ADD, NOW), tool_choice=choice, parallel_tool_calls=False, temperature=temperature, seed=4, max_tokens=300)
        check_calls(answer["choices"][0], serial=True)


def test_a_forced_call_behind_thinking(server):
    answer = server.chat(thinking={"type": "enabled", "budget_tokens": 10}, tools=functions(ADD, strict=True), tool_choice="required", parallel_tool_calls=False, temperature=1, seed=4, max_tokens=300)
    check_calls(answer["choices"][0], serial=True)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 11


def test_forced_calls_in_the_other_protocols(server):
    tool = {"type": "function", **ADD, "strict": True}
    status, body = server.request("POST", "/v1/responses", {"model": served.MODEL, "input": "x", "reasoning": {"effort": "none"}, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 300})
    assert status == 200, body
    check(ADD["parameters"], body["output"][0]["arguments"])
    tool = {"name": "add", "input_schema": ADD["parameters"], "strict": True}
    status, body = server.request("POST", "/v1/messages", {"model": served.MODEL, "max_tokens": 300, "thinking": NO_THINKING, "messages": [{"role": "user", "content": "x"}], "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}})
    assert status == 200, body
    assert body["stop_reason"] == "tool_use"
    VALIDATOR(ADD["parameters"]).validate(body["content"][0]["input"])


def test_b45_the_block_opener_triggers_the_grammar_where_nothing_is_forced(server):
    """Acceptance case B45 (recipe 13): tool_choice auto, tools that are not strict; the grammar binds once a block opens."""
    bias = {str(i): 12 for i in (ids_of(server, "<")[0], DSML_ID)}
    num_calls = 0
    for seed in range(6):
        choice = server.chat(thinking=NO_THINKING, tools=functions(ADD, NOW), constrain_tool_calls=True, parallel_tool_calls=False, temperature=1.2, seed=seed, max_tokens=300, logit_bias=bias)["choices"][0]
        if choice["finish_reason"] == "tool_calls":
            check_calls(choice, serial=True)
            num_calls += 1
        assert "DSML" not in (choice["message"]["content"] or "")
    assert num_calls > 0


@pytest.mark.parametrize(
    "syntax, definition, pattern",
    [("regex", "^[a-c]{3}-[0-9]$", "[a-c]{3}-[0-9]"), ("lark", 'start: "put " NUMBER ("," NUMBER)?\nNUMBER: /[0-9]{2}/\n', "put [0-9]{2}(,[0-9]{2})?")],
)
def test_the_input_of_a_custom_tool_keeps_to_its_grammar(server, syntax, definition, pattern):
    tool = {"type": "custom", "name": "run", "description": "d", "format": {"type": "grammar", "syntax": syntax, "definition": definition}}
    status, body = server.request("POST", "/v1/responses", {"model": served.MODEL, "input": "x", "reasoning": {"effort": "none"}, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 300, "temperature": 1.5})
    assert status == 200, body
    assert body["output"][0]["type"] == "custom_tool_call"
    assert re.fullmatch(pattern, body["output"][0]["input"])


def test_a_strict_tool_with_names_of_any_kind_holds_their_values_to_the_schema(server):
    tool = {"name": "count", "parameters": {"type": "object", "additionalProperties": {"type": "integer"}}}
    for seed in range(4):
        choice = server.chat(thinking=NO_THINKING, tools=functions(tool, strict=True), tool_choice="required", parallel_tool_calls=False, temperature=1, seed=seed, max_tokens=200)["choices"][0]
        if choice["finish_reason"] == "tool_calls":
            check(tool["parameters"], choice["message"]["tool_calls"][0]["function"]["arguments"])


# ---- Thinking budget ----


@pytest.mark.parametrize("budget", [0, 1, 7, 25])
def test_b29_thinking_that_does_not_close_is_ended_by_its_budget(server, budget):
    """Acceptance case B29 (recipe 13). The bias keeps the model from closing its thinking by itself."""
    open_for_ever = {str(THINK_END_ID): -100, str(END_ID): -100}
    fields = dict(thinking={"type": "enabled", "budget_tokens": budget}, temperature=1, seed=9, max_tokens=budget + 30, logit_bias=open_for_ever)
    answers = [server.chat(**fields) for _ in range(2)]
    choice = answers[0]["choices"][0]
    assert choice["message"] == answers[1]["choices"][0]["message"]
    assert budget <= answers[0]["usage"]["completion_tokens_details"]["reasoning_tokens"] <= budget + 1
    assert "</think>" not in choice["message"]["reasoning_content"] + choice["message"]["content"]
    without = server.chat(**{**fields, "thinking": {"type": "enabled"}})["choices"][0]["message"]["reasoning_content"]
    assert without.startswith(choice["message"]["reasoning_content"])


def test_budgets_of_the_other_protocols(server):
    status, body = server.request("POST", "/v1/messages", {"model": served.MODEL, "max_tokens": 60, "thinking": {"type": "enabled", "budget_tokens": 3}, "messages": [{"role": "user", "content": "What is 34 + 57?"}]})
    assert status == 200 and body["content"][0]["type"] == "thinking"
    assert len(body["content"][0]["thinking"]) < 60
    status, body = server.request("POST", "/v1/responses", {"model": served.MODEL, "input": "What is 34 + 57?", "reasoning": {"max_tokens": 3}, "max_output_tokens": 60})
    assert status == 200
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] <= 4


# ---- What is refused ----


@pytest.mark.parametrize(
    "fields, found",
    [
        ({"response_format": json_format({"type": "object", "properties": {"a": {"not": {}}}})}, "response_format.json_schema.schema.properties.a: not: "),
        ({"response_format": json_format({"type": "string", "minLength": 3, "maxLength": 2})}, "response_format.json_schema.schema: minLength: "),
        ({"response_format": json_format({"$ref": "#"})}, "no finite value satisfies"),
        ({"response_format": json_format(False)}, "no finite value satisfies"),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema"),
        ({"guided_regex": "(a"}, "guided_regex: pattern: "),
        ({"guided_grammar": "root ::= nobody"}, "grammar: "),
        ({"guided_choice": []}, "guided_choice: "),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "found two grammars"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"so_args": {"schema_type": "xml", "schema": ""}}, "so_args.schema_type"),
        ({"so_args": {"schema_type": "regex", "schema": "a", "bound_token_id": 3}}, "so_args.bound_token_id"),
        ({"so_args": {"schema_type": "regex", "schema": "a", "trigger_token_ids": [99999999]}}, "so_args.trigger_token_ids"),
        ({"tools": functions({"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {}}}}}, strict=True)}, "tools['f'].parameters.properties.a: not: "),
        ({"tools": functions({"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": ["</｜DSML｜ parameter>"]}}, "required": ["a"]}}, strict=True), "tool_choice": "required"}, "tools['f'].parameters.properties.a: no value of it can be written in a call"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
    ],
)
def test_a_refusal_names_what_and_where(server, fields, found):
    status, body = server.request("POST", "/v1/chat/completions", served.chat_body(**fields))
    assert status == 400, body
    assert found in body["error"]["message"]


def test_bombs_are_refused_quickly_and_neighbours_do_not_notice(server):
    deep = {"type": "null"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    wide = {f"p{i}": {f"q{j}": {"type": "object"} for j in range(100)} for i in range(100)}
    bombs = [
        deep,
        {"type": "object", "properties": {key: {"type": "object", "properties": value} for key, value in wide.items()}},
        {"type": "string", "pattern": "((a{90}){90}){90}"},
        {"enum": list(range(100000))},
        {"type": "array", "items": {}, "minItems": 10**9},
    ]
    for bomb in bombs:
        status, body = server.request("POST", "/v1/chat/completions", served.chat_body(response_format=json_format(bomb)))
        assert status == 400, body
    assert server.chat(max_tokens=5)["choices"][0]["finish_reason"] in ("length", "stop")


def wide_schema(name):
    """Legal, and seconds of work to compile."""
    variants = {f"{name}_{i}": {"anyOf": [{"type": "string", "maxLength": 100}, {"type": "integer", "minimum": i}]} for i in range(500)}
    return {"type": "object", "properties": variants}


@pytest.mark.nightly
def test_schemas_that_are_much_work_do_not_keep_others_from_theirs():
    """Six at once, three times: each ends by itself or by its limit, simple ones are answered meanwhile and afterwards, and
    the server stops while some are being compiled."""
    server = served.Server()
    ask = lambda schema: server.request("POST", "/v1/chat/completions", served.chat_body(thinking=NO_THINKING, response_format=json_format(schema), max_tokens=5))[0]
    simple = lambda name: {"type": "object", "properties": {name: {"type": "boolean"}}}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for turn in range(3):
            much = [pool.submit(ask, wide_schema(f"t{turn}_{i}")) for i in range(6)]
            assert all(pool.submit(ask, simple(f"s{turn}_{i}")).result() == 200 for i in range(5))
            assert {one.result() for one in much} <= {200, 400, 504}
        assert ask(simple("later")) == 200
        left = [pool.submit(ask, wide_schema(f"left_{i}")) for i in range(6)]
        assert ask(simple("last")) == 200
        assert server.stop() == 0
        assert {one.exception() is not None or one.result() in (200, 503) for one in left} == {True}


def test_numbers_are_on_metrics_and_status(server):
    server.chat(thinking=NO_THINKING, guided_choice=["one"])
    server.chat(thinking=NO_THINKING, guided_choice=["one"])
    text = server.request("GET", "/metrics")[1].decode()
    values = dict(re.findall(r"^(deepinfer_grammar_\w+) (\d+)", text, re.M))
    assert int(values["deepinfer_grammar_compiled"]) >= 1
    assert int(values["deepinfer_grammar_hits"]) >= 1
    assert int(values["deepinfer_grammar_compile_ns"]) > 0
    status = server.request("GET", "/status")[1]
    assert "grammar" in (status if isinstance(status, str) else status.decode())
