"""Draws a piece of a trace (deepinfer serve --trace FILE) as an SVG: one lane a thread, one bar a span.

Usage: trace_svg.py TRACE.json OUT.svg [START_US DURATION_US]   Without a window: three steps from the middle.
"""

import html
import json
import sys

WIDTH, LANE, LEFT, TOP = 1000, 56, 90, 34
COLOURS = {"model": "#4c78a8", "sampling": "#72b7b2", "schedule": "#e45756", "engine": "#eeca3b"}


def read(path):
    events = json.load(open(path))["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    return lanes, [e for e in events if e["ph"] == "X"]


def middle(spans):
    runs = [s for s in spans if s["name"] == "execute"]
    first = runs[len(runs) // 2]
    last = runs[min(len(runs) - 1, len(runs) // 2 + 2)]
    margin = 0.05 * (last["ts"] + last["dur"] - first["ts"])
    return first["ts"] - margin, last["ts"] + last["dur"] - first["ts"] + 2 * margin


def draw(lanes, spans, start, duration):
    scale = (WIDTH - LEFT - 10) / duration
    height = TOP + LANE * len(lanes) + 40
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for row, (tid, name) in enumerate(sorted(lanes.items(), key=lambda lane: lane[1])):
        y = TOP + row * LANE
        out.append(f'<text x="8" y="{y + 24}" fill="#222">{html.escape(name)}</text>')
        for span in spans:
            begin, end = span["ts"] - start, span["ts"] + span["dur"] - start
            if span["tid"] != tid or end < 0 or begin > duration or span["name"] == "wait":
                continue
            x, right = LEFT + max(begin, 0) * scale, LEFT + min(end, duration) * scale
            title = f'{span["name"]} ({span["cat"]}): {span["dur"]:.1f} us'
            out.append(
                f'<rect x="{x:.1f}" y="{y + 4}" width="{max(right - x, 1):.1f}" height="32" '
                f'fill="{COLOURS.get(span["cat"], "#999")}"><title>{html.escape(title)}</title></rect>'
            )
            if right - x > 60:
                out.append(f'<text x="{x + 5:.1f}" y="{y + 24}" fill="#fff">{html.escape(span["name"])}</text>')
    y = TOP + LANE * len(lanes) + 14
    x = LEFT
    for category, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 17}" y="{y}" fill="#222">{category}</text>')
        x += 110
    out.append(f'<text x="{WIDTH - 10}" y="{y}" text-anchor="end" fill="#222">{duration:.0f} us in all</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main(arguments):
    if len(arguments) not in (2, 4):
        sys.exit(__doc__)
    lanes, spans = read(arguments[0])
    if not any(s["name"] == "execute" for s in spans):
        sys.exit(f"{arguments[0]}: no step was recorded")
    window = tuple(map(float, arguments[2:])) or middle(spans)
    with open(arguments[1], "w") as file:
        file.write(draw(lanes, spans, *window))


if __name__ == "__main__":
    main(sys.argv[1:])
