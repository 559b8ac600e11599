#!/usr/bin/env python3
"""The layer check finds each kind of planted fault, and nothing in a clean tree."""
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(sys.argv[1])
# file, its text, what the check must say (empty: nothing)
CASES = [
    ("model/a.h", '#include "kernels/moe/moe.h"\n', ""),
    ("cli/a.cpp", '#include "api/commands/inspect.h"\n#include "nibble/engine.h"\n', ""),
    ("base/a.h", '#include "model/config.h"\n', "layer 'base' may not include 'model/config.h'"),
    ("kernels/x/a.cpp", '#include "engine/cache.h"\n', "layer 'kernels' may not include 'engine/cache.h'"),
    ("engine/a.cpp", '#include "text/tokenizer.h"\n', "layer 'engine' may not include 'text/tokenizer.h'"),
    ("cli/a.cpp", '#include "model/config.h"\n', "layer 'cli' may not include 'model/config.h'"),
    ("cli/a.cpp", '#include "api/files.h"\n', "layer 'cli' may not include 'api/files.h'"),
    ("text/a.h", '#include "nibble/engine.h"\n', "layer 'text' may not include 'nibble/engine.h'"),
    ("tensor/a.h", "#include <cuda_runtime.h>\n", "CUDA include in a host file"),
    ("tensor/a.cpp", "# include <nccl.h>\n", "CUDA include in a host file"),
    ("kernels/x/device/a.cuh", '#include "kernels/x/x.h"\n', "device code includes host header"),
    ("odd/a.h", "", "'odd' is not a layer"),
]


def check(root):
    return subprocess.run([sys.executable, SOURCE / "tools/check_layers.py", root],
                          capture_output=True, text=True)


failures = 0
for name, text, expected in CASES:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "src", name)
        path.parent.mkdir(parents=True)
        path.write_text(text)
        result = check(folder)
    good = (expected in result.stdout and result.returncode == 1) if expected else result.returncode == 0
    if not good:
        failures += 1
        print(f"{name} with {text!r}: want {expected or 'nothing'!r}, "
              f"found exit code {result.returncode} and {result.stdout!r} {result.stderr!r}")
print(f"{len(CASES)} cases, {failures} failures")
sys.exit(failures > 0)
