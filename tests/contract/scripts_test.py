#!/usr/bin/env python3
"""scripts/run.sh hands its arguments on as documented, from any folder, and installs nothing when
nothing is missing. The program is a stand-in that prints what it was given.

usage: scripts_test.py SOURCE_DIR
"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
# arguments of run.sh, arguments that nibble gets
CASES = [
    ([], ["run"]),
    (["Tell me a story about a brave cat."], ["run", "-p", "Tell me a story about a brave cat."]),
    (["Tell", "me", "a", "story"], ["run", "-p", "Tell me a story"]),
    (["Hello", "-n", "8", "--json"], ["run", "-p", "Hello", "-n", "8", "--json"]),
    (["run", "-p", "a b"], ["run", "-p", "a b"]),
    (["score", "--ids", "1,2,3"], ["score", "--ids", "1,2,3"]),
    (["inspect", "a folder"], ["inspect", "a folder"]),
    (["--version"], ["--version"]),
    (["-h"], ["-h"]),
    (["running"], ["run", "-p", "running"]),
    (["*"], ["run", "-p", "*"]),
    (["quote ' and \" and $HOME"], ["run", "-p", "quote ' and \" and $HOME"]),
    ([""], ["run", "-p", ""]),
]
STAND_INS = {
    # Nothing is missing, and whoever asks apt anyway is told off.
    "dpkg-query": 'shift 2; for p in "$@"; do echo "$p installed"; done',
    "apt-get": 'echo "apt-get was called" >&2; exit 99',
    "sudo": 'echo "sudo was called" >&2; exit 99',
    "cmake": 'mkdir -p build/cpu; touch build/cpu/build.ninja',
    "ninja": 'echo "ninja: no work to do."',
}
PRINTER = '#!/bin/sh\nfor argument in "$@"; do printf "<%s>\\n" "$argument"; done\n'


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def make_tree(root):
    shutil.copytree(SOURCE / "scripts", root / "clone with spaces/scripts")
    write_program(root / "clone with spaces/build/cpu/nibble", PRINTER)
    for name, body in STAND_INS.items():
        write_program(root / "bin" / name, f"#!/bin/sh\n{body}\n")


def run(root, arguments, stand_in_path, **options):
    return subprocess.run([root / "clone with spaces/scripts/run.sh", *arguments], cwd="/",
                          env={"PATH": stand_in_path, "HOME": str(root)}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, **options)


def argument_problems(root, path):
    for arguments, wanted in CASES:
        result = run(root, arguments, path)
        found = result.stdout
        if found != "".join(f"<{word}>\n" for word in wanted) or result.stderr:
            yield f"run.sh {arguments}: want {wanted}, found {found!r} {result.stderr!r}"


def missing_package_problems(root, path):
    """One plain line when a package is missing and nobody may install it."""
    write_program(root / "bin/dpkg-query", "#!/bin/sh\nexit 1\n")
    write_program(root / "bin/sudo", "#!/bin/sh\nexit 1\n")
    for place in [root, *root.rglob("*")]:
        place.chmod(0o755)
    nobody = {"user": 65534} if os.geteuid() == 0 else {}
    result = run(root, ["Hello"], path, **nobody)
    if result.returncode == 0 or result.stderr.count("\n") != 1 or "libfmt-dev" not in result.stderr:
        yield f"missing packages: want one line, found {result.returncode} {result.stderr!r}"


with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    make_tree(root)
    path = f"{root / 'bin'}:/usr/bin:/bin"
    failures = [*argument_problems(root, path), *missing_package_problems(root, path)]
print("\n".join(failures) or f"{len(CASES)} cases, 0 failures")
sys.exit(bool(failures))
