"""Writes schemas.jsonl: the schemas that grammar tests and the grammar bench work through.

Run it after a change:  python3 tests/grammar/make_schemas.py
"""

import json
import pathlib

STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": t} for t in ("string", "integer", "number", "boolean", "null"))


def obj(required=None, **properties):
    """All properties are required unless told otherwise."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


def arr(items, low=None, high=None):
    bounds = {"minItems": low, "maxItems": high}
    return {"type": "array", "items": items} | {k: v for k, v in bounds.items() if v is not None}


def text(**more):
    return {"type": "string"} | more


def whole(low=None, high=None, **more):
    bounds = {"minimum": low, "maximum": high}
    return {"type": "integer"} | {k: v for k, v in bounds.items() if v is not None} | more


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


SHORT = text(maxLength=12)


def scalars():
    for schema in (STRING, INTEGER, NUMBER, BOOLEAN, NULL, {}, {"type": "object"}, {"type": "array"}):
        yield obj(value=schema)
    for types in (["string", "null"], ["integer", "boolean"], ["number", "string", "null"], ["array", "null"]):
        yield obj(value={"type": types})
    yield obj(required=["a"], a=STRING, b=INTEGER, c=BOOLEAN)
    yield obj(required=[], a=SHORT, b=INTEGER, c=NUMBER, d=NULL)
    yield BOOLEAN
    yield whole(1, 6)
    yield {"type": ["integer", "null"], "minimum": 0, "maximum": 9}


def strings():
    for low, high in ((0, 1), (1, 1), (0, 5), (3, 8), (10, 10), (5, 40), (0, 200), (1, None), (20, None)):
        bounds = {"minLength": low, "maxLength": high}
        yield obj(s=text(**{k: v for k, v in bounds.items() if v}))
    patterns = [
        "^[a-z]+$", "^[A-Z]{3}-[0-9]{4}$", "^(red|green|blue)$", r"^\d{3}-\d{2}-\d{4}$", r"^\w{1,20}$", "^#[0-9a-f]{6}$",
        "^v[0-9]+(\\.[0-9]+){2}$", "^[^ ]{1,10}$", "^(?:yes|no)(?: please)?$", "^.{4,9}$", "^[a-z]{1,4}( [a-z]{1,4}){0,5}$",
        "^[A-Za-z0-9_-]{8,16}$", "^\\+?[0-9]{7,15}$", "^([0-9]{2}:){5}[0-9]{2}$", "^Q[1-4] 20[0-9]{2}$", "^(a|b)*c$",
        "^\\S+@\\S+$", "^[\\w.]{1,10}$", "^\\$[0-9]{1,5}(\\.[0-9]{2})?$", "^$",
    ]
    for pattern in patterns:
        yield obj(s=text(pattern=pattern))
    for name in ("date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"):
        yield obj(s=text(format=name))
    yield obj(id=text(format="uuid"), made=text(format="date-time"), by=text(format="email"))
    yield arr(text(format="date"), 1, 4)


def numbers():
    for low, high in ((0, 9), (1, 100), (-5, 5), (0, 255), (-1000, -10), (7, 7), (123, 45678), (0, None), (None, 0),
                      (None, 99), (-40, None), (1900, 2100), (0, 2**31 - 1), (-(2**53) + 1, 2**53 - 1)):
        yield obj(n=whole(low, high))
    yield obj(n=whole(exclusiveMinimum=0, exclusiveMaximum=10))
    yield obj(n=whole(exclusiveMinimum=-3))
    yield obj(n=whole(multipleOf=5))
    yield obj(n=whole(0, 100, multipleOf=7))
    yield obj(n=whole(-60, 60, multipleOf=15))
    for more in ({"minimum": 0, "maximum": 1}, {"minimum": -1, "maximum": 1}, {"minimum": 0.5, "maximum": 2.5},
                 {"exclusiveMinimum": 0}, {"exclusiveMaximum": 0}, {"minimum": -273.15}, {"maximum": 36.6},
                 {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"minimum": 100, "maximum": 1000}, {"minimum": 0},
                 {"minimum": -90, "maximum": 90}, {"minimum": -0.001, "maximum": 0.001}):
        yield obj(x=NUMBER | more)
    yield obj(lat=NUMBER | {"minimum": -90, "maximum": 90}, lon=NUMBER | {"minimum": -180, "maximum": 180})


def choices():
    yield {"enum": ["red", "green", "blue"]}
    yield {"enum": [1, 2.5, "three", None, True, [4], {"five": 5}]}
    yield {"const": "only"}
    yield {"const": {"a": [1, 2], "b": None}}
    for n in (2, 10, 60):
        yield obj(pick={"enum": [f"option-{i}" for i in range(n)]})
    yield obj(pick={"type": "string", "enum": ["a", "bb", "ccc", 4], "maxLength": 2})
    yield obj(pick={"enum": ["\"quoted\"", "line\nbreak", "back\\slash", "tab\t", "emoji 🙂", "ümlaut", "/"]})
    yield obj(kind={"const": "circle"}, r=whole(1, 9))
    yield obj(a={"anyOf": [whole(0, 9), SHORT]})
    yield obj(a={"anyOf": [BOOLEAN, NULL, arr(whole(0, 9), 0, 3)]})
    yield {"anyOf": [obj(a=whole(0, 9)), obj(b=BOOLEAN), obj(a=SHORT, b=NULL)]}
    yield {"oneOf": [obj(kind={"const": "circle"}, r=whole(1, 9)), obj(kind={"const": "square"}, side=whole(1, 9))]}
    yield {"oneOf": [BOOLEAN, whole(0, 5), NULL]}
    yield obj(v={"oneOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}, whole(0, 3)]})
    yield {"allOf": [obj(a=SHORT)]}
    yield {"type": "string", "anyOf": [{"pattern": "^a+$"}, {"pattern": "^b+$"}, {"maxLength": 2}]}
    yield obj(a={"anyOf": [{"type": "object", "properties": {"x": whole(0, 3)}, "required": ["x"]}, NULL]})


def arrays():
    for low, high in ((0, 0), (0, 1), (1, 1), (2, 2), (0, 3), (3, 5), (1, 10), (20, 20), (0, 50)):
        yield obj(a=arr(whole(0, 9), low, high))
    for items in (SHORT, BOOLEAN, NULL, NUMBER, {"enum": ["x", "y"]}, obj(k=whole(0, 9)), arr(whole(0, 1), 2, 2)):
        yield arr(items, 1, 4)
    yield arr(arr(arr(whole(0, 9), 1, 2), 1, 2), 1, 2)
    yield {"type": "array", "prefixItems": [SHORT, whole(0, 9), BOOLEAN], "items": False}
    yield {"type": "array", "prefixItems": [SHORT], "items": whole(0, 9), "maxItems": 4}
    yield obj(matrix=arr(arr(whole(-9, 9), 3, 3), 3, 3))
    yield obj(tags=arr({"enum": ["a", "b", "c", "d"]}, 1, 3), notes=arr(text(maxLength=20), 0, 2))
    yield obj(pairs=arr({"type": "array", "prefixItems": [SHORT, NUMBER], "items": False}, 1, 3))
    yield {"type": "array", "minItems": 2, "maxItems": 3}


def objects():
    for depth in range(1, 9):
        schema = whole(0, 9)
        for level in range(depth):
            schema = obj(**{f"level{level}": schema})
        yield schema
    for width in (1, 3, 8, 16, 30):
        yield obj(**{f"field_{i}": (whole(0, 9), BOOLEAN, SHORT, NULL)[i % 4] for i in range(width)})
        yield obj(required=[], **{f"field_{i}": (whole(0, 9), BOOLEAN, SHORT)[i % 3] for i in range(width)})
        yield obj(required=[f"field_{i}" for i in range(0, width, 2)], **{f"field_{i}": whole(0, 9) for i in range(width)})
    yield {"type": "object", "additionalProperties": whole(0, 9)}
    yield {"type": "object", "additionalProperties": obj(a=BOOLEAN)}
    yield {"type": "object", "properties": {"a": BOOLEAN}, "required": ["a"], "additionalProperties": SHORT}
    yield {"type": "object", "properties": {"a": whole(0, 9)}, "additionalProperties": True}
    yield {"type": "object", "properties": {"a": BOOLEAN}, "required": ["a", "b"]}
    yield obj(**{"with space": whole(0, 9), "quote\"d": BOOLEAN, "ünïcode": NULL, "": whole(0, 1)})
    yield {"properties": {"implied": BOOLEAN}, "required": ["implied"]}


def references():
    yield {"$ref": "#/$defs/point", "$defs": {"point": obj(x=whole(0, 9), y=whole(0, 9))}}
    yield obj(a=ref("n"), b=ref("n"), c=arr(ref("n"), 0, 3)) | {"$defs": {"n": whole(0, 99)}}
    yield obj(value=whole(0, 9), children=arr({"$ref": "#"}, 0, 2))
    yield {"$defs": {"list": obj(head=whole(0, 9), tail={"anyOf": [NULL, ref("list")]})}, "$ref": "#/$defs/list"}
    yield {"$defs": {"tree": {"anyOf": [NULL, obj(left=ref("tree"), v=whole(0, 9), right=ref("tree"))]}}, "$ref": "#/$defs/tree"}
    expr = {"anyOf": [whole(0, 99), obj(op={"enum": ["+", "-", "*"]}, l=ref("expr"), r=ref("expr"))]}
    yield obj(e=ref("expr")) | {"$defs": {"expr": expr}}
    yield obj(a=ref("even")) | {"$defs": {"even": {"anyOf": [NULL, obj(o=ref("odd"))]}, "odd": obj(e=ref("even"))}}
    yield obj(x={"$ref": "#/definitions/a~1b"}) | {"definitions": {"a/b": whole(0, 9)}}
    yield obj(x=BOOLEAN, y={"$ref": "#/properties/x"})
    json_like = {"anyOf": [NULL, BOOLEAN, whole(0, 9), SHORT, arr(ref("any"), 0, 2)]}
    yield {"$ref": "#/$defs/any", "$defs": {"any": json_like}}
    yield {"$defs": {"A": obj(a=ref("B")), "B": obj(b=ref("C")), "C": obj(c=whole(0, 9))}, "allOf": [ref("A")]}


def real_life():
    address = obj(street=text(maxLength=30), city=text(maxLength=20), zip=text(pattern="^[0-9]{5}$"), country={"enum": ["DE", "FR", "US"]})
    person = obj(name=text(minLength=1, maxLength=30), age=whole(0, 130), email=text(format="email"), address=address)
    yield person
    yield obj(order_id=text(format="uuid"), customer=person, lines=arr(obj(sku=text(pattern="^[A-Z]{2}[0-9]{4}$"), count=whole(1, 99), price=NUMBER | {"minimum": 0, "maximum": 1000}), 1, 3), paid=BOOLEAN)
    yield obj(steps=arr(obj(explanation=text(maxLength=60), output=text(maxLength=30)), 1, 3), final_answer=text(maxLength=30))
    yield obj(sentiment={"enum": ["positive", "neutral", "negative"]}, confidence=NUMBER | {"minimum": 0, "maximum": 1})
    yield obj(title=text(maxLength=40), year=whole(1900, 2100), genres=arr({"enum": ["drama", "comedy", "action"]}, 1, 3), rating={"anyOf": [NUMBER | {"minimum": 0, "maximum": 10}, NULL]})
    yield obj(name=text(maxLength=20), date=text(format="date"), participants=arr(text(maxLength=20), 1, 4))
    yield obj(query=text(maxLength=40), filters=obj(required=[], since=text(format="date"), kind={"enum": ["a", "b"]}, limit=whole(1, 50)))
    yield obj(type={"const": "object"}, ui=ref("node")) | {"$defs": {"node": obj(type={"enum": ["div", "button", "field"]}, label=text(maxLength=15), children=arr(ref("node"), 0, 2))}}
    yield obj(host=text(format="hostname"), port=whole(1, 65535), tls=BOOLEAN, peers=arr(text(format="ipv4"), 0, 3))
    yield obj(time_s=NUMBER | {"minimum": 0}, values=arr(NUMBER | {"minimum": -1, "maximum": 1}, 3, 3), unit={"enum": ["m", "s", "kg"]})
    for n in (2, 3, 4, 5, 6, 7, 9, 12):
        yield obj(**{f"item{i}": {"anyOf": [obj(id=whole(1, 9), ok=BOOLEAN), NULL]} for i in range(n)})
        yield obj(rows=arr(obj(**{f"c{i}": whole(0, 9) for i in range(n)}), 1, 2))
    for n in range(1, 7):
        yield obj(q=text(maxLength=20), answers=arr(obj(text=text(maxLength=15), correct=BOOLEAN), n, n))


GROUPS = (scalars, strings, numbers, choices, arrays, objects, references, real_life)

if __name__ == "__main__":
    lines = []
    for group in GROUPS:
        for index, schema in enumerate(group()):
            lines.append(json.dumps({"name": f"{group.__name__}-{index}", "schema": schema}, ensure_ascii=False))
    pathlib.Path(__file__).with_name("schemas.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(len(lines))
