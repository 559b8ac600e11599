#!/usr/bin/env python3
"""The package under a live systemd, in a container of its own: the unit starts, serves without rights,
drains, is restarted after a kill and not after a missing model.

usage: systemd_test.py BINARY_DIR WORK_DIR

    NIBBLE_LARGE=1 ctest --test-dir build/cpu -L large -R systemd -V

wants root, debootstrap and systemd-nspawn; half a minute, 100 MB of packages.
"""
import http.client
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from debian_root import check, debian_root, run, skip_without

BINARY, WORK = (pathlib.Path(argument) for argument in sys.argv[1:3])
PATIENCE_S = 60


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        check(time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.05)
    return found


class Machine:
    """A container whose first process is systemd. It shares the network."""

    def __init__(self, root):
        self.root = root
        pathlib.Path("/run/systemd/nspawn/propagate").mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--console=pipe",
             "/lib/systemd/systemd"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.leader = wait_for(self.find_leader, "the container's first process")
        wait_for(lambda: self.systemctl("is-system-running", want=None).strip() in ("running", "degraded"),
                 "systemd runs")

    def find_leader(self):
        """The process that has number 1 inside."""
        children = [self.process.pid]
        for pid in children:
            try:
                children += [int(child) for child in
                             pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
                ids = pathlib.Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split("\n")[0]
            except OSError:
                continue
            if len(ids.split()) > 1 and ids.split()[-1] == "1":
                return pid
        return None

    def inside(self, *command, want=0):
        result = subprocess.run(["nsenter", "-t", str(self.leader), "-m", "-p", "-u", "-i", *command],
                                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=PATIENCE_S)
        check(want is None or result.returncode == want,
              f"{command}: want {want}, found {result.returncode}: {result.stdout}{result.stderr}")
        return result.stdout

    def systemctl(self, *arguments, want=0):
        return self.inside("systemctl", "--no-pager", *arguments, want=want)

    def unit(self, *names):
        """Properties of the unit."""
        lines = self.systemctl("show", "nibble", *(f"-p{name}" for name in names)).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class Server:
    def __init__(self, machine, port):
        self.machine, self.port = machine, port

    def settings(self, **variables):
        folder = self.machine.root / "etc/nibble"
        folder.mkdir(exist_ok=True)
        file = folder / "nibble.env"
        file.write_text("".join(f"{name}={value}\n" for name, value in
                                ({"NIBBLE_PORT": self.port} | variables).items()))
        file.chmod(0o600)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, body and json.dumps(body))
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())

    def is_healthy(self):
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False


def serves_without_rights(machine, server):
    server.settings()
    machine.systemctl("start", "nibble")
    wait_for(server.is_healthy, "the unit serves")
    status, reply = server.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 5})
    check(status == 200 and reply["usage"]["completion_tokens"] == 5, f"{status}: {reply}")
    process = machine.unit("MainPID")["MainPID"]
    about = dict(line.split(":\t", 1) for line in
                 machine.inside("cat", f"/proc/{process}/status").splitlines() if ":\t" in line)
    check(int(about["Uid"].split()[0]) >= 61184, f"want a dynamic user, found {about['Uid']}")
    for name, want in (("CapEff", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
        check(about[name] == want, f"{name}: want {want}, found {about[name]}")


def drains(machine, server):
    """Stopped in the middle of an answer, it gives the whole of it."""
    results = []

    def ask():
        try:
            results.append(server.ask("POST", "/v1/completions", {
                "prompt": "Once", "max_tokens": 3000, "ignore_eos": True}))
        except (OSError, http.client.HTTPException):
            pass  # told below

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.3)
    machine.systemctl("stop", "nibble")
    thread.join()
    check(results, "the answer that ran was lost")
    status, reply = results[0]
    check(status == 200 and reply["usage"]["completion_tokens"] == 3000, f"{status}: {str(reply)[-300:]}")
    check("draining requests=1" in machine.inside("journalctl", "-u", "nibble"), "it was over before")
    found = machine.unit("Result", "ExecMainStatus", "ActiveState")
    check(found == {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"}, f"{found}")


def is_restarted_where_that_helps(machine, server):
    machine.systemctl("start", "nibble")
    wait_for(server.is_healthy, "it serves again")
    machine.systemctl("kill", "-s", "KILL", "nibble")
    wait_for(lambda: machine.unit("NRestarts")["NRestarts"] == "1" and server.is_healthy(),
             "it is restarted after a kill")
    machine.systemctl("stop", "nibble")
    server.settings(NIBBLE_MODEL="/nowhere")
    machine.systemctl("start", "nibble", want=None)
    wait_for(lambda: machine.unit("ActiveState")["ActiveState"] == "failed", "a missing model is a failure")
    time.sleep(3)  # longer than RestartSec
    found = machine.unit("ExecMainStatus", "NRestarts", "ActiveState")
    check(found == {"ExecMainStatus": "3", "NRestarts": "0", "ActiveState": "failed"}, f"{found}")


def main():
    skip_without("debootstrap", "systemd-nspawn", "nsenter")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    run("cpack", "-G", "DEB", "-B", WORK, "--config", BINARY / "CPackConfig.cmake",
        "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")
    package = next(WORK.glob("nibble_*.deb"))
    needed = run("dpkg-deb", "-f", package, "Depends")
    libraries = [one.split()[0] for one in needed.strip().split(", ")]
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        root = pathlib.Path(folder) / "root"
        debian_root(root, ["systemd", "systemd-sysv", "dbus", *libraries])
        shutil.copy(package, root)
        run("chroot", root, "dpkg", "-i", f"/{package.name}")
        machine = Machine(root)
        try:
            server = Server(machine, free_port())
            serves_without_rights(machine, server)
            drains(machine, server)
            is_restarted_where_that_helps(machine, server)
        finally:
            machine.end()
    print("systemd: started, served, drained, restarted after a kill, not after a missing model")


main()
