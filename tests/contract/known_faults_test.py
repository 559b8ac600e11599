#!/usr/bin/env python3
"""Every test that docs/testing.md names as `Suite.Case` or `Class.test_case` exists in tests/.

usage: known_faults_test.py SOURCE_DIR
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])
NAME = re.compile(r"`([A-Z]\w+\.(?:[A-Z]|test_)\w+)`")
DEFINED = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)


def python_tests(text):
    """`Class.test_case` of a file of unittest classes."""
    owner = ""
    for line in text.splitlines():
        if found := re.match(r"class (\w+)", line):
            owner = found[1]
        elif found := re.match(r"    def (test_\w+)", line):
            yield f"{owner}.{found[1]}"


def main():
    named = set(NAME.findall((SOURCE / "docs/testing.md").read_text()))
    defined = {".".join(found) for file in (SOURCE / "tests").rglob("*.cpp")
               for found in DEFINED.findall(file.read_text())}
    defined |= {name for file in (SOURCE / "tests/e2e").glob("*_test.py")
                for name in python_tests(file.read_text())}
    missing = sorted(named - defined)
    for name in missing:
        print(f"docs/testing.md names {name}, which no file in tests/ defines")
    if len(named) < 50:
        print(f"want at least 50 named tests in docs/testing.md, found {len(named)}")
    sys.exit(bool(missing) or len(named) < 50)


main()
