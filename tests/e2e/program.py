"""What the end-to-end tests share: the program under test, one run of it, a terminal around it."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
NIBBLE = os.environ.get("NIBBLE_PROGRAM", str(SOURCE / "build/cpu/nibble"))
DEMO = SOURCE / "models/demo"
GOLDEN = SOURCE / "tests/golden"
TIMEOUT_S = int(os.environ.get("NIBBLE_E2E_TIMEOUT_S", "120"))  # sanitizer builds on a busy machine


def environment(**variables):
    """This environment without any setting of nibble's or of a user's."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("NIBBLE_", "HF_"))}
    return {**clean, "TERM": "xterm", "LC_ALL": "C.UTF-8", **variables}


def run(*arguments, stdin=b"", env=None, check=None, **keywords):
    """Runs to the end. `check` is the exit code that is wanted."""
    done = subprocess.run([NIBBLE, *map(str, arguments)], input=stdin, env=env or environment(),
                          stdout=keywords.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE, timeout=TIMEOUT_S, **keywords)
    if check is not None and done.returncode != check:
        raise AssertionError(f"{arguments}: exit {done.returncode}, want {check}: {done.stderr}")
    return done


def run_json(*arguments, **keywords):
    return json.loads(run(*arguments, check=0, **keywords).stdout)


def read_safetensors(path):
    """Name -> (shape, values) of the F32 and I32 tensors of a file."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            letter = {"F32": "f", "I32": "i"}[entry["dtype"]]
            raw = data[8 + length + begin:8 + length + end]
            tensors[name] = (entry["shape"], struct.unpack(f"<{len(raw) // 4}{letter}", raw))
    return tensors


class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, *arguments, env=None):
        self.output = ""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(NIBBLE, [NIBBLE, *map(str, arguments)], env or environment())
        self.settings = termios.tcgetattr(self.master)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)

    def type(self, text):
        os.write(self.master, text.encode())

    def pump(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.output += os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:  # the program has closed its end
                return False
        return True

    def expect(self, pattern):
        """Waits until the pattern has come; forgets everything up to its end and gives it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := re.search(pattern, self.output)):
            if time.monotonic() > deadline or not self.pump(0.5):
                raise AssertionError(f"want {pattern!r}, found {self.output!r}")
        seen = self.output[:found.end()]
        self.output = self.output[found.end():]
        return seen

    def expect_editing(self, pattern):
        """The same, and until the terminal no longer echoes by itself."""
        seen = self.expect(pattern)
        deadline = time.monotonic() + TIMEOUT_S
        while termios.tcgetattr(self.master)[3] & termios.ECHO:
            if time.monotonic() > deadline:
                raise AssertionError("the line editor did not take the terminal")
            time.sleep(0.01)
        return seen

    def wait(self):
        """Exit code; a negative number is a signal."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            self.pump(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"still running: {self.output!r}")


class Case(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="nibble_e2e_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_fails(self, exit_code, *arguments, message="", **keywords):
        """One line on standard error, whatever happened."""
        done = run(*arguments, **keywords)
        self.assertEqual(done.returncode, exit_code, (arguments, done.stderr))
        text = done.stderr.decode()
        self.assertEqual(text.count("\n"), 1, text)
        self.assertRegex(text, r"^nibble.*\n$")
        self.assertIn(message, text)
        return done
