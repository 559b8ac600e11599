#!/usr/bin/env python3
"""Every instruction of the Dockerfile is carried out by buildah, and the image serves as it says.

usage: container_build_test.py SOURCE_DIR WORK_DIR

    NIBBLE_LARGE=1 ctest --test-dir build/cpu -L large -R container_build -V

wants root, debootstrap and buildah; minutes, 400 MB of packages. No registry is asked: the image that the
Dockerfile begins with is made here, of the same packages.
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

from debian_root import archive, check, debian_root, run, skip_without

SOURCE, WORK = (pathlib.Path(argument) for argument in sys.argv[1:3])
IMAGE = "nibble-test"
PATIENCE_S = 60


def buildah(*arguments, want=0):
    return run("buildah", "--root", WORK / "store", "--runroot", WORK / "run", *arguments, want=want)


def make_base():
    """What debian:12 and debian:12-slim are here: Debian's essential packages and apt."""
    root = WORK / "base"
    debian_root(root)
    security = archive().rstrip("/") + "-security"
    (root / "etc/apt/sources.list").write_text(
        f"deb {archive()} bookworm main\ndeb {archive()} bookworm-updates main\n"
        f"deb {security} bookworm-security main\n")
    run("tar", "-C", root, "-cf", WORK / "base.tar", ".")
    shutil.rmtree(root)
    buildah("from", "--name", "base", "scratch")
    buildah("add", "base", WORK / "base.tar", "/")
    for name in ("debian:12", "debian:12-slim"):
        buildah("commit", "-q", "base", f"docker.io/library/{name}")
    buildah("rm", "base")


def build():
    begin = time.monotonic()
    buildah("bud", "--isolation", "chroot", "--pull-never", "--format", "docker", "-f",
            SOURCE / "packaging/Dockerfile", "-t", IMAGE, SOURCE)
    print(f"built in {time.monotonic() - begin:.0f} s")


def settings():
    """Of the image, as docker will read them."""
    found = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    check(found["User"] == "10001", f"want user 10001, found {found['User']}")
    check((found["Entrypoint"], found["Cmd"]) == (["nibble"], ["serve"]), f"{found['Entrypoint']}")
    check(list(found["ExposedPorts"]) == ["8000/tcp"], f"{found['ExposedPorts']}")
    check(found["Healthcheck"]["Test"] == ["CMD", "nibble-healthcheck"], f"{found['Healthcheck']}")
    check(found.get("StopSignal") == "SIGTERM", f"{found.get('StopSignal')}")


def server_process(port):
    """(number, user) of the server inside; containers of this isolation share the processes' numbers."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            settings_of = (entry / "environ").read_bytes().split(b"\0")
            user = entry.stat().st_uid
        except OSError:
            continue
        if command[0].endswith(b"/nibble") and b"NIBBLE_PORT=%d" % port in settings_of:
            return int(entry.name), user
    return None


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(method, path, body and json.dumps(body))
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def inside(container, port, *command):
    return ["buildah", "--root", WORK / "store", "--runroot", WORK / "run", "run", "--isolation", "chroot",
            "--env", f"NIBBLE_PORT={port}", container, "--", *command]


def serves():
    container = buildah("from", "--pull-never", IMAGE).strip()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    check(subprocess.run(inside(container, port, "nibble-healthcheck"), capture_output=True,
                         timeout=PATIENCE_S).returncode != 0, "healthy before it was started")
    server = subprocess.Popen(inside(container, port, "nibble", "serve"), stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
    try:
        seen = ""
        for line in server.stderr:
            seen += line
            if " ready " in line:
                break
        else:
            sys.exit(f"the server ended: {seen}")
        check("0.0.0.0" in seen, f"it does not listen to everybody: {seen}")
        status, reply = ask(port, "POST", "/v1/completions", {"prompt": "Once", "max_tokens": 5})
        check(status == 200 and reply["usage"]["completion_tokens"] == 5, f"{status}: {reply}")
        run(*inside(container, port, "nibble-healthcheck"), timeout=PATIENCE_S)
        process, user = server_process(port)
        check(user == 10001, f"want user 10001, found {user}")
        os.kill(process, signal.SIGTERM)
        server.communicate(timeout=PATIENCE_S)
        check(server.returncode == 0, f"want exit code 0 after SIGTERM, found {server.returncode}")
    finally:
        if left := server_process(port):
            os.kill(left[0], signal.SIGKILL)
        server.kill()
        server.wait()


def main():
    skip_without("debootstrap", "buildah")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    try:
        make_base()
        build()
        settings()
        serves()
    finally:
        subprocess.run(["buildah", "--root", WORK / "store", "--runroot", WORK / "run", "rm", "--all"],
                       capture_output=True)
        subprocess.run(["buildah", "--root", WORK / "store", "--runroot", WORK / "run", "rmi", "--all",
                        "--force"], capture_output=True)
    print("container: built, healthy when it serves, user 10001, ended by SIGTERM with 0")


main()
