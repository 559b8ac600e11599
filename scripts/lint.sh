#!/usr/bin/env bash
# Format, layers and clang-tidy, all as errors.
#
#   scripts/lint.sh           tidy over the sources that differ from the main branch; on that branch
#                             itself, over those of its last ten commits
#   scripts/lint.sh --recent  tidy over the sources of the last ten commits, whatever the branch
#   scripts/lint.sh --all     tidy over every source
#   scripts/lint.sh --fix     format in place first
#
# CUDA sources are formatted but not tidied: clang-tidy 14 cannot parse the CUDA 13 headers. Nor are
# the tiles of the CPU kernels, written for vectors that its front end knows in part only.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
cd -- "$(pwd -P)"
# shellcheck source=scripts/dependencies.sh
source scripts/dependencies.sh
nibble_install build test lint

formatter=$(command -v clang-format-14 || command -v clang-format)
tidy=$(command -v clang-tidy-14 || command -v clang-tidy)
mapfile -d '' sources < <(git ls-files -z -- '*.h' '*.cpp' '*.c' '*.cu' '*.cuh')

[[ ${1:-} == --fix ]] && "$formatter" -i "${sources[@]}"
"$formatter" --dry-run --Werror "${sources[@]}"
echo "format: ok (${#sources[@]} files)"
python3 tools/check_layers.py .

nibble_configure cpu ON
# Where this branch left the main one; on the main branch itself, ten commits ago.
base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
if [[ ${1:-} == --recent || $base == "$(git rev-parse HEAD)" ]]; then
  base=$(git rev-list --max-count=11 HEAD | tail -n 1)
fi
if [[ ${1:-} == --all || -z $base ]]; then
  mapfile -d '' tidied < <(git ls-files -z -- 'src/*.cpp' 'tests/*.cpp')
else
  mapfile -d '' tidied < <(git diff -z --name-only --diff-filter=d "$base" -- 'src/*.cpp' 'tests/*.cpp')
fi
compiled() {  # those that compile_commands.json knows
  python3 - "$PWD" "$@" <<'PY'
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
known = {entry["file"] for entry in json.loads((root / "build/cpu/compile_commands.json").read_text())}
print("\0".join(path for path in sys.argv[2:] if str(root / path) in known), end="\0")
PY
}
mapfile -d '' tidied < <(printf '%s\0' "${tidied[@]}" | grep -zv '^src/kernels/.*_tile.*\.cpp$')
# What clang 14 lacks to read the coroutines of libstdc++ and Asio, which it understands otherwise.
coroutines=(--extra-arg=-D__cpp_impl_coroutine=201902L --extra-arg=-DBOOST_ASIO_HAS_CO_AWAIT=1
  --extra-arg=-DBOOST_ASIO_HAS_STD_COROUTINE=1)
if ((${#tidied[@]} > 0)); then
  mapfile -d '' tidied < <(compiled "${tidied[@]}")
  printf '%s\0' "${tidied[@]}" |
    xargs -0 -r -n 1 -P "$(nproc)" "$tidy" --quiet -p build/cpu "${coroutines[@]}" 2>/dev/null
fi
echo "tidy: ok (${#tidied[@]} files)"
