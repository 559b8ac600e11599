#!/usr/bin/env python3
"""Applies one-line faults, one at a time, and expects the tests to notice each.

usage: run.py [--only REGEX] [--skip REGEX] [--jobs N] [--list | --check]

mutants.json lists them: `name`, `file`, `old` (must occur exactly once in the file), `new`, `build` (the
ninja targets that hold the test), `test` (what `ctest -R` runs), and `why` where it is not plain. Each
is applied in a worktree of the committed state under build/mutants, built there, tested and undone. A
mutant that survives, does not compile (but for a failed static assertion) or does not apply fails the
run. On demand, not in CI: each costs the rebuild of what it touches.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "build/mutants/tree"
BUILD = TREE / "build/cpu"


def call(*command, cwd=TREE, timeout=900):
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, timeout=timeout)


def must(*command, cwd=TREE):
    result = call(*command, cwd=cwd)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result


def prepare():
    """The worktree at the commit of the source tree; object files of the last run are kept."""
    commit = must("git", "rev-parse", "HEAD", cwd=ROOT).stdout.strip()
    if not (TREE / ".git").exists():
        must("git", "worktree", "prune", cwd=ROOT)
        must("git", "worktree", "add", "--detach", "--force", TREE, commit, cwd=ROOT)
    must("git", "checkout", "--quiet", "--force", "--detach", commit)
    must("cmake", "--preset", "cpu")


def build(targets, jobs):
    return call("ninja", "-C", BUILD, f"-j{jobs}", *targets)


def run_tests(pattern):
    """(how many tests ran, whether all passed, what was printed)"""
    result = call("ctest", "--test-dir", BUILD, "-R", pattern, "--output-on-failure", "--timeout", "300")
    ran = re.search(r"tests passed, \d+ tests failed out of (\d+)", result.stdout)
    return int(ran.group(1)) if ran else 0, result.returncode == 0, result.stdout


def misfit(tree, mutant):
    """Why the mutant does not apply, or nothing."""
    path = tree / mutant["file"]
    if not path.exists():
        return f"{mutant['name']}: {mutant['file']} is not there"
    count = path.read_text().count(mutant["old"])
    return "" if count == 1 else (f"{mutant['name']}: want the old text once in {mutant['file']}, "
                                  f"found it {count} times: {mutant['old']!r}")


def judge(mutant, jobs):
    """An empty text when the mutant was caught, else what went wrong."""
    if fault := misfit(TREE, mutant):
        return fault
    path = TREE / mutant["file"]
    text = path.read_text()
    path.write_text(text.replace(mutant["old"], mutant["new"]))
    try:
        built = build(mutant["build"], jobs)
        if built.returncode != 0:
            if "static assertion failed" in built.stdout:
                return ""
            return f"does not compile:\n{built.stdout[-2000:]}"
        ran, passed, _ = run_tests(mutant["test"])
        if ran == 0:
            return f"no test matches {mutant['test']!r}"
        return f"survived: {ran} tests passed" if passed else ""
    finally:
        path.write_text(text)


def healthy(mutants, jobs):
    """Without a fault every named test passes; otherwise a failure would prove nothing."""
    built = build(sorted({target for mutant in mutants for target in mutant["build"]}), jobs)
    if built.returncode != 0:
        sys.exit(f"the tree without faults does not build:\n{built.stdout[-2000:]}")
    for pattern in sorted({mutant["test"] for mutant in mutants}):
        ran, passed, output = run_tests(pattern)
        if ran == 0 or not passed:
            sys.exit(f"without faults, {pattern!r}: {ran} tests ran, all passed: {passed}\n{output[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="names that match this regular expression")
    parser.add_argument("--skip", default="$^", help="but not names that match this one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="of each build")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true", help="only that every old text is there once")
    options = parser.parse_args()
    mutants = [mutant for mutant in json.loads((ROOT / "tests/mutants/mutants.json").read_text())
               if re.search(options.only, mutant["name"]) and not re.search(options.skip, mutant["name"])]
    if options.list:
        print("\n".join(f"{mutant['name']}: {mutant['file']} -> {mutant['test']}" for mutant in mutants))
        return
    if options.check:
        sys.exit("\n".join(fault for mutant in mutants if (fault := misfit(ROOT, mutant))) or 0)
    prepare()
    healthy(mutants, options.jobs)
    failures = 0
    for mutant in mutants:
        start = time.monotonic()
        fault = judge(mutant, options.jobs)
        failures += bool(fault)
        print(f"{'FAILED' if fault else 'caught'} {mutant['name']} ({time.monotonic() - start:.0f} s)"
              f"{': ' + fault if fault else ''}", flush=True)
    print(f"{len(mutants)} mutants, {len(mutants) - failures} caught, {failures} failed")
    sys.exit(failures > 0)


main()
