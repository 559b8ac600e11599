#!/usr/bin/env python3
"""Each file of compile_fail/ is refused with the diagnostic it names, and accepted once corrected.

usage: compile_fail_test.py COMPILER SOURCE_DIR [FLAG...]

A file marks the offending line with `// expect: REGEX`. It must compile with -DNIBBLE_CORRECT, so
that it fails for this reason and no other.
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys

COMPILER, SOURCE, FLAGS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]


def compile_(path, *extra):
    return subprocess.run([COMPILER, "-std=c++20", "-fsyntax-only", "-Werror", *FLAGS, *extra, path],
                          capture_output=True, text=True)


def problem(path):
    wanted = re.findall(r"// expect: (.*)", path.read_text())
    if len(wanted) != 1:
        return f"want one `// expect:` line, found {len(wanted)}"
    corrected = compile_(path, "-DNIBBLE_CORRECT")
    if corrected.returncode != 0:
        return f"the corrected form does not compile:\n{corrected.stderr}"
    faulty = compile_(path)
    if faulty.returncode == 0:
        return "the faulty form compiles"
    if not re.search(wanted[0], faulty.stderr):
        return f"want a diagnostic like {wanted[0]!r}, found:\n{faulty.stderr}"
    return ""


paths = sorted((SOURCE / "tests/contract/compile_fail").glob("*.cpp"))
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    found = [(path, text) for path, text in zip(paths, pool.map(problem, paths)) if text]
for path, text in found:
    print(f"{path.name}: {text}")
print(f"{len(paths)} files, {len(found)} failures")
sys.exit(bool(found) or not paths)
