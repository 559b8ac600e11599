#!/usr/bin/env python3
"""Fails when a file of src/ includes a layer that its own layer may not use."""
import pathlib
import re
import sys

ALLOWED = {
    "base": set(),
    "formats": {"base"},
    "tensor": {"base"},
    "kernels": {"base", "formats", "tensor"},
    "comm": {"base", "tensor", "kernels"},
    "weights": {"base", "formats", "tensor", "kernels"},
    "text": {"base"},
    "grammar": {"base", "text"},
    "model": {"base", "formats", "tensor", "kernels", "comm", "weights"},
    "engine": {"base", "tensor", "kernels", "comm", "model"},
    "api": {"base", "formats", "tensor", "kernels", "comm", "weights", "text", "grammar", "model", "engine"},
    "server": {"base", "api/commands"},
    "client": {"base", "text"},
    "cli": {"base", "api/commands", "client", "server", "text"},
}
# Layers that may include the public headers; the others see `nibble/status.h` only.
PUBLIC_USERS = {"api", "server", "cli"}
CUDA = re.compile(r'#\s*include\s*[<"](cuda|cub/|thrust/|nccl|cooperative_groups)')
INCLUDE = re.compile(r'#\s*include\s*"([a-z_]+)/([^"]+)"')


def allowed(layer, other, rest):
    folder = f"{other}/{rest.split('/')[0]}"
    return other in ALLOWED[layer] or folder in ALLOWED[layer]


def problems(root):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh"}:
            continue
        rel = path.relative_to(root / "src")
        layer, text = rel.parts[0], path.read_text()
        if layer not in ALLOWED:
            yield f"{rel}: '{layer}' is not a layer"
            continue
        for other, rest in INCLUDE.findall(text):
            if other in ALLOWED and other != layer and not allowed(layer, other, rest):
                yield f"{rel}: layer '{layer}' may not include '{other}/{rest}'"
            if other == "nibble" and rest != "status.h" and layer not in PUBLIC_USERS:
                yield f"{rel}: layer '{layer}' may not include 'nibble/{rest}'"
        if path.suffix in {".h", ".cpp"} and CUDA.search(text):
            yield f"{rel}: CUDA include in a host file"
        if "device" in rel.parts:
            for line in re.findall(r'#\s*include\s*"([^"]+)"', text):
                if not (line.startswith("kernels/common/") or "/device/" in line or line.startswith("formats/")):
                    yield f"{rel}: device code includes host header {line}"


if __name__ == "__main__":
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layers: ok")
    sys.exit(bool(found))
