#!/usr/bin/env bash
# Ready for requests? Asks /health of the server on NIBBLE_PORT (default 8000) of this machine, by
# what bash itself has.
set -euo pipefail

exec 3<>"/dev/tcp/127.0.0.1/${NIBBLE_PORT:-8000}"
printf 'GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n' >&3
read -r -t 4 version status _ <&3
[[ $version == HTTP/* && $status == 200 ]]
