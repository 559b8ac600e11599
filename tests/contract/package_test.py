#!/usr/bin/env python3
"""The Debian package holds what it should, says what it needs, and its program runs; completions and
the manual are what their readers accept.

usage: package_test.py SOURCE_DIR BINARY_DIR WORK_DIR
"""
import gzip
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys

SOURCE, BINARY, WORK = (pathlib.Path(argument) for argument in sys.argv[1:4])
UNIT = "usr/lib/systemd/system/nibble.service"
PROGRAM_FILES = ["usr/bin/nibble", UNIT, "usr/share/man/man1/nibble.1.gz",
                 "usr/share/bash-completion/completions/nibble",
                 "usr/share/zsh/vendor-completions/_nibble",
                 "usr/share/fish/vendor_completions.d/nibble.fish",
                 "usr/share/nibble/models/demo/model.safetensors", "usr/share/doc/nibble/copyright",
                 "usr/share/doc/nibble/docs/command-line.md"]
# Libraries that the program links, by the packages that Debian 12 has them in.
LIBRARIES = ["libc6", "libstdc++6", "libfmt9", "libpcre2-8-0", "libedit2", "libhwy1", "libssl3", "zlib1g"]


def run(*command, want=0, **options):
    result = subprocess.run([str(part) for part in command], cwd=WORK, text=True, capture_output=True,
                            stdin=subprocess.DEVNULL, env=clean_environment(), **options)
    if result.returncode != want:
        sys.exit(f"{command}: want exit code {want}, found {result.returncode}\n"
                 f"{result.stdout}{result.stderr}")
    return result


def clean_environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NIBBLE_")}
    return {**kept, "LC_ALL": "C.UTF-8", "HOME": str(WORK)}


def check(good, text):
    if not good:
        sys.exit(text)


