"""Clients that do everything wrong: the server answers or closes, stays alive, and holds nothing.

NIBBLE_ROBUSTNESS_COUNT=10000 for the long run; the seed is printed and can be given as
NIBBLE_ROBUSTNESS_SEED. NIBBLE_PROGRAM may be built with a sanitizer: what it finds fails the test.
"""
import concurrent.futures
import os
import re
import ssl
import subprocess
import unittest

from hostile import misbehave
from program import Case
from server import Server

COUNT = int(os.environ.get("NIBBLE_ROBUSTNESS_COUNT", "400"))
SEED = int(os.environ.get("NIBBLE_ROBUSTNESS_SEED", "1"))
WORKERS = 32
FINDING = re.compile(r"Sanitizer|runtime error:|terminate called|NIBBLE_CHECK")
LIMITS = ("--max-model-len", 256, "--max-num-seqs", 8, "--stream-buffer", 16384,
          "--read-timeout", 1, "--write-timeout", 2, "--keep-alive-timeout", 1,
          "--max-header-size", 4096, "--max-body-size", 100000, "--disable-log-requests")


class Robustness(Case):
    def harass(self, server, count, tls=None):
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            clients = [pool.submit(misbehave, server.port, SEED, number, tls)
                       for number in range(count)]
            for client in concurrent.futures.as_completed(clients):
                if client.exception() or server.process.poll() is not None:
                    pool.shutdown(cancel_futures=True)
                    raise AssertionError(f"{client.exception()}: {''.join(server.log[-200:])}")

    def expect_unharmed(self, server):
        findings = [line for line in server.log if FINDING.search(line)]
        self.assertEqual(findings, [], "".join(server.log[-400:]))
        self.assertEqual(server.stop(), 0, server.log[-200:])
        findings = [line for line in server.log if FINDING.search(line)]
        self.assertEqual(findings, [], "".join(server.log[-400:]))

    def test_nothing_sticks(self):
        print(f"{COUNT} clients, seed {SEED}")
        with Server(*LIMITS) as server:
            self.harass(server, COUNT)
            server.wait_until_idle(60)
            reply = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 3})
            self.assertEqual(reply[0], 200, reply)
            self.expect_unharmed(server)

    def test_nothing_sticks_behind_tls(self):
        names = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", names[1], "-out", names[0]],
                       stderr=subprocess.PIPE, check=True)
        context = ssl.create_default_context(cafile=names[0])
        context.check_hostname = False
        with Server(*LIMITS, "--ssl-certfile", names[0], "--ssl-keyfile", names[1]) as server:
            self.harass(server, COUNT // 4, context)
            server.use_tls(context)
            server.wait_until_idle(60)
            self.expect_unharmed(server)


if __name__ == "__main__":
    unittest.main()
