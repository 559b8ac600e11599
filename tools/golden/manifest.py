"""Checks tests/golden against its checksum manifest: every file listed, every listed file unchanged.

Usage: manifest.py [--write]    --write makes the manifest anew from the files that are there
"""
import hashlib
import pathlib
import sys

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
MANIFEST = GOLDEN / "MANIFEST.sha256"
UNLISTED = {"MANIFEST.sha256", "README.md", "CMakeLists.txt"}


def is_data(path):
    return path.is_file() and path.name not in UNLISTED and path.suffix not in (".cpp", ".h")


def sums():
    files = sorted(p for p in GOLDEN.rglob("*") if is_data(p))
    return {p.relative_to(GOLDEN).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def main():
    found = sums()
    if "--write" in sys.argv[1:]:
        MANIFEST.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
        return 0
    lines = MANIFEST.read_text().splitlines()
    wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    faults = [f"{name}: not in MANIFEST.sha256" for name in found.keys() - wanted.keys()]
    faults += [f"{name}: listed in MANIFEST.sha256, but missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name}: want sha256 {wanted[name]}, found {found[name]}"
               for name in wanted.keys() & found.keys() if wanted[name] != found[name]]
    print("\n".join(sorted(faults)) or f"{len(found)} golden files are as listed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
