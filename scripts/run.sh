#!/usr/bin/env bash
# From a fresh clone to an answer: installs what is missing, builds the program, runs it.
#
#   scripts/run.sh                     a chat with the demo model
#   scripts/run.sh Tell me a story     the words are the prompt; options may follow them
#   scripts/run.sh VERB ... | -FLAG    everything goes to build/cpu/nibble as it is
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/dependencies.sh
source "$root/scripts/dependencies.sh"
(
  cd -- "$root"
  nibble_install build
  nibble_configure cpu OFF
  nibble_build cpu nibble_cli
)

verbs=" run serve bench bench-serve doctor plan inspect quantize verify make-model tokenize score "
nibble=$root/build/cpu/nibble
if (($# == 0)); then
  exec "$nibble" run
elif [[ $1 == -* || $verbs == *" $1 "* ]]; then
  exec "$nibble" "$@"
fi
prompt=$1
shift
while (($# > 0)) && [[ $1 != -* ]]; do
  prompt+=" $1"
  shift
done
exec "$nibble" run -p "$prompt" "$@"
