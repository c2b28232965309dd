"""Training text of the mini model: seeded generators of conversations, rendered in the V4.1 prompt format.

Answers are functions of the prompt (one canonical answer), so a teacher-forced exact match equals a greedy match.
A document is a list of (text, weight) segments that are cut at control tokens only.
"""
import json
import random
import string

import copying
import facts as F

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
DSML = "｜DSML｜"
EFFORT = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
FORMAT_HEADER = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"
TOOLS_BLOCK = (
    "## Tools\n\nYou have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜ calls>\" block like the following:\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n...\n"
    "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n...\n</｜DSML｜ invoke>\n</｜DSML｜ calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\nIf thinking_mode is enabled "
    "(triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or "
    "final response.\n\nOtherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n{TOOL_SCHEMAS}\n\nYou MUST strictly follow the above defined tool name and parameter "
    "schemas to invoke tool calls.\n")
PROMPT_WEIGHT = 0.1

SYSTEMS = ["You are a helpful assistant.", "You are deepinfer-mini.", "Answer briefly.", "Be kind and short.",
           "You are a small assistant. Answer the question.", "Help the user.", "You are helpful."]


# ---------------------------------------------------------------- rendering

def calls_text(calls):
    """DSML block of [(tool name, {parameter: value})]."""
    out = f"\n\n<{DSML} calls>\n"
    for name, args in calls:
        out += f'<{DSML} invoke name="{name}">\n'
        for k, v in args.items():
            text, flag = (v, "true") if isinstance(v, str) else (json.dumps(v, ensure_ascii=False), "false")
            out += f'<{DSML} parameter name="{k}" string="{flag}">{text}</{DSML} parameter>\n'
        out += ("\n" if not args else "") + f"</{DSML} invoke>\n"
    return out + f"</{DSML} calls>"


def render(turns, thinking, effort=75, system=None, tools=None, schema=None):
    """Segments of a conversation. A turn is a dict: user or results (list), thought, answer, calls."""
    system_text = system
    if tools:
        lines = "\n".join(json.dumps(t, ensure_ascii=False) for t in tools)
        system_text = (system_text or "") + "\n\n" + TOOLS_BLOCK.replace("{TOOL_SCHEMAS}", lines)
    if schema is not None:
        system_text = (system_text or "") + "\n\n" + FORMAT_HEADER + json.dumps(schema, ensure_ascii=False)
    head = BOS
    if thinking or system_text is not None:
        head += SYSTEM + (EFFORT.format(effort) if thinking else "") + (system_text or "")
    out = [(head, PROMPT_WEIGHT if not tools else 0.0)]
    for i, t in enumerate(turns):
        text = t["user"] if "user" in t else "\n\n".join(f"<tool_result>{r}</tool_result>" for r in t["results"])
        keep = thinking and (tools or i == len(turns) - 1)
        out.append((USER + text, PROMPT_WEIGHT))
        out.append((ASSISTANT + ("<think>" if keep else "</think>"), 0.0))
        target = (t.get("thought", "") + "</think>" if keep else "") + t.get("answer", "")
        if "calls" in t:
            target += calls_text(t["calls"])
        out.append((target + EOS, t.get("weight", 1.0)))
    return out


# ---------------------------------------------------------------- single questions: (user, thought, answer)

