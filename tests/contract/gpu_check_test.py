#!/usr/bin/env python3
"""scripts/gpu_check.sh --from runs what was packed wherever it lies: programs find the packed models, a failed step is
named and makes exit code 1. Programs are stand-ins, so no GPU is needed.

usage: gpu_check_test.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
# Each says where it was told the models are, and whether they are there.
MODELS = 'echo "demo:$NIBBLE_DEMO need:$NIBBLE_NEED_GPU"; cat "$NIBBLE_DEMO/config.json" "$NIBBLE_GOLDEN/tiny/config.json"'
# A comparison of answers finds the GPU's different when it is told to.
NIBBLE = MODELS + '; case "$1 $*" in run*"--device cuda"*) test -z "$SPOIL" || echo other;; esac'
STEPS = ["kernel_tests", "expert_products", "memcheck", "memcheck_experts", "racecheck", "racecheck_experts",
         "verify_bf16", "verify_f32", "verify_dummy", "verify_fp8_cache", "same_answer", "bench_demo"]


def write_program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make_pack(root):
    """As --pack leaves it, in a folder with spaces; the demo is a link to where it travels anyway."""
    stage = root / "stage"
    write_program(stage / "nibble", NIBBLE)
    write_program(stage / "kernel_tests", MODELS)
    write_program(stage / "bench_moe_cuda", MODELS)
    (stage / "golden/tiny").mkdir(parents=True)
    (stage / "golden/tiny/config.json").write_text("tiny\n")
    (root / "elsewhere").mkdir()
    (root / "elsewhere/config.json").write_text("demo\n")
    pack = root / "a pack"
    pack.mkdir()
    subprocess.run(["tar", "-C", stage, "-czf", pack / "nibble.tar.gz", "."], check=True)
    (pack / "demo").symlink_to("../elsewhere")
    (pack / "gpu_check.sh").write_bytes((SOURCE / "scripts/gpu_check.sh").read_bytes())
    write_program(root / "bin/nvidia-smi", "echo card")
    write_program(root / "bin/compute-sanitizer", 'while [ "$1" != "${1#--}" ]; do case "$1" in --tool) shift 2;; '
                                                  '--error-exitcode) shift 2;; *) shift;; esac; done; exec "$@"')
    return pack


def run(root, pack, *arguments, **variables):
    out = root / "records"
    result = subprocess.run(["bash", pack / "gpu_check.sh", "--from", pack, "--out", out, *arguments], cwd="/",
                            env={"PATH": f"{root / 'bin'}:/usr/bin:/bin", **variables}, capture_output=True, text=True)
    return result, out


def problems(root):
    pack = make_pack(root)
    result, out = run(root, pack)
    if result.returncode != 0 or "gpu_check: all ok" not in result.stdout:
        yield f"want success, found {result.returncode} {result.stdout!r} {result.stderr!r}"
    for name in STEPS:
        if f"\n{name} " not in result.stdout:
            yield f"want a step {name}, found {result.stdout!r}"
    wanted = f"demo:{pack}/demo need:1\ndemo\ntiny\n"
    found = (out / "kernel_tests.log").read_text()
    if found != wanted:
        yield f"kernel_tests: want {wanted!r}, found {found!r}"
    write_program(root / "bin/compute-sanitizer", "exit 9")
    result, _ = run(root, pack)
    if result.returncode != 1 or "FAILED: memcheck memcheck_experts racecheck racecheck_experts (" not in result.stdout:
        yield f"what runs beside: want exit code 1 and the names, found {result.returncode} {result.stdout!r}"
    result, _ = run(root, pack, "--quick", SPOIL="1")
    if result.returncode != 1 or "FAILED: same_answer (logs in" not in result.stdout or "racecheck" in result.stdout:
        yield f"another answer: want exit code 1 and its name, found {result.returncode} {result.stdout!r}"
    result, _ = run(root, pack, PATH="/usr/bin:/bin")
    if result.returncode != 5 or result.stderr.count("\n") != 1:
        yield f"no GPU: want exit code 5 and one line, found {result.returncode} {result.stderr!r}"
    result, _ = run(root, pack, "--slow")
    if result.returncode != 2 or "found --slow" not in result.stderr:
        yield f"unknown flag: want exit code 2, found {result.returncode} {result.stderr!r}"


with tempfile.TemporaryDirectory() as folder:
    failures = list(problems(pathlib.Path(folder)))
print("\n".join(failures) or "0 failures")
sys.exit(bool(failures))
