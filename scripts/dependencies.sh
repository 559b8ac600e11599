# shellcheck shell=bash
# The Debian packages that nibble needs, listed once, and the one function that installs them.
# Sourced by run.sh, test.sh, lint.sh and package.sh.

nibble_packages() {  # GROUP: build, test, browser, lint or package
  case "$1" in
    build) echo "g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libpcre2-dev" \
                "libhwy-dev libedit-dev libcli11-dev libboost-dev libssl-dev zlib1g-dev" ;;
    test) echo "libgtest-dev libgmock-dev python3 xz-utils dpkg-dev file groff-base zsh fish" ;;
    browser) echo "chromium chromium-driver" ;;
    package) echo "dpkg-dev file" ;;
    lint) echo "clang-format-14 clang-tidy-14 git python3" ;;
  esac
}

# A tool that is on the path counts as there, however it was installed.
nibble_tool_of() {
  case "$1" in
    g++ | cmake | pkg-config | git | python3 | file | chromium | clang-format-14 | clang-tidy-14)
      echo "$1" ;;
    ninja-build) echo ninja ;;
    xz-utils) echo xz ;;
    chromium-driver) echo chromedriver ;;
  esac
}

# Prints those of the given packages that are not there. Milliseconds: apt is not asked.
nibble_missing() {
  local installed package tool
  # dpkg-query fails when it knows nothing of one of them; the rest it prints.
  installed=" $({ dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true; } |
    sed -n 's/ installed$//p' | tr '\n' ' ')"
  for package in "$@"; do
    [[ $installed == *" $package "* ]] && continue
    tool=$(nibble_tool_of "$package")
    [[ -n $tool ]] && command -v "$tool" >/dev/null && continue
    echo "$package"
  done
}

nibble_say() { echo "nibble: $*" >&2; }

# Installs what is missing of the given groups, as root or through sudo; one line when it cannot.
nibble_install() {
  local group missing=() as_root=() log
  for group in "$@"; do
    # shellcheck disable=SC2046  # words are wanted
    mapfile -t -O "${#missing[@]}" missing < <(nibble_missing $(nibble_packages "$group"))
  done
  ((${#missing[@]} == 0)) && return 0
  if ! command -v apt-get >/dev/null; then
    nibble_say "apt-get is not there; install what these Debian packages hold: ${missing[*]}"
    return 1
  fi
  if ((EUID != 0)); then
    as_root=(sudo)
    # Without a terminal nobody can type a password.
    if ! command -v sudo >/dev/null || { [[ ! -t 2 ]] && ! sudo -n true 2>/dev/null; }; then
      nibble_say "missing packages; as root, run: apt-get install ${missing[*]}"
      return 1
    fi
  fi
  nibble_say "installing ${missing[*]}"
  log=$(mktemp)
  if ! "${as_root[@]}" sh -c 'export DEBIAN_FRONTEND=noninteractive
      apt-get install -qq -y --no-install-recommends "$@" ||
      { apt-get update -qq && apt-get install -qq -y --no-install-recommends "$@"; }' \
      nibble "${missing[@]}" </dev/null >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    nibble_say "apt-get could not install: ${missing[*]} (its output: $log)"
    return 1
  fi
  rm -f "$log"
}

# Configures build/PRESET when it is not configured, or was for another folder; further arguments go
# to cmake and, when the cache says otherwise, also cause it. Output only on failure.
nibble_configure() {  # PRESET NIBBLE_DEV
  local preset=$1 dev=$2 cache=build/$1/CMakeCache.txt log
  if [[ -f $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"; then
    rm -rf "build/$preset"  # the folder was moved or copied; its objects name the old place
  fi
  if [[ -f build/$preset/build.ninja ]]; then
    [[ $dev == OFF ]] && return 0  # tests beside the program do no harm
    grep -qx 'NIBBLE_DEV:BOOL=ON' "$cache" && return 0
  fi
  log=$(mktemp)
  if ! cmake --preset "$preset" -DNIBBLE_DEV="$dev" </dev/null >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    nibble_say "configuring build/$preset failed; the reason is above"
    return 1
  fi
  rm -f "$log"
}

# Builds targets of a configured preset. Standard output stays free; one moving line on a terminal,
# silence elsewhere until something fails.
nibble_build() {  # PRESET TARGET...
  local preset=$1 plan
  shift
  plan=$(ninja -C "build/$preset" -n "$@" 2>&1) || true
  [[ $plan == *"no work to do"* ]] && return 0
  nibble_say "building build/$preset ($*)"
  if [[ -t 2 ]]; then
    ninja -C "build/$preset" "$@" </dev/null >&2
  else
    ninja --quiet -C "build/$preset" "$@" </dev/null >&2
  fi || { nibble_say "the build failed; the reason is above"; return 1; }
}
