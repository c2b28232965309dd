"""Holds the includes of src/ to src/layers.txt.

Fails on an include of a room that the row of the including room does not name, on a cycle between rows, on a room
without a row and on a row without a room. Test files of a room follow the row of their room. A row `room/part` makes a
folder of a room a place with a law of its own; a row that names the room means its parts, too.
Usage: check_layers.py [SRC_DIRECTORY]   Prints one line a fault; exits with 1 when there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
EVERY_ROOM = "*"
FREE_FOR_ALL = "base"


def read_rows(path):
    """The table as {room: set of rooms it may include}; `*` stands for all rooms."""
    rows = {}
    for line in path.read_text().splitlines():
        text = line.split("#")[0].strip()
        if text:
            room, _, allowed = text.partition(":")
            rows[room.strip()] = set(allowed.split())

    def meant(room, allowed):
        if EVERY_ROOM in allowed:
            return set(rows)
        parts = {part for part in rows if part.split("/")[0] in allowed and part.split("/")[0] != room}
        return allowed | parts | {FREE_FOR_ALL}

    return {room: meant(room, allowed) for room, allowed in rows.items()}


def room_of(path, rooms):
    """The room of a path below src/: its folder and subfolder where that has a row, else its folder; None for neither."""
    folders = str(path).split("/")
    for room in ("/".join(folders[:2]), folders[0]):
        if room in rooms:
            return room
    return None


def include_faults(source, rows, rooms):
    for file in sorted(source.rglob("*")):
        where = file.relative_to(source)
        room = room_of(where, rooms)
        if file.suffix not in (".h", ".cc", ".inc") or room not in rows:
            continue
        for target in INCLUDE.findall(file.read_text()):
            used = room_of(target, rooms)  # an include without a folder would be of the same room
            if used not in (None, room) and used not in rows[room]:
                yield f'{where}: includes "{target}", but {room} may not include {used}'


def cycle_faults(rows):
    """One line for a cycle of the table, found by a depth-first walk."""
    done, path = set(), []

    def walk(room):
        if room in path:
            return path[path.index(room) :] + [room]
        if room in done:
            return None
        path.append(room)
        for used in sorted(rows.get(room, ()) - {room}):
            if found := walk(used):
                return found
        path.pop()
        done.add(room)
        return None

    for room in sorted(rows):
        if found := walk(room):
            return [f"layers.txt: cycle {' -> '.join(found)}"]
    return []


def find_faults(source):
    rows = read_rows(source / "layers.txt")
    parts = {row for row in rows if "/" in row and (source / row).is_dir()}
    rooms = parts | {folder.name for folder in source.iterdir() if folder.is_dir()}
    faults = [f"layers.txt: room {room} has no row" for room in sorted(rooms - rows.keys())]
    faults += [f"layers.txt: row {room} has no folder" for room in sorted(rows.keys() - rooms)]
    for room, allowed in rows.items():
        faults += [f"layers.txt: row {room} names {used}, which has no row" for used in sorted(allowed - rows.keys())]
    return faults + cycle_faults(rows) + list(include_faults(source, rows, rooms))


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parent.parent / "src"
    found = find_faults(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
    print("\n".join(found) if found else "check_layers: every include follows layers.txt")
    sys.exit(1 if found else 0)
