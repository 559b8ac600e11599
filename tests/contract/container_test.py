#!/usr/bin/env python3
"""The Dockerfile copies what is there, installs what the scripts say, runs as nobody and knows when it
is healthy. It is read, not built: that is container_build_test.py.

usage: container_test.py SOURCE_DIR PROGRAM
"""
import fnmatch
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading

SOURCE, PROGRAM = (pathlib.Path(argument) for argument in sys.argv[1:3])
DOCKERFILE = SOURCE / "packaging/Dockerfile"
HEALTHCHECK = SOURCE / "packaging/healthcheck.sh"


def check(good, text):
    if not good:
        sys.exit(text)


def stages():
    """Of each stage its instructions: [(NAME, argument), ...]."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.M).replace("\\\n", " ")
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, argument = line.split(None, 1)
        if name == "FROM":
            found.append([])
        found[-1].append((name, re.sub(r" +", " ", argument)))
    return found


def arguments(stage, name):
    return [argument for found, argument in stage if found == name]


def ignored(path):
    patterns = [line for line in (SOURCE / ".dockerignore").read_text().split() if line]
    names = [str(path), *map(str, path.parents)]
    return any(fnmatch.fnmatch(name, pattern) for name in names for pattern in patterns)


def copies_what_is_there(build, final):
    """Every file that is copied from the source exists, and the filter lets it through."""
    for argument in arguments(build, "COPY") + arguments(final, "COPY"):
        if argument.startswith("--from="):
            check(argument.startswith("--from=build "), f"COPY {argument}: no such stage")
            continue
        for path in argument.split()[:-1]:
            check((SOURCE / path).exists(), f"COPY {argument}: {path} is not in the source")
            check(not ignored(pathlib.PurePath(path)), f"COPY {argument}: .dockerignore hides {path}")
    tracked = subprocess.run(["git", "-C", SOURCE, "ls-files"], capture_output=True, text=True)
    hidden = [path for path in tracked.stdout.split("\n") if path and ignored(pathlib.PurePath(path))]
    check(not hidden, f".dockerignore hides what the build needs: {hidden[:5]}")


def installs_what_the_scripts_say(build, final):
    """No list of packages of its own: the build's is dependencies.sh, the program's its package."""
    groups = re.search(r"nibble_install ([a-z ]+)", " ".join(arguments(build, "RUN")))[1].split()
    package = (SOURCE / "scripts/package.sh").read_text()
    wanted = re.search(r"^nibble_install ([a-z ]+)$", package, re.M)[1].split()
    check(groups == wanted, f"packages: want those of scripts/package.sh, {wanted}, found {groups}")
    dependencies = (SOURCE / "scripts/dependencies.sh").read_text()
    for group in groups:
        check(f"    {group}) echo" in dependencies, f"dependencies.sh has no group {group}")
    folder = re.search(r"scripts/package\.sh (\S+)", " ".join(arguments(build, "RUN")))[1]
    copied = next(argument for argument in arguments(final, "COPY") if "--from=build" in argument)
    check(copied.split()[1] == f"{folder}/nibble_*.deb", f"want the package of {folder}, found {copied}")
    installed = re.search(r"apt-get install ([^&]+)&&", " ".join(arguments(final, "RUN")))[1].split()
    names = [word for word in installed if not word.startswith("-")]
    check(names == ["/packages/nibble_*.deb"], f"want the package alone, found {names}")
    for stage in (build, final):
        check(re.match(r"debian:12(-slim)?\b", stage[0][1]), f"want Debian 12, found {stage[0][1]}")


def runs_as_nobody_and_says_how_it_is(final):
    names = [name for name, _ in final]
    user = arguments(final, "USER")
    check(user and user[-1].isdigit() and int(user[-1]) > 0, f"want a user by number, found {user}")
    after = names[len(names) - 1 - names[::-1].index("USER"):]
    check(not {"RUN", "COPY"} & set(after), "something is done after the rights were given up")
    check(arguments(final, "ENTRYPOINT") == ['["nibble"]'], "want the program as entry point")
    command = arguments(final, "CMD")[0].strip('[]"')
    verbs = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True).stdout
    check(re.search(rf"^  {command} ", verbs, re.M), f"the program has no verb {command}")
    target = next(argument.split()[-1] for argument in arguments(final, "COPY")
                  if argument.startswith("packaging/healthcheck.sh"))
    check(arguments(final, "HEALTHCHECK")[0].endswith(f'CMD ["{pathlib.PurePath(target).name}"]'),
          "HEALTHCHECK runs something else")
    check(os.access(HEALTHCHECK, os.X_OK), "healthcheck.sh cannot be executed")
    port = re.search(r"NIBBLE_PORT=(\d+)", " ".join(arguments(final, "ENV")))[1]
    check(arguments(final, "EXPOSE") == [port], f"EXPOSE is not NIBBLE_PORT, {port}")


def healthy(port):
    return subprocess.run([HEALTHCHECK], env={**os.environ, "NIBBLE_PORT": str(port)},
                          capture_output=True, timeout=30).returncode == 0


def reads_health():
    """200 is healthy; another answer, none at all and a closed port are not."""
    for reply, want in ((b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", True),
                        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False), (b"", False),
                        (b"200 200 200\r\n", False)):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def serve():
                with server.accept()[0] as client:
                    seen = b""
                    while not seen.endswith(b"\r\n\r\n"):
                        seen += client.recv(1000)
                    check(seen.startswith(b"GET /health HTTP/1.0\r\n"), "another request")
                    client.sendall(reply)
            thread = threading.Thread(target=serve)
            thread.start()
            found = healthy(server.getsockname()[1])
            thread.join()
            check(found == want, f"{reply}: want {want}, found {found}")
            port = server.getsockname()[1]
    check(not healthy(port), "nobody listens")


def reads_a_real_server():
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NIBBLE_")}
    server = subprocess.Popen([PROGRAM, "serve", SOURCE / "models/demo", "--port", "0"], text=True,
                              stderr=subprocess.PIPE, env=clean)
    try:
        port = 0
        for line in server.stderr:
            port = int(found[1]) if (found := re.search(r"listening.*:(\d+)", line)) else port
            if " ready " in line:
                break
        check(healthy(port), "a server that is ready is not healthy")
    finally:
        server.terminate()
        server.communicate(timeout=60)
    check(server.returncode == 0, f"the server ended with {server.returncode}")


build_stage, final_stage = stages()
copies_what_is_there(build_stage, final_stage)
installs_what_the_scripts_say(build_stage, final_stage)
runs_as_nobody_and_says_how_it_is(final_stage)
reads_health()
reads_a_real_server()
