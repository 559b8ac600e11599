"""The `openai` package at a pinned version, in an environment of its own.

`use_package()` first thing in a test: it is installed from PyPI on the first run; where that cannot be
reached the test says so and is skipped (exit code 77).
"""
import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

VERSION = "3.51.0"
SKIPPED = 77


def use_package():
    """Starts the test again with an interpreter that has the package, unless this one has it."""
    try:
        import openai  # noqa: F401
        return
    except ImportError:
        if os.environ.get("NIBBLE_IN_VENV"):
            raise
    os.environ["NIBBLE_IN_VENV"] = "1"
    folder = pathlib.Path(os.environ.get("NIBBLE_VENV", pathlib.Path(tempfile.gettempdir()) /
                                         f"nibble_openai_{VERSION}_{os.getuid()}"))
    python = folder / "bin/python"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        install(folder, python)
    os.execv(python, [python, *sys.argv])


def install(folder, python):
    marker = folder / "ready"
    if marker.exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries", "1",
                           "--disable-pip-version-check", f"openai=={VERSION}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(f"skipped: openai=={VERSION} could not be installed: "
              f"{done.stdout.strip().splitlines()[-1:]}")
        sys.exit(SKIPPED)
    marker.touch()
