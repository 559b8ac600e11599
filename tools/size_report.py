#!/usr/bin/env python3
"""Prints the largest files, folders, functions, parameter lists and nestings of the tree beside the
sizes that CONTRIBUTING.md aims for. It warns; the reviewer decides; only clang-tidy's limits fail a build.

usage: size_report.py [ROOT] [--top N]
"""
import argparse
import pathlib
import re

FUNCTION = re.compile(r"^(?!\s*(?:if|for|while|switch|else|do|namespace|struct|class|enum|union|return|"
                      r"catch|try|extern|#|//)\b)[\w:<>,&*\s\[\]~=\"\-.()]*\([^;]*$")
# kind, what it counts, aim, look hard, limit
LIMITS = {
    "host function": (25, 50, 80), "device function": (40, 60, 80), "parameters": (4, 6, 6),
    ".cpp": (250, 400, 600), "header": (120, 200, 300), "device .cuh": (250, 400, 500),
    "inst .cu": (20, 30, 40), "test": (300, 400, 600), "line": (100, 100, 100), "nesting": (3, 4, 4),
    "folder": (20, 30, 30),
}


def file_kind(path):
    if "tests" in path.parts:
        return "test"
    if path.suffix == ".cuh":
        return "device .cuh"
    if path.suffix == ".cu":
        return "inst .cu" if "inst" in path.parts else ".cpp"
    return "header" if path.suffix == ".h" else ".cpp"


def strip(text):
    """Blanks strings and comments, keeps lines."""
    pattern = r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(pattern, lambda match: "\n" * match.group(0).count("\n") + " ", text, flags=re.DOTALL)


def parameters(head):
    inside = head[head.index("(") + 1:]
    depth, count, seen = 0, 0, False
    for char in inside:
        if char in "(<[{":
            depth += 1
        elif char in ")>]}":
            if depth == 0:
                break
            depth -= 1
        elif char == "," and depth == 0:
            count += 1
        seen = seen or not char.isspace()
    return count + 1 if seen else 0


def functions(text):
    """(name, first line, lines, parameters, nesting) by the shape that the formatter gives code: a
    function's head begins a line, its body ends with a brace in the head's column."""
    lines = strip(text).split("\n")
    row = 0
    while row < len(lines):
        if not FUNCTION.match(lines[row]) or not lines[row].strip() or lines[row].lstrip().startswith(("}", "{", ":")):
            row += 1
            continue
        head, end = lines[row], row
        while "{" not in head and ";" not in head and end + 1 < len(lines) and end - row < 12:
            end += 1
            head += " " + lines[end]
        name = re.search(r"([\w:~]+|operator\S+)\s*\(", head)
        if "{" not in head or ";" in head.split("{")[0] or not name or "=" in head[:name.start()]:
            row += 1
            continue
        close = end
        depth, deepest = 0, 0
        for close in range(row, len(lines)):
            depth += lines[close].count("{") - lines[close].count("}")
            deepest = max(deepest, depth)
            if close >= end and depth <= 0:
                break
        yield name.group(1), row + 1, close - row + 1, parameters(head[name.start(1):]), deepest - 1
        row = close + 1


def measure(root):
    rows = {kind: [] for kind in LIMITS}
    folders = {}
    for path in sorted(path for top in ("include", "src", "tests", "bench", "examples")
                       for path in (root / top).rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".c"}:
            continue
        rel, text = path.relative_to(root), path.read_text()
        lines = text.split("\n")
        rows[file_kind(rel)].append((len(lines) - 1, str(rel)))
        folders[rel.parent] = folders.get(rel.parent, 0) + 1
        rows["line"].append((max(map(len, lines)), str(rel)))
        kind = "device function" if path.suffix in {".cu", ".cuh"} else "host function"
        for name, line, length, count, nesting in functions(text):
            place = f"{rel}:{line} {name}"
            rows[kind].append((length, place))
            rows["parameters"].append((count, place))
            rows["nesting"].append((nesting, place))
    rows["folder"] = [(count, str(folder)) for folder, count in folders.items()]
    return rows


def mark(value, limits):
    aim, look, limit = limits
    return "over the limit" if value > limit else "look hard" if value > look else "over the aim" if value > aim else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    parser.add_argument("--top", type=int, default=10)
    options = parser.parse_args()
    for kind, found in measure(options.root).items():
        aim, look, limit = LIMITS[kind]
        print(f"\n{kind} (aim {aim}, look hard {look}, limit {limit}): {len(found)} in all, "
              f"{sum(value > limit for value, _ in found)} over the limit")
        for value, place in sorted(found, reverse=True)[:options.top]:
            print(f"  {value:5d}  {place}  {mark(value, LIMITS[kind])}".rstrip())


main()