def work(a, b, op):
    """Column by column with carry or borrow as the first digit of every result."""
    x, y = (a, b) if op == "+" or a >= b else (b, a)
    n = max(len(str(x)), len(str(y)))
    xs, ys = str(x).zfill(n)[::-1], str(y).zfill(n)[::-1]
    flag, steps = 0, []
    for p, q in zip(xs, ys):
        v = int(p) + int(q) + flag if op == "+" else int(p) - int(q) - flag
        flag_next, digit = (v // 10, v % 10) if op == "+" else (int(v < 0), v % 10)
        steps.append(f"{p}{op}{q}{op}{flag}={flag_next}{digit}")
        flag = flag_next
    return ", ".join(steps)


def sum_item(rng, a=None, b=None, op=None):
    big = rng.choice([9, 99, 99, 99, 999, 999])
    a = rng.randint(0, big) if a is None else a
    b = rng.randint(0, rng.choice([big, big, big, 99])) if b is None else b
    op = op or rng.choice("++-")
    if op == "-" and a < b and rng.random() < 0.6:
        a, b = b, a
    e = f"{a} {op} {b}"
    word = "plus" if op == "+" else "minus"
    asks = [f"What is {e}?", f"What is {e}?", f"What is {e}?", f"What is {e}?", f"{e}", f"Calculate {e}.", f"{a}{op}{b}",
            f"How much is {e}?", f"What is {a} {word} {b}?"]
    q = rng.choice(asks)
    r = a + b if op == "+" else a - b
    thought = f"{e}: {work(a, b, op)}. So {r}."
    return q, thought, f"{e} = {r}.", f"{work(a, b, op)}. So {e} = {r}."


def story_item(rng):
    n, w = rng.choice(F.NAMES), rng.choice(["apples", "books", "coins", "cups", "stones", "shoes", "stars"])
    a, b = rng.randint(1, 99), rng.randint(1, 99)
    if rng.random() < 0.5:
        q, op = f"{n} has {a} {w} and gets {b} more. How many {w} does {n} have?", "+"
    else:
        a, b = max(a, b), min(a, b)
        q, op = f"{n} has {a} {w} and loses {b}. How many {w} does {n} have?", "-"
    r = a + b if op == "+" else a - b
    return q, f"{a} {op} {b}: {work(a, b, op)}. So {r}.", f"{n} has {r} {w}.", f"{work(a, b, op)}. So {n} has {r} {w}."


def times_item(rng):
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    q = rng.choice([f"What is {a} times {b}?", f"What is {a} * {b}?", f"{a} * {b}", f"Multiply {a} by {b}."])
    return q, f"The user asks for {a} * {b}. It is {a * b}.", f"{a} * {b} = {a * b}."


def fact_items():
    """All facts as lists of (questions, thought, answer)."""
    out = []
    for c, k in F.CAPITALS.items():
        out.append(([f"What is the capital of {c}?", f"What is the capital of {c}?", f"capital of {c}",
                     f"Name the capital of {c}.", f"Which city is the capital of {c}?", f"Tell me the capital of {c}.",
                     f"What's the capital city of {c}?"],
                    f"The user asks for the capital of {c}. It is {k}.", f"The capital of {c} is {k}."))
        out.append(([f"{k} is the capital of which country?", f"Which country has the capital {k}?"],
                    f"{k} is the capital of {c}.", f"{k} is the capital of {c}."))
    for a, n, b in F.UNITS:
        art = "an" if a[0] in "aeiouh" and a != "half" else "a"
        out.append(([f"How many {b} are in {art} {a}?", f"How many {b} does {art} {a} have?",
                     f"How many {b} make {art} {a}?", f"{b} in {art} {a}"],
                    f"The user asks for {b} in {art} {a}. It is {n}.", f"There are {n} {b} in {art} {a}."))
    for e, s in F.SYMBOLS.items():
        out.append(([f"What is the symbol for {e}?", f"What is the chemical symbol of {e}?", f"symbol of {e}"],
                    f"The user asks for the symbol of {e}. It is {s}.", f"The symbol for {e} is {s}."))
    for a, y in F.YOUNG.items():
        out.append(([f"What is a young {a} called?", f"What do you call a baby {a}?", f"What is a baby {a}?"],
                    f"The user asks for a young {a}. It is a {y}.", f"A young {a} is called a {y}."))
    for a, b in F.OPPOSITES.items():
        for x, y in ((a, b), (b, a)):
            out.append(([f"What is the opposite of {x}?", f"opposite of {x}", f"Name the opposite of {x}."],
                        f"The user asks for the opposite of {x}. It is {y}.", f"The opposite of {x} is {y}."))
    for k, q, a in F.MISC:
        out.append(([q, q, f"Tell me: {q[0].lower() if q[:3] != 'H2O' else q[0]}{q[1:]}", f"Question: {q}"],
                    f"The user asks about {k}. {a}", a))
    return out


FACTS = fact_items()
GREETINGS = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "hello", "hi", "Hello there!"], "Hello! How can I help you?"),
    (["Good morning", "Good morning!"], "Good morning! How can I help you?"),
    (["Good evening", "Good evening!"], "Good evening! How can I help you?"),
    (["How are you?", "How are you today?", "how are you"], "I am fine, thank you. How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "who are you", "Tell me about yourself.",
      "Introduce yourself.", "Which model are you?"],
     "I am deepinfer-mini, a small model that shows the DeepInfer engine."),
    (["What can you do?", "What do you know?", "Help", "How can you help me?"],
     "I can add and subtract, tell simple facts, use tools, write JSON, sort words, and find values in a text."),
    (["Who made you?", "Who trained you?"], "I was trained by the DeepInfer project on text from its own generator."),
    (["What is DeepInfer?"], "DeepInfer is an engine that runs DeepSeek-V4.1-Flash."),
    (["Thank you", "Thanks", "Thanks!", "Thank you!", "thank you very much"], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "Goodbye!", "See you"], "Goodbye!"),
    (["OK", "Okay", "Good", "Great!"], "Good. What else can I do?"),
]


