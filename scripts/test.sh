#!/usr/bin/env bash
# Installs what is missing, builds everything, runs every test that needs no GPU.
#
#   scripts/test.sh [--sanitize] [CTEST ARGUMENT...]
#
# --sanitize adds the unit tests and fuzz replays under the address and undefined-behaviour
# sanitizers, and the tests that use threads under the thread sanitizer.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
cd -- "$(pwd -P)"
# shellcheck source=scripts/dependencies.sh
source scripts/dependencies.sh

sanitize=
if [[ ${1:-} == --sanitize ]]; then
  sanitize=1
  shift
fi
jobs=$(nproc)

nibble_install build test
nibble_configure cpu ON
nibble_build cpu all
ctest --test-dir build/cpu --output-on-failure --no-tests=error -j "$jobs" "$@" </dev/null
[[ -z $sanitize ]] && exit 0

nibble_configure asan ON
nibble_build asan tests_unit tests_fuzz
# Leaks are looked for too; the suppressed sanitizers' defaults are fatal at the first finding.
ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
  ctest --test-dir build/asan --output-on-failure --no-tests=error -j "$jobs" -L '^(unit|fuzz)$' \
  "$@" </dev/null
nibble_configure tsan ON
nibble_build tsan tests_unit
TSAN_OPTIONS=halt_on_error=1 \
  ctest --test-dir build/tsan --output-on-failure --no-tests=error -j "$jobs" -L '^unit$' \
  "$@" </dev/null
