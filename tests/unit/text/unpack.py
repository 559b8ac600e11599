"""Unpacks an xz file. Usage: unpack.py PACKED OUT"""
import lzma
import os
import pathlib
import sys

packed, out = map(pathlib.Path, sys.argv[1:])
out.parent.mkdir(parents=True, exist_ok=True)
part = out.with_suffix(".part")
part.write_bytes(lzma.decompress(packed.read_bytes()))
os.replace(part, out)  # never half a file under the final name
