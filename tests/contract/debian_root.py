"""What the tests of packaging need that takes a Debian system of its own: only when asked for.

They need root, some of Debian's tools and the package archive of this machine, nothing else.
"""
import os
import re
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77  # what CTest takes for "skipped"


def check(good, text):
    if not good:
        sys.exit(text)


def run(*command, want=0, **options):
    result = subprocess.run([str(part) for part in command], text=True, capture_output=True,
                            stdin=subprocess.DEVNULL, **options)
    check(result.returncode == want, f"{command}: want exit code {want}, found {result.returncode}\n"
                                     f"{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return result.stdout


def skip_without(*tools):
    """Ends the test as skipped unless it is asked for and can run."""
    if os.environ.get("NIBBLE_LARGE") != "1":
        why = "it takes minutes and downloads a Debian system; NIBBLE_LARGE=1 asks for it"
    elif os.geteuid() != 0:
        why = "it wants root"
    else:
        missing = [tool for tool in tools if shutil.which(tool) is None]
        why = f"not installed: {' '.join(missing)}" if missing else ""
    if why:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)


def archive():
    """The package archive that this machine uses."""
    for file in [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]:
        if file.is_file() and (found := re.search(r"https?://[^\s\]]+/debian/?(?=\s|$)", file.read_text())):
            return found[0]
    return "http://deb.debian.org/debian"


def debian_root(folder, packages=()):
    """Debian 12 with its essential packages and `packages`, in `folder`."""
    more = [f"--include={','.join(packages)}"] if packages else []
    run("debootstrap", "--variant=minbase", *more, "bookworm", folder, archive())