def pack():
    """Both packages, packed fast: nobody downloads these."""
    run("cpack", "-G", "DEB", "-B", WORK, "--config", BINARY / "CPackConfig.cmake",
        "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
    version = re.search(r"project\(nibble VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    found = {path.name.split("_")[0]: path for path in WORK.glob("*.deb")}
    check(set(found) == {"nibble", "libnibble-dev"}, f"want two packages, found {sorted(found)}")
    for package in found.values():
        check(package.name.split("_")[1] == version, f"want version {version}, found {package.name}")
    return found["nibble"], found["libnibble-dev"]


def contents(package):
    """Paths without the leading "./" and folders; owners and modes as they should be."""
    paths = []
    for line in run("dpkg-deb", "-c", package).stdout.splitlines():
        mode, owner, _, _, _, path = line.split(None, 5)
        check(owner == "root/root", f"{path}: want root/root, found {owner}")
        check(mode[5] != "w" and mode[8] != "w", f"{path}: writable by others: {mode}")
        if not path.endswith("/"):
            paths.append(path.removeprefix("./"))
    return paths


def fields(package):
    return dict(line.split(": ", 1) for line in run("dpkg-deb", "-f", package).stdout.splitlines()
                if ": " in line and not line.startswith(" "))


def program_package(package):
    paths = contents(package)
    for path in PROGRAM_FILES:
        check(path in paths, f"{package.name} lacks {path}")
    headers = [path for path in paths if path.endswith((".h", ".a", ".cmake"))]
    check(not headers, f"{package.name} holds what is for developers: {headers}")
    check(all(path.startswith(("usr/", "lib/")) for path in paths), f"files outside /usr: {paths}")
    needed = fields(package)["Depends"]
    for library in LIBRARIES:
        check(re.search(rf"(^|, ){re.escape(library)} \(>= ", needed), f"want {library} in {needed}")


def development_package(package):
    paths = contents(package)
    public = {f"usr/{path.relative_to(SOURCE)}" for path in SOURCE.glob("include/nibble/*.h")}
    check(public <= set(paths), f"{package.name} lacks {sorted(public - set(paths))}")
    check(not [path for path in paths if path.startswith("usr/bin")], "a program for developers")


def packed_program(package):
    """Runs from where it was unpacked, with the demo beside it, and names no build folder."""
    run("dpkg-deb", "-x", package, WORK / "root")
    nibble = WORK / "root/usr/bin/nibble"
    answer = run(nibble, "run", "-p", "Hello", "-n", "64", "--temperature", "0")
    check(answer.stdout.strip() != "", "the packed program printed no answer")
    check(str(BINARY).encode() not in nibble.read_bytes(), f"the program names {BINARY}")
    return nibble


def installs_and_leaves(package):
    """dpkg itself unpacks, configures and removes it, in a root of its own."""
    if os.geteuid() != 0:
        print("not root: installing with dpkg was not tried")
        return
    root = WORK / "dpkg"
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg = ("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", "--log=/dev/null")
    run(*dpkg, "-i", package)
    check((root / "usr/bin/nibble").is_file(), "dpkg did not install the program")
    run(*dpkg, "-r", "nibble")
    left = [str(path) for path in root.glob("usr/**/*") if "nibble" in path.name]
    check(not left, f"dpkg -r left {left}")


def manual(nibble):
    page = gzip.decompress((WORK / "root/usr/share/man/man1/nibble.1.gz").read_bytes()).decode()
    check(page == run(nibble, "generate", "--what", "man").stdout, "the manual is not the program's")
    (WORK / "nibble.1").write_text(page)
    warnings = run("groff", "-man", "-Tutf8", "-ww", "-z", WORK / "nibble.1").stderr
    check(warnings == "", f"groff: {warnings}")
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", run("groff", "-man", "-Tutf8", "-P-c", WORK / "nibble.1").stdout)
    for verb, flags in verbs(nibble).items():
        for flag in flags:
            check(flag in text, f"the manual of {verb} lacks {flag}")
    for wanted in ("EXIT STATUS", "130, 143", "NIBBLE_DEMO", "bf16, f32"):
        check(wanted in text, f"the manual lacks {wanted}")
    if shutil.which("lexgrog"):
        check("nibble - run mixture" in run("lexgrog", WORK / "nibble.1").stdout, "lexgrog reads no name")


def verbs(nibble):
    """Verb -> long flags, as the help prints them."""
    listed = re.findall(r"^  ([a-z-]+) {2,}", run(nibble, "--help").stdout.split("Verbs:")[1], re.M)
    check("run" in listed and "generate" not in listed, f"verbs of the help: {listed}")
    flags = {verb: re.findall(r"^  (?:-., |    )(--[a-z-]+)", run(nibble, verb, "--help").stdout, re.M)
             for verb in listed}
    check(all("--help" in names and len(names) > 2 for names in flags.values()), f"flags: {flags}")
    return flags


def complete_bash(script, *words):
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    code = (f"source '{script}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _nibble; "
            'printf "%s\\n" "${COMPREPLY[@]}"')
    return run("bash", "--norc", "-uc", code).stdout.split()


def bash(nibble):
    script = WORK / "root/usr/share/bash-completion/completions/nibble"
    run("bash", "-n", script)
    if shutil.which("shellcheck"):
        run("shellcheck", "-s", "bash", script)
    known = verbs(nibble)
    check(set(complete_bash(script, "nibble", "")) == {*known, "help", "--help", "--version"},
          f"verbs: {complete_bash(script, 'nibble', '')}")
    for verb, flags in known.items():
        offered = complete_bash(script, "nibble", verb, "--")
        check(set(flags) <= set(offered), f"{verb}: {set(flags) - set(offered)} are not offered")
    for words, want in [(("bench", "-o", "j"), {"json", "jsonl"}),
                        (("bench", "--output", "="), {"md", "json", "jsonl", "csv"}),
                        (("bench", "--output", "=", "c"), {"csv"}),
                        (("run", "--temperature", ""), set()),
                        (("help", "quant"), {"quantize"}),
                        (("run", "-f", "nibble."), {"nibble.1"}),
                        (("run", "nibble."), {"nibble.1"})]:
        found = set(complete_bash(script, "nibble", *words))
        check(found == want, f"{words}: want {want}, found {found}")


def zsh():
    """Lines typed into zsh, completed by its own system; a function prints what came of them."""
    script = WORK / "root/usr/share/zsh/vendor-completions/_nibble"
    run("zsh", "-fn", script)
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(WORK)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**clean_environment(), "TERM": "dumb"})
    seen = ""

    def read_until(wanted):
        nonlocal seen
        while wanted not in seen:
            ready = select.select([master], [], [], 60)[0]
            check(ready, f"zsh: want {wanted!r}, found {seen[-3000:]!r}")
            seen += os.read(master, 65536).decode("utf-8", "replace")

    os.write(master, f"autoload -U compinit && compinit -D -u && source '{script}' && "
                     'nibble() { print -r -- "GOT<$*>" } && print READ"Y"\n'.encode())
    read_until("READY")
    seen = ""
    for typed, want in [("nibble bench-s\t --max-conc\t4", "bench-serve --max-concurrency 4"),
                        ("nibble bench --outpu\tm\t", "bench --output md"),
                        ("nibble run --max-tok\t5 --file nibble.\t", "run --max-tokens 5 --file nibble.1"),
                        ("nibble run --stop a --sto\tb", "run --stop a --stop b"),
                        ("nibble help quant\t", "help quantize")]:
        os.write(master, typed.encode() + b"\n")
        read_until("GOT<")
        read_until(">")
        found = re.search(r"GOT<(.*?) *>", seen)
        check(found and found[1] == want, f"zsh: {typed!r}: want {want!r}, found {seen!r}")
        seen = ""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(master)


