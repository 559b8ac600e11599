#!/usr/bin/env bash
# Everything that needs a GPU, in one command: kernel tests, the same under compute-sanitizer, the model beside its
# reference, speed. Exit code 0 when all of it holds.
#
#   scripts/gpu_check.sh [--out DIR] [--bench MODEL]... [--quick]
#   scripts/gpu_check.sh --pack DIR      build, and put programs, libraries and the demo model into DIR
#   scripts/gpu_check.sh --from DIR ...  run what was packed, on a machine without compiler or packages
#
# --out DIR      where records go: one log a step, JSON of tests and benchmarks (default: build/gpu_check)
# --bench MODEL  also measure this checkpoint: a folder, or a preset of `nibble make-model` with random weights
# --quick        without the sanitizers
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
out='' from='' pack='' quick='' models=()
while (($# > 0)); do
  case "$1" in
    --out) out=$2; shift 2 ;;
    --from) from=$2; shift 2 ;;
    --pack) pack=$2; shift 2 ;;
    --bench) models+=("$2"); shift 2 ;;
    --quick) quick=1; shift ;;
    *) echo "gpu_check: want --out, --from, --pack, --bench or --quick, found $1" >&2; exit 2 ;;
  esac
done

build() {  # builds the programs and prints the build folder
  local root=$here/..
  cmake --preset sm90 -S "$root" >&2
  cmake --build "$root/build/sm90" --target nibble_cli kernel_tests >&2
  echo "$root/build/sm90"
}

if [[ -n $pack ]]; then
  folder=$(build)
  mkdir -p "$pack/lib"
  cp "$folder/nibble" "$folder/tests/kernel/kernel_tests" "$pack/"
  strip "$pack/nibble" "$pack/kernel_tests"
  cp -r "$here/../models/demo" "$pack/demo"
  cp "${BASH_SOURCE[0]}" "$pack/gpu_check.sh"
  # What a bare machine lacks; the C and C++ runtimes are its own.
  ldd "$pack/nibble" | grep -oE '/[^ ]*lib(fmt|hwy|pcre2-8|edit|tinfo|bsd|md|boost[^ ]*|spdlog|prometheus[^ ]*)\.so[^ ]*' |
    sort -u | while read -r library; do cp -L "$library" "$pack/lib/"; done
  echo "packed: $pack ($(du -sh "$pack" | cut -f1))"
  exit 0
fi

if [[ -n $from ]]; then
  programs=$from tests=$from/kernel_tests demo=$from/demo
  export LD_LIBRARY_PATH=$from/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  programs=$(build)
  tests=$programs/tests/kernel/kernel_tests demo=$here/../models/demo
fi
nibble=$programs/nibble
out=${out:-$here/../build/gpu_check}
mkdir -p "$out"
export NIBBLE_NEED_GPU=1
failed=()

step() {  # NAME COMMAND...: its output goes to a log, a line with the time and the outcome to the terminal
  local name=$1 begin=$SECONDS code=0
  shift
  "$@" >"$out/$name.log" 2>&1 || code=$?
  printf '%-24s %-7s %4d s\n' "$name" "$( ((code == 0)) && echo ok || echo "FAILED $code")" $((SECONDS - begin))
  ((code == 0)) || { failed+=("$name"); tail -n 5 "$out/$name.log" | sed 's/^/    /'; }
}

same_answer() {  # greedy texts of both devices
  local prompt=$1
  "$nibble" run "$demo" --device cpu --temperature 0 --max-tokens 64 -p "$prompt" >"$out/answer_cpu.txt"
  "$nibble" run "$demo" --device cuda --temperature 0 --max-tokens 64 -p "$prompt" >"$out/answer_cuda.txt"
  diff "$out/answer_cpu.txt" "$out/answer_cuda.txt"
}

bench() {  # NAME MODEL [FLAG...]
  local name=$1 model=$2
  shift 2
  "$nibble" bench "$model" "$@" --device cuda -p 512,1024 -n 128 -r 3 -o json >"$out/bench_$name.json"
  "$nibble" bench "$model" "$@" --device cuda -p 0 -n 64 -d 1024 -r 3 -o json >"$out/bench_${name}_depth.json"
}

{
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  "$nibble" --version
  date -u +%Y-%m-%dT%H:%M:%SZ
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"

step kernel_tests "$tests" --gtest_brief=1 --gtest_output="json:$out/kernel_tests.json"
if [[ -z $quick ]]; then
  # Runs of a thousand repeats show nothing more here and take hours under a sanitizer.
  for tool in memcheck racecheck; do
    step "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests" --gtest_brief=1 \
      --gtest_filter='-*EveryTime*:*RefusesMoreMemory*:*RefusesAGpu*:*ChoosesTheTokens*'
  done
fi
step verify_bf16 "$nibble" verify "$demo" --device cuda --tokens 150
step verify_f32 "$nibble" verify "$demo" --device cuda --tokens 80 --activation f32
step verify_dummy "$nibble" verify tiny --load-format dummy --device cuda --tokens 150
step same_answer same_answer "Tell me about the sea."
step bench_demo bench demo "$demo"
for model in "${models[@]}"; do
  dummy=()
  [[ -d $model ]] || dummy=(--load-format dummy)
  step "bench_$(basename "$model")" bench "$(basename "$model")" "$model" "${dummy[@]}"
done

if ((${#failed[@]} > 0)); then
  echo "gpu_check: FAILED: ${failed[*]} (logs in $out)"
  exit 1
fi
echo "gpu_check: all ok (records in $out)"
