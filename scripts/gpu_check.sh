#!/usr/bin/env bash
# Everything that needs a GPU, in one command: kernel tests, the same under compute-sanitizer, models beside their
# reference, start-up, speed. Exit code 0 when all of it holds.
#
#   scripts/gpu_check.sh [--out DIR] [--bench MODEL]... [--verify MODEL]... [--ready PRESET]... [--quick]
#   scripts/gpu_check.sh --pack DIR      build, and put into DIR what another machine needs: gpu_check.sh, nibble.tar.gz
#                                        (programs, libraries, small models) and, as a folder, the demo model
#   scripts/gpu_check.sh --from DIR ...  run what was packed, on a machine without compiler or packages
#
# --out DIR        where records go: one log a step, JSON of tests and benchmarks (default: build/gpu_check)
# --bench MODEL    also measure this checkpoint: a folder, or a preset of `nibble make-model` with random weights
# --verify MODEL   also compare this one with the scalar reference, block by block: two tokens, which of the 20b shape
#                  take a processor a minute
# --ready PRESET   also write this preset's files and time from start to ready, and then to the first token, with the
#                  files in the page cache
# --quick          without the sanitizers
#
# Exit code 1: a step failed, it is named; 5: no GPU; 2: wrong flags.
#
# NIBBLE_DEMO says where the demo model is, else it is that of DIR or of this checkout.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
out='' from='' pack='' quick='' benches=() verifies=() ready=()
while (($# > 0)); do
  case "$1" in
    --out) out=$2; shift 2 ;;
    --from) from=$2; shift 2 ;;
    --pack) pack=$2; shift 2 ;;
    --bench) benches+=("$2"); shift 2 ;;
    --verify) verifies+=("$2"); shift 2 ;;
    --ready) ready+=("$2"); shift 2 ;;
    --quick) quick=1; shift ;;
    *) echo "gpu_check: want --out, --from, --pack, --bench, --verify, --ready or --quick, found $1" >&2; exit 2 ;;
  esac
done

build() {  # builds the programs and prints the build folder
  local root=$here/..
  cmake --preset sm90 -S "$root" >&2
  cmake --build "$root/build/sm90" --target nibble_cli kernel_tests bench_moe_cuda >&2
  echo "$root/build/sm90"
}

# Programs compress to a third, and links in DIR (to a demo model that travels anyway) stay what they are.
write_pack() {
  local folder stage library
  folder=$(build)
  stage=$(mktemp -d)
  mkdir -p "$pack" "$stage/lib" "$stage/golden"
  cp "$folder/nibble" "$folder/tests/kernel/kernel_tests" "$folder/bench/bench_moe_cuda" "$stage/"
  strip "$stage/nibble" "$stage/kernel_tests" "$stage/bench_moe_cuda"
  # What a bare machine lacks; the C and C++ runtimes are its own.
  for library in $(ldd "$stage/nibble" "$stage/kernel_tests" | sort -u |
    grep -oE '/[^ ]*lib(fmt|hwy|pcre2-8|edit|tinfo|bsd|md|boost[^ ]*|spdlog|prometheus[^ ]*)\.so[^ ]*' | sort -u); do
    cp -L "$library" "$stage/lib/"
  done
  cp -r "$here"/../tests/golden/{tiny,tiny-bf16,odd} "$stage/golden/"
  tar -C "$stage" -czf "$pack/nibble.tar.gz" .
  rm -r "$stage"
  [[ -e $pack/demo ]] || cp -r "$here/../models/demo" "$pack/demo"
  cp "${BASH_SOURCE[0]}" "$pack/gpu_check.sh"
  echo "packed: $pack ($(du -sh "$pack" | cut -f1))"
}

if [[ -n $pack ]]; then
  write_pack
  exit 0
fi

command -v nvidia-smi >/dev/null || { echo "gpu_check: want a GPU and its driver's nvidia-smi, found none" >&2; exit 5; }
out=${out:-$here/../build/gpu_check}
mkdir -p "$out"
if [[ -n $from ]]; then
  programs=$(mktemp -d)
  trap 'rm -r "$programs"' EXIT
  tar -C "$programs" -xzf "$from/nibble.tar.gz"
  tests=$programs/kernel_tests moe_check=$programs/bench_moe_cuda golden=$programs/golden
  demo=${NIBBLE_DEMO:-$from/demo}
  export LD_LIBRARY_PATH=$programs/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  programs=$(build)
  tests=$programs/tests/kernel/kernel_tests moe_check=$programs/bench/bench_moe_cuda
  golden=$here/../tests/golden demo=${NIBBLE_DEMO:-$here/../models/demo}