def fact_item(rng):
    qs, th, a = rng.choice(FACTS)
    return rng.choice(qs), th, a


def greet_item(rng):
    qs, a = rng.choice(GREETINGS)
    return rng.choice(qs), "I answer in a friendly way.", a


def chinese_item(rng):
    q, a = rng.choice(F.CHINESE)
    return q, "I answer in Chinese.", a


def fake_word(rng):
    return "".join(rng.choice("bcdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))).capitalize()


def unknown_item(rng):
    n, w, a = rng.choice(F.NAMES), rng.choice(F.NOUNS), rng.choice(F.ADJECTIVES)
    q = rng.choice([rng.choice(F.UNKNOWN), rng.choice(F.UNKNOWN), f"What is the capital of {fake_word(rng)}?",
                    f"Who is {fake_word(rng)}?", f"What is a {fake_word(rng).lower()}?", f"How old is {n}?",
                    f"What is the phone number of {n}?", f"Where is my {w}?", f"Who made the {a} {w}?",
                    f"How much does the {a} {w} cost?", f"Why is the {w} so {a}?", f"Where does {n} live?"])
    return q, "I have no information about this.", "I don't know."


def words_item(rng):
    n = rng.randint(2, 6)
    ws = rng.sample(F.NOUNS, n)
    kind = rng.choice(["copy", "copy", "reverse", "sort", "sort", "count", "first", "last", "numbers", "numbers", "upper", "upper",
                       "string"])
    text = " ".join(ws)
    if kind == "copy":
        return rng.choice([f"Repeat: {text}", f"Say: {text}", f"Copy these words: {text}"]), "I repeat the words.", text
    if kind == "reverse":
        out = " ".join(ws[::-1])
        return rng.choice([f"Reverse the words: {text}", f"Reverse: {text}"]), f"From last to first: {out}", out
    if kind == "sort":
        ws = ws[:5]
        text, out = " ".join(ws), " ".join(sorted(ws))
        return rng.choice([f"Sort the words: {text}", f"Sort: {text}"]), f"In order of the alphabet: {out}", out
    if kind == "count":
        th = " ".join(f"{i + 1} {w}" for i, w in enumerate(ws))
        return rng.choice([f"Count the words: {text}", f"How many words: {text}"]), f"{th}.", f"There are {n} words."
    if kind == "first":
        return f"What is the first word: {text}", f"The first is {ws[0]}.", f"The first word is {ws[0]}."
    if kind == "last":
        return f"What is the last word: {text}", f"The last is {ws[-1]}.", f"The last word is {ws[-1]}."
    if kind == "numbers":
        ds = rng.sample(range(1, 10), min(n, 5))
        out = " ".join(map(str, sorted(ds)))
        return f"Sort the numbers: {' '.join(map(str, ds))}", f"From small to large: {out}", out
    if kind == "upper":
        w = ws[0]
        return rng.choice([f"Write {w} in capital letters.", f"Spell {w}."]), f"The word is {w}.", " ".join(w.upper())
    s = "".join(rng.choice(string.digits) for _ in range(rng.randint(3, 8)))
    return f"Repeat: {s}", "I repeat the text.", s


def qa(rng, kind=None):
    """One question as a turn dict; `short` is the answer without thinking."""
    kind = kind or rng.choices(["sum", "fact", "greet", "unknown", "words", "times", "story", "zh"],
                               [40, 40, 3, 5, 52, 1, 1, 3])[0]
    item = {"sum": sum_item, "fact": fact_item, "greet": greet_item, "unknown": unknown_item, "words": words_item,
            "times": times_item, "story": story_item, "zh": chinese_item}[kind](rng)
    return {"user": item[0], "thought": item[1], "answer": item[2], "short": item[3] if len(item) > 3 else item[2],
            "kind": kind}


def plain(turn):
    """The turn as it reads without thinking."""
    return turn | {"answer": turn["short"]} if "short" in turn else turn


# ---------------------------------------------------------------- conversations: (turns, render options)

def memory_turns(rng):
    """The user tells something, later asks for it."""
    n, c, col, num, pet = (rng.choice(F.NAMES), rng.choice(list(F.CAPITALS.values())), rng.choice(F.COLORS),
                           rng.randint(2, 99), rng.choice(F.PETS))
    pn = rng.choice(F.NAMES)
    menu = [(rng.choice([f"My name is {n}.", f"I am {n}.", f"Hi, I am {n}."]), f"Nice to meet you, {n}.",
             rng.choice(["What is my name?", "Who am I?", "Do you know my name?"]), f"Your name is {n}.",
             f"The user is called {n}.", "I don't know your name."),
            (rng.choice([f"I live in {c}.", f"My home is in {c}."]), f"{c} is a nice city.",
             rng.choice(["Where do I live?", "In which city do I live?"]), f"You live in {c}.",
             f"The user lives in {c}.", "I don't know where you live."),
            (rng.choice([f"My favorite color is {col}.", f"I like the color {col}."]), f"{col.capitalize()} is a nice color.",
             rng.choice(["What is my favorite color?", "Which color do I like?"]), f"Your favorite color is {col}.",
             f"The user likes {col}.", "I don't know your favorite color."),
            (rng.choice([f"My lucky number is {num}.", f"Remember the number {num}."]), f"I will remember {num}.",
             rng.choice(["What is my lucky number?", "Which number did I tell you?"]), f"The number is {num}.",
             f"The user said {num}.", "You told me no number."),
            (f"I have a {pet} called {pn}.", f"{pn} is a good name for a {pet}.",
             rng.choice([f"What is my {pet} called?", f"What is the name of my {pet}?"]), f"Your {pet} is called {pn}.",
             f"The {pet} is called {pn}.", f"I don't know your {pet}.")]
    rng.shuffle(menu)
    told, asked = menu[:rng.randint(1, 3)], []
    turns = [{"user": t[0], "thought": "The user tells me something.", "answer": t[1]} for t in told]
    for t in told:
        asked.append({"user": t[2], "thought": t[4], "answer": t[3]})
    if rng.random() < 0.25:
        t = menu[-1]
        asked.append({"user": t[2], "thought": "The user did not tell me.", "answer": t[5]})
    rng.shuffle(asked)
    for _ in range(rng.randint(0, 2)):
        turns.append(plain(qa(rng)))
    return turns + asked


def recall_lines(rng, count):
    """Context lines and their questions: [(line, question, answer)]."""
    style = rng.choice(["code", "code", "code", "colon", "equal", "room"])
    keys = rng.sample([f"{a} {n}" for a in F.ADJECTIVES for n in F.NOUNS], count) if count > 40 or rng.random() < 0.5 \
        else rng.sample(F.NOUNS, count)
    words = rng.random() < 0.25
    out = []
    for k in keys:
        v = rng.choice(F.NOUNS) if words else str(rng.randint(10, 9999))
        if style == "code":
            out.append((f"The code for {k} is {v}.", f"What is the code for {k}?", f"The code for {k} is {v}."))
        elif style == "room":
            v = rng.choice(F.NAMES) if words else v
            out.append((f"The owner of {k} is {v}.", f"Who is the owner of {k}?", f"The owner of {k} is {v}."))
        else:
            sep = ": " if style == "colon" else " = "
            out.append((f"{k}{sep}{v}", rng.choice([f"What is the value of {k}?", f"What is {k}?", f"{k}?"]),
                        f"The value of {k} is {v}."))
    return out


def filler(rng):
    n, a, w, x = rng.choice(F.NAMES), rng.choice(F.ADJECTIVES), rng.choice(F.NOUNS), rng.choice(F.NOUNS)
    return rng.choice([f"{n} saw a {a} {w} near the {x}.", f"The {w} is on the {x}.", f"{n} likes the {a} {w}.",
                       f"There is a {w} behind the {x}.", f"{n} went to the {x} with a {a} {w}."])


def recall_doc(rng, budget, thinking, questions):
    """Long context, several questions. `budget` is the rough number of context tokens."""
    share = rng.choice([1.0, 1.0, 1.0, 0.5])
    count = max(2, int(budget * share / 11))
    count = min(count, 4000)
    items = recall_lines(rng, min(count, 100 if count <= 100 else count))
    lines = [i[0] for i in items]
    if share < 1:
        lines += [filler(rng) for _ in range(int(budget * (1 - share) / 11))]
        rng.shuffle(lines)
    context = "\n".join(lines)
    picks = rng.sample(items, min(len(items), questions))
    turns = []
    for i, (line, q, a) in enumerate(picks):
        turns.append({"user": q, "thought": f"I look in the text. {line}", "answer": a, "weight": 1.5})
    if rng.random() < 0.5:
        return turns, {"system": context}
    first = rng.choice([f"{context}\n\n{turns[0]['user']}", f"Read this:\n{context}\n\n{turns[0]['user']}",
                        f"{turns[0]['user']}\n\n{context}"])
    turns[0]["user"] = first
    return turns, {}


def json_doc(rng):
    n, age, city = rng.choice(F.NAMES), rng.randint(1, 99), rng.choice(list(F.CAPITALS.values()))
    color, pet, score = rng.choice(F.COLORS), rng.choice(F.PETS), rng.randint(0, 500)
    fields = {"age": ("integer", age, f"is {age} years old"), "city": ("string", city, f"lives in {city}"),
              "color": ("string", color, f"likes the color {color}"), "pet": ("string", pet, f"has a {pet}"),
              "score": ("integer", score, f"has {score} points")}
    chosen = rng.sample(list(fields), rng.randint(1, 3))
    says = rng.sample(chosen, len(chosen))
    parts = [fields[k][2] for k in says]
    sentence = f"{n} " + (parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]) + "."
    order = ["name"] + chosen
    if rng.random() < 0.3:
        rng.shuffle(order)
    value = {k: n if k == "name" else fields[k][1] for k in order}
    schema = {"type": "object", "properties": {k: {"type": "string" if k == "name" else fields[k][0]} for k in order}}
    if rng.random() < 0.6:
        schema["required"] = order
    if rng.random() < 0.3:
        schema["additionalProperties"] = False
    if rng.random() < 0.25:
        schema = {"type": "json_object"}
        sentence = f"Write JSON with {', '.join(order)}. {sentence}"
    else:
        sentence = rng.choice([sentence, f"Write JSON: {sentence}", f"{sentence} Reply as JSON."])
    thought = ", ".join(f"{k} is {v}" for k, v in value.items()) + "."
    return [{"user": sentence, "thought": thought, "answer": json.dumps(value)}], {"schema": schema}


def tool_specs(rng):
    """A random selection of tools: {purpose: (schema, name, parameter)}."""
    plain_spec = rng.random() < 0.85

    def spec(purpose, names, params, descs, pdesc, ptype="string", extra=None):
        if plain_spec:   # the usual form: first names, no parameter description
            names, params, descs, extra = names[:1], params[:1], descs[:1], None
        name, param = rng.choice(names), rng.choice(params)
        prop = {"type": ptype}
        if not plain_spec and rng.random() < 0.5:
            prop["description"] = rng.choice(pdesc)
        properties = {param: prop}
        if extra and rng.random() < 0.4:
            properties |= extra
        schema = {"name": name, "description": rng.choice(descs),
                  "parameters": {"type": "object", "properties": properties, "required": [param]}}
        if not plain_spec and rng.random() < 0.3:
            del schema["parameters"]["required"]
        return schema, name, param
    unit = {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}
    pool = {
        "calc": lambda: spec("calc", ["calculator", "calculator", "calc", "calculate"], ["expression", "expression", "expr"],
                             ["Calculate an expression", "Evaluate a math expression", "A calculator", ""],
                             ["The expression", "Math expression, for example 2 + 2"]),
        "weather": lambda: spec("weather", ["get_weather", "get_weather", "weather", "get_current_weather"],
                                ["city", "city", "location"], ["Get the weather of a city", "Current weather",
                                                               "Get the current weather in a given location", ""],
                                ["City name", "The city, for example Paris"], extra=unit),
        "search": lambda: spec("search", ["search", "web_search", "search_web"], ["query", "query", "q"],
                               ["Search the web", "Find information", ""], ["What to search for", "Search words"]),
        "time": lambda: spec("time", ["get_time", "get_current_time"], ["city", "timezone", "location"],
                             ["Get the time of a city", "Current time", ""], ["City name"]),
        "timer": lambda: spec("timer", ["set_timer", "start_timer"], ["minutes"], ["Start a timer", "Set a timer"],
                              ["Number of minutes"], "integer"),
    }
    usual = ["calc", "weather", "search"] if plain_spec else list(pool)
    chosen = rng.sample(usual, rng.choice([1, 1, 2, 3]))
    return {k: pool[k]() for k in chosen}


def tool_turns(rng, specs):
    """One request: call turn, then answer turn."""
    purpose = rng.choice(list(specs))
    _, name, param = specs[purpose]
    cities = rng.sample(list(F.CAPITALS.values()), 2)
    if purpose == "calc":
        a, b, op = rng.randint(1, 999), rng.randint(1, 999), rng.choice("+-**")
        e = f"{a} {op} {b}"
        values = [(e, rng.choice([str(eval(e)), f"{eval(e)}", json.dumps({"result": eval(e)})]), f"{e} = {eval(e)}.")]
        q = rng.choice([f"What is {e}?", f"Calculate {e}.", f"{e}", f"Use the tool: {e}", f"How much is {e}?"])
    elif purpose == "weather":
        use = cities if rng.random() < 0.15 else cities[:1]
        values = []
        for c in use:
            sky, t = rng.choice(F.SKIES), rng.randint(-20, 40)
            res = rng.choice([f"{sky}, {t} C", json.dumps({"weather": sky, "temperature": t}),
                              json.dumps({"city": c, "temperature": t, "weather": sky})])
            values.append((c, res, f"The weather in {c} is {sky} at {t} degrees."))
        q = rng.choice([f"What is the weather in {' and '.join(use)}?", f"How is the weather in {' and '.join(use)}?",
                        f"Weather in {' and '.join(use)}", f"Tell me the weather in {' and '.join(use)}."])
    elif purpose == "search":
        topic = f"{rng.choice(F.ADJECTIVES)} {rng.choice(F.NOUNS)}"
        found = filler(rng)
        values = [(topic, found, f"I found this: {found}")]
        q = rng.choice([f"Search for {topic}.", f"Find news about {topic}.", f"Look up {topic}.", f"Search {topic}"])
    elif purpose == "time":
        c = cities[0]
        t = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
        values = [(c, rng.choice([t, json.dumps({"time": t})]), f"It is {t} in {c}.")]
        q = rng.choice([f"What time is it in {c}?", f"Tell me the time in {c}.", f"Time in {c}"])
    else:
        m = rng.randint(1, 90)
        values = [(m, rng.choice(["ok", json.dumps({"status": "ok"})]), f"The timer is set to {m} minutes.")]
        q = rng.choice([f"Set a timer for {m} minutes.", f"Start a timer of {m} minutes.", f"Timer {m} minutes"])
    what = " and ".join(str(v[0]) for v in values)
    return [{"user": q, "thought": f"I call {name} with {what}.", "calls": [(name, {param: v[0]}) for v in values],
             "kind": "tool"},
            {"results": [v[1] for v in values], "thought": "The tool gave the result.",
             "answer": " ".join(v[2] for v in values)}]


def tool_doc(rng, rounds=None):
    specs = tool_specs(rng)
    turns = []
    for i in range(rounds or rng.choice([1, 2, 3, 4])):
        if i and rng.random() < 0.2:
            turns.append(plain(qa(rng, rng.choice(["greet", "fact"]))))
        turns += tool_turns(rng, specs)
    return turns, {"tools": [s[0] for s in specs.values()]}


def document(rng, limit, long_share=0.0, copy_share=0.0):
    """One rendered conversation (or copying exercise) of at most about `limit` tokens, as segments."""
    if rng.random() < copy_share:
        return copying.document(rng, min(limit, 512))
    thinking = rng.random() < 0.5
    options = {"effort": rng.choice([75, 75, 75, 50, 100, rng.randint(1, 100)])}
    if rng.random() < 0.25:
        options["system"] = rng.choice(SYSTEMS)
    kind = rng.choices(["chat", "tools", "json", "recall", "memory"], [72, 9, 12, 10, 7])[0]
    if rng.random() < long_share:
        kind = "recall"
    if kind == "chat":
        turns = [qa(rng) for _ in range(rng.choice([1, 1, 2]) if thinking else rng.randint(2, 7))]
        turns = [t if thinking and i == len(turns) - 1 else plain(t) for i, t in enumerate(turns)]
    elif kind == "tools":
        turns, more = tool_doc(rng)
        options |= more
    elif kind == "json":
        turns, more = json_doc(rng)
        options |= more
    elif kind == "memory":
        turns = memory_turns(rng)
    else:
        room = limit // rng.choice([1, 1, 2, 4]) - 160
        budget = max(30, int(room * (rng.uniform(0.5, 0.9) if rng.random() < 0.5 else rng.uniform(0.04, 0.5))))
        turns, more = recall_doc(rng, budget, thinking, max(1, min(60, (room - budget) // 30)))
        options |= more
    return render(turns, thinking, **options)


class Packer:
    """Endless [B, T] batches of packed documents from (seed, batch number): deterministic and seekable."""

    def __init__(self, tokenizer, hashes, T, B, seed, copy_share=0.0):
        self.tok, self.hashes, self.T, self.B, self.seed = tokenizer, hashes, T, B, seed
        self.copy_share = copy_share

    def encode(self, segments):
        ids, w = [], []
        for text, weight in segments:
            e = self.tok.encode(text, add_special_tokens=False).ids if isinstance(text, str) else text
            ids += e
            w += [weight] * len(e)
        return ids, w

    def batch(self, number):
        """ids, seg, weight of predicting ids[t], document start positions."""
        import numpy as np
        rng = random.Random(f"{self.seed}/{number}")
        T, B = self.T, self.B
        ids, seg = np.full((B, T), 2, np.int32), np.full((B, T), -1, np.int32)
        weight, start = np.zeros((B, T), np.float32), np.zeros((B, T), np.int32)
        pool = []
        for b in range(B):
            at, n = 0, 0
            while True:
                while len(pool) < 24:
                    d = self.encode(document(rng, T, copy_share=self.copy_share))
                    if len(d[0]) <= T:
                        pool.append(d)
                fit = [d for d in pool if len(d[0]) <= T - at]
                if not fit:
                    break
                d = max(fit, key=lambda d: len(d[0])) if T - at < 0.4 * T else fit[rng.randrange(len(fit))]
                pool.remove(d)
                k = len(d[0])
                ids[b, at:at + k], weight[b, at:at + k] = d[0], d[1]
                weight[b, at] = 0
                end = at + k + k % 2
                seg[b, at:end], start[b, at:end] = n, at
                at, n = end, n + 1
                if at >= T:
                    break
        return ids, seg, weight, start


def sample_text(rng):
    """Text of one short document, for the tokenizer."""
    return [t for t, _ in document(rng, 400)]
