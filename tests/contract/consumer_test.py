#!/usr/bin/env python3
"""The installed package serves another project, and the installed program stands alone.

usage: consumer_test.py SOURCE_DIR BINARY_DIR WORK_DIR COMPILER
"""
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE, BINARY, WORK = (pathlib.Path(argument) for argument in sys.argv[1:4])
COMPILER = sys.argv[4]
PREFIX = WORK / "prefix with spaces"


def run(*command, want=0):
    result = subprocess.run([str(part) for part in command], cwd=WORK, text=True, env=clean_environment(),
                            stdin=subprocess.DEVNULL, capture_output=True)
    if result.returncode != want:
        sys.exit(f"{command}: want exit code {want}, found {result.returncode}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("NIBBLE_")}


def check(good, text):
    if not good:
        sys.exit(text)


def installed_files():
    """What must be there, and nothing of the private headers."""
    for name in ("include/nibble/status.h", "include/nibble/engine.h", "bin/nibble",
                 "share/nibble/models/demo/config.json", "share/nibble/models/demo/tokenizer.json",
                 "share/doc/nibble/LICENSE", "share/doc/nibble/README.md",
                 "share/man/man1/nibble.1.gz", "share/bash-completion/completions/nibble"):
        check((PREFIX / name).is_file(), f"{name} is not installed")
    headers = {path.relative_to(PREFIX / "include").as_posix() for path in PREFIX.glob("include/**/*.h")}
    public = {path.relative_to(SOURCE / "include").as_posix() for path in SOURCE.glob("include/nibble/*.h")}
    check(headers == public, f"installed headers differ from include/: {sorted(headers ^ public)}")


def consumer():
    run("cmake", "-S", SOURCE / "tests/contract/consumer", "-B", WORK / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCMAKE_CXX_COMPILER={COMPILER}")
    run("cmake", "--build", WORK / "build")
    run(WORK / "build/consumer", PREFIX / "share/nibble/models/demo")


def examples():
    """The C and the C++ example compute the same layer through the installed headers."""
    run("cmake", "-S", SOURCE / "examples", "-B", WORK / "examples", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={PREFIX}", f"-DCMAKE_CXX_COMPILER={COMPILER}")
    run("cmake", "--build", WORK / "examples")
    cpp = run(WORK / "examples/moe_layer").stdout.splitlines()
    c = run(WORK / "examples/moe_layer_c").stdout.splitlines()
    # From the same numbers in double: tools/golden/example_layer.py.
    want = "sum of squares of the output: 10.2783"
    check(want in cpp, f"moe_layer: want '{want}', found {cpp}")
    check(want in c, f"moe_layer_c: want '{want}', found {c}")
    check(any("sm_120: 4 warps" in line and line.endswith("unverified") for line in cpp),
          f"moe_layer: no plan in {cpp}")
    check(any(line.startswith("cpu: usable") for line in c), f"moe_layer_c: no processor in {c}")


def program():
    """Uses the demo beside itself, shown by breaking that copy."""
    nibble = PREFIX / "bin/nibble"
    run(nibble, "--version")
    answer = run(nibble, "run", "-p", "Hello", "-n", "64", "--temperature", "0")
    check(answer.stdout.strip() != "", "the installed program printed no answer")
    config = PREFIX / "share/nibble/models/demo/config.json"
    config.write_text("{")
    broken = run(nibble, "run", "-p", "Hello", "-n", "4", want=3)
    check(str(config) in broken.stderr, f"want an error that names {config}, found {broken.stderr!r}")


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
run("cmake", "--install", BINARY, "--prefix", PREFIX)
installed_files()
consumer()
examples()
program()
print("installed package and program: ok")