fi
nibble=$programs/nibble
export NIBBLE_NEED_GPU=1 NIBBLE_DEMO=$demo NIBBLE_GOLDEN=$golden
: >"$out/failed.txt"  # steps, some of which run beside each other

step() {  # NAME COMMAND...: its output goes to a log, a line with the time and the outcome to the terminal
  local name=$1 begin=$SECONDS code=0
  shift
  "$@" >"$out/$name.log" 2>&1 || code=$?
  printf '%-28s %-8s %4d s\n' "$name" "$( ((code == 0)) && echo ok || echo "FAILED $code")" $((SECONDS - begin))
  ((code == 0)) || { echo "$name" >>"$out/failed.txt"; tail -n 5 "$out/$name.log" | sed 's/^/    /'; }
}

# The kernels of expert products, whose edge lists bench_moe_cuda holds: each once.
sanitize_moe() {  # TOOL
  local kernel
  for kernel in moe_stream_bf16_mxfp4_f32_n8_sm90 moe_stream_bf16_mxfp4_f32_n16_sm90 \
    moe_grouped_bf16_mxfp4_f32_n64_sm90 moe_grouped_bf16_mxfp4_f32_n192_sm90; do
    compute-sanitizer --tool "$1" --error-exitcode 9 "$moe_check" profile "$kernel" 4 9
  done
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
  for path in auto graph; do
    "$nibble" bench "$model" "$@" --device cuda --decode-path "$path" -p 0 -n 64 -d 1024 -r 3 -o json \
      >"$out/bench_${name}_depth_$path.json"
  done
}

# From the start of the program: its own account of loading, and all of it to the first token and the end.
ready() {  # FOLDER
  cat "$1"/*.safetensors >/dev/null
  local begin
  begin=$(date +%s.%N)
  "$nibble" run "$1" --device cuda --raw --ids 1,2,3 -n 1 --json
  echo "from start to end, one token included: $(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN {print b - a}') s"
}

{
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  "$nibble" --version
  date -u +%Y-%m-%dT%H:%M:%SZ
} >"$out/machine.txt" 2>&1
cat "$out/machine.txt"

step kernel_tests "$tests" --gtest_brief=1 --gtest_output="json:$out/kernel_tests.json"
step expert_products "$moe_check" check
if [[ -z $quick ]]; then
  # Beside each other, for their time goes on the processor. Runs of a thousand repeats, and long walks of whole models,
  # show nothing more here and take hours under a sanitizer.
  long='*EveryTime*:*GivesMemoryBack*:*RefusesMoreMemory*:*RefusesAGpu*:*ChoosesTheTokens*:*Deep*:*FromTheFirstToken*'
  # What racecheck reports of the decode kernel are pairs that its barriers order (docs/kernels/decode.md).
  ordered='DecodeStepOnGpu*:ModelOnGpu.AgreesWithTheProcessor*:ModelOnGpu.StepsOneAhead*'
  sanitize() {  # TOOL TESTS
    step "$1" compute-sanitizer --tool "$1" --error-exitcode 9 "$tests" --gtest_brief=1 --gtest_filter="$2" &
    step "$1_experts" sanitize_moe "$1" &
  }
  sanitize memcheck "-$long"
  sanitize racecheck "-$long:$ordered"
fi
for model in "${verifies[@]}"; do
  dummy=()
  [[ -d $model ]] || dummy=(--load-format dummy)
  step "verify_$(basename "$model")" "$nibble" verify "$model" "${dummy[@]}" --device cuda --tokens 2 &
done
step verify_bf16 "$nibble" verify "$demo" --device cuda --tokens 150
step verify_f32 "$nibble" verify "$demo" --device cuda --tokens 80 --activation f32
step verify_dummy "$nibble" verify tiny --load-format dummy --device cuda --tokens 150
step verify_fp8_cache "$nibble" verify "$demo" --device cuda --tokens 150 --kv-cache-dtype fp8
step same_answer same_answer "Tell me about the sea."
wait  # what is measured from here on wants the machine for itself
step bench_demo bench demo "$demo"
for preset in "${ready[@]}"; do
  step "make_$preset" "$nibble" make-model --preset "$preset" "$out/$preset"
  step "ready_$preset" ready "$out/$preset"
  rm -r "${out:?}/$preset"
done
for model in "${benches[@]}"; do
  dummy=()
  [[ -d $model ]] || dummy=(--load-format dummy)
  step "bench_$(basename "$model")" bench "$(basename "$model")" "$model" "${dummy[@]}"
done

if [[ -s $out/failed.txt ]]; then
  echo "gpu_check: FAILED: $(sort "$out/failed.txt" | paste -sd ' ') (logs in $out)"
  exit 1
fi
echo "gpu_check: all ok (records in $out)"
