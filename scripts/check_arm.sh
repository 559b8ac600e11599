#!/usr/bin/env bash
# Compiles the sources of the processor's kernels, and of `base` below them, for ARM (NEON), with warnings
# as errors. Nothing is linked or run.
#
#   scripts/check_arm.sh      wants g++ for aarch64 (Debian: g++-aarch64-linux-gnu); exit code 5 without it
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
cd -- "$(pwd -P)"
compiler=aarch64-linux-gnu-g++
if ! command -v "$compiler" >/dev/null; then
  echo "arm: want $compiler, found none; apt-get install g++-aarch64-linux-gnu" >&2
  exit 5
fi
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
# These headers are the same for every processor; the others beside them are not.
ln -s /usr/include/hwy /usr/include/fmt "$headers/"
mkdir "$headers/kernels"
# Tables of CUDA kernels, which the build writes: none here.
for family in $(grep -oP '^nibble_kernels\(\K\w+' src/kernels/CMakeLists.txt); do
  : >"$headers/kernels/${family}_instances.inc"
done
mapfile -d '' sources < <(git ls-files -z -- 'src/base/*.cpp' 'src/kernels/*.cpp')
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" \
  "$compiler" -std=c++20 -O1 -ffp-contract=off -Wall -Wextra -Werror -Wno-missing-field-initializers \
  -Isrc -Iinclude -isystem "$headers" -c -o /dev/null
echo "arm: ok (${#sources[@]} files)"
