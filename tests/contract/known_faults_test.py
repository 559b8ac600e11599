#!/usr/bin/env python3
"""Every test that docs/testing.md names as `Suite.Case` exists in tests/.

usage: known_faults_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])
NAME = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
DEFINED = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)


def main():
    named = set(NAME.findall((SOURCE / "docs/testing.md").read_text()))
    defined = {".".join(found) for file in (SOURCE / "tests").rglob("*.cpp")
               for found in DEFINED.findall(file.read_text())}
    missing = sorted(named - defined)
    for name in missing:
        print(f"docs/testing.md names {name}, which no file in tests/ defines")
    if len(named) < 50:
        print(f"want at least 50 named tests in docs/testing.md, found {len(named)}")
    sys.exit(bool(missing) or len(named) < 50)


main()
