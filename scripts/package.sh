#!/usr/bin/env bash
# Builds the Debian packages: nibble and libnibble-dev.
#
#   scripts/package.sh [FOLDER]     writes them there (default: build/packages)
set -euo pipefail

folder=$(realpath -m -- "${1:-"$(dirname -- "${BASH_SOURCE[0]}")/../build/packages"}")
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
cd -- "$(pwd -P)"
# shellcheck source=scripts/dependencies.sh
source scripts/dependencies.sh

nibble_install build package
nibble_configure cpu OFF
nibble_build cpu all
mkdir -p "$folder"
cpack -G DEB --config build/cpu/CPackConfig.cmake -B "$folder" >&2
rm -rf "$folder/_CPack_Packages"
ls "$folder"/*.deb
