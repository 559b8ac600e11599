"""gpt-oss-20b whole, and gpt-oss-120b in its published widths with 2 of its 36 layers: 128 experts of 2,880 x 2,880, 64
heads, 201,088 ids.

Writes and reads 13.8 and 5.8 GB, so it runs only when asked to, on a machine with room for it:

    NIBBLE_LARGE=1 ctest --test-dir build/cpu -L large -V
"""
import os
import re
import resource
import shutil
import tempfile
import unittest

from program import Case, run, run_json

SIZES = {"gpt-oss-20b": 13.76e9, "gpt-oss-120b": 5.81e9}  # bytes of the files
SKIPPED = 77   # what CTest takes for "skipped"
TEMPORARY = tempfile.gettempdir()


def obstacle():
    """Why the test cannot run here, or nothing."""
    if os.environ.get("NIBBLE_LARGE") != "1":
        return "it writes 13.8 GB; NIBBLE_LARGE=1 asks for it"
    free = shutil.disk_usage(TEMPORARY).free
    wanted = 1.2 * max(SIZES.values())
    if free < wanted:
        return f"want {wanted / 1e9:.0f} GB free in {TEMPORARY}, found {free / 1e9:.1f} GB"
    meminfo = open("/proc/meminfo").read()
    available = int(re.search(r"MemAvailable:\s+(\d+)", meminfo)[1]) * 1024
    if available < 4e9:
        return f"want 4 GB of memory, found {available / 1e9:.1f} GB"
    return ""


def bytes_of(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


class WholeOf20b(Case):
    def test_it_is_written_and_runs_within_24_gib(self):
        made = self.folder / "20b"
        run("make-model", "--preset", "gpt-oss-20b", made, check=0)
        self.assertAlmostEqual(bytes_of(made) / SIZES["gpt-oss-20b"], 1, delta=0.01)
        ids = run("run", made, "--raw", "--ids", "1,2,3", "-n", 8, check=0).stdout
        self.assertRegex(ids.decode(), r"^(\d+,){7}\d+\n$")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"{bytes_of(made) / 1e9:.2f} GB of files, {peak / 1e9:.2f} GB resident at most")
        self.assertLess(peak, 24 * 2 ** 30)


class TwoLayersOf120b(Case):
    def test_it_is_written_checked_verified_and_run(self):
        made = self.folder / "120b"
        run("make-model", "--preset", "gpt-oss-120b", "--layers", 2, made, check=0)
        size = bytes_of(made)
        self.assertAlmostEqual(size / SIZES["gpt-oss-120b"], 1, delta=0.01)
        report = run_json("inspect", made, "--json")
        self.assertEqual(report["problems"], [])

        # Optimised kernels beside the scalar reference, block by block.
        for activation in ("f32", "bf16"):
            print(run("verify", made, "--tokens", 4, "--activation", activation,
                      check=0).stdout.decode())

        flags = ["run", made, "--raw", "--ids", "1,2,3", "-n", 8, "--temp", 0]
        ids = run(*flags, check=0).stdout
        self.assertRegex(ids.decode(), r"^(\d+,){7}\d+\n$")
        self.assertEqual(run(*flags, "--threads", 1, check=0).stdout, ids)
        # No process above held more than the file and what 2 layers need beside it.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(f"{size / 1e9:.2f} GB of files, {peak / 1e9:.2f} GB resident at most")
        self.assertLess(peak, size + 1e9)


if __name__ == "__main__":
    if reason := obstacle():
        print(f"skipped: {reason}")
        raise SystemExit(SKIPPED)
    unittest.main()