def fish():
    script = WORK / "root/usr/share/fish/vendor_completions.d/nibble.fish"
    run("fish", "--no-config", "-n", script)

    def offered(line):
        out = run("fish", "--no-config", "-c", f"source '{script}'; complete -C '{line}'").stdout
        return {entry.split("\t")[0] for entry in out.splitlines()}

    check({"run", "bench-serve", "tokenize"} <= offered("nibble "), f"fish: {offered('nibble ')}")
    check({"--max-tokens", "--seed"} <= offered("nibble run --"), f"fish: {offered('nibble run --')}")
    check(offered("nibble bench -o ") == {"md", "json", "jsonl", "csv"}, f"fish: {offered('nibble bench -o ')}")


def unit(nibble):
    """What systemd says of the unit: no fault, and next to no rights."""
    text = (WORK / "root" / UNIT).read_text()
    check("ExecStart=nibble serve\n" in text, "the unit starts something else")
    for code in re.search(r"^RestartPreventExitStatus=(.*)$", text, re.M)[1].split():
        check(re.search(rf"^\| {code} \|", (SOURCE / "docs/command-line.md").read_text(), re.M),
              f"exit code {code} is not documented")
    if not shutil.which("systemd-analyze"):
        print("systemd-analyze is not there: the unit was read, not verified")
        return
    # The program where it was unpacked: systemd looks for it below /usr alone.
    placed = WORK / "unit/nibble.service"
    placed.parent.mkdir()
    placed.write_text(text.replace("ExecStart=nibble", f"ExecStart={nibble}"))
    complaints = run("systemd-analyze", "verify", "--man=no", placed).stderr
    check("nibble" not in complaints, f"systemd-analyze verify: {complaints}")
    scored = run("systemd-analyze", "security", "--offline=true", "--threshold=20", placed).stdout
    check("Overall exposure level" in scored, f"systemd-analyze security: {scored}")


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
program, development = pack()
program_package(program)
development_package(development)
NIBBLE = packed_program(program)
installs_and_leaves(program)
unit(NIBBLE)
manual(NIBBLE)
bash(NIBBLE)
for shell, test in (("zsh", zsh), ("fish", fish)):
    test() if shutil.which(shell) else print(f"{shell} is not there: its completion was not tried")
print("packages, manual and completions: ok")
