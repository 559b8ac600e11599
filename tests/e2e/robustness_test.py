"""Clients that do everything wrong: the server answers or closes, stays alive, and holds nothing.

NIBBLE_ROBUSTNESS_COUNT=10000 for the long run; the seed is printed and can be given as
NIBBLE_ROBUSTNESS_SEED.
"""
import concurrent.futures
import json
import os
import random
import socket
import time
import unittest

from program import Case
from server import Server

COUNT = int(os.environ.get("NIBBLE_ROBUSTNESS_COUNT", "400"))
SEED = int(os.environ.get("NIBBLE_ROBUSTNESS_SEED", "1"))
WORKERS = 16
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize",
         "/detokenize", "/v1/models", "/health", "/metrics", "/", "/v1/responses/x/cancel", "/%00"]


def random_value(chance, depth=0):
    kind = chance.randrange(12)
    if kind < 2 and depth < 4:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 4 and depth < 4:
        return {chance.choice(["role", "content", "type", "text", "x", "id"]):
                random_value(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice([None, True, False, 0, -1, 1.5, 1e308, 2 ** 31, 2 ** 63, 2 ** 64, "", "a",
                          "\u0000", "\ud7ff\U0001F63A", "<|start|>", "x" * 300, "user", "text"])


def random_body(chance):
    """A good request with some fields spoilt."""
    body = {"messages": [{"role": "user", "content": "hi"}], "prompt": "Once", "input": "hi",
            "max_tokens": chance.choice([1, 5, 40]), "temperature": 1, "tokens": [1, 2],
            "stream": chance.random() < 0.5}
    names = list(body) + ["n", "seed", "stop", "logit_bias", "tools", "tool_choice", "logprobs",
                          "top_logprobs", "model", "stream_options", "stop_token_ids", "echo",
                          "reasoning", "previous_response_id", "system", "thinking", "metadata"]
    for _ in range(chance.randrange(4)):
        body[chance.choice(names)] = random_value(chance)
    data = json.dumps(body).encode()
    if chance.random() < 0.2:  # no longer JSON, or no longer UTF-8
        at = chance.randrange(len(data))
        data = data[:at] + bytes([chance.randrange(256)]) + data[at + chance.randrange(3):]
    return data


def random_request(chance):
    body = random_body(chance)
    method = chance.choice(["POST"] * 8 + ["GET", "DELETE", "OPTIONS", "HEAD", "PUT", "BREW"])
    head = f"{method} {chance.choice(PATHS)} HTTP/1.1\r\nhost: x\r\n".encode()
    if chance.random() < 0.15:
        size = len(body) // 3 + 1
        body = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + size]), body[i:i + size])
                        for i in range(0, len(body), size)) + b"0\r\n\r\n"
        head += b"transfer-encoding: chunked\r\n"
    else:
        head += b"content-length: %d\r\n" % len(body)
    if chance.random() < 0.1:
        head += b"expect: 100-continue\r\n"
    if chance.random() < 0.6:
        head += b"connection: close\r\n"
    data = head + b"\r\n" + body
    if chance.random() < 0.15:
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1:]
    return data


def read_until_closed(client, chance, is_slow):
    """Everything, up to the end or to a silence."""
    client.settimeout(3)
    data = b""
    try:
        while piece := client.recv(64 if is_slow else 65536):
            data += piece
            if is_slow:
                time.sleep(0.002 * chance.random())
            if b"connection: close" not in data and b"\r\n\r\n" in data and chance.random() < 0.05:
                break
    except (socket.timeout, ConnectionError):
        pass
    return data


def misbehave(server, number):
    chance = random.Random(f"{SEED}:{number}")
    with server.raw() as client:
        data = b"".join(random_request(chance) for _ in range(chance.choice([1, 1, 1, 3])))
        way = chance.randrange(6)
        try:
            if way == 0:  # leaves in the middle of an upload
                client.sendall(data[:chance.randrange(len(data))])
                return
            if way == 1:  # asks and leaves
                client.sendall(data)
                time.sleep(0.01 * chance.random())
                return
            if way == 2:  # half a connection
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
            elif way == 3:  # in small pieces
                for i in range(0, len(data), 97):
                    client.sendall(data[i:i + 97])
            else:
                client.sendall(data)
            reply = read_until_closed(client, chance, way == 4)
        except ConnectionError:
            return
        if reply and not reply.startswith(b"HTTP/1.1 "):
            raise AssertionError(f"seed {SEED}:{number}: {reply[:200]}")


class Robustness(Case):
    def test_nothing_sticks(self):
        print(f"{COUNT} clients, seed {SEED}")
        with Server("--max-model-len", 256, "--max-num-seqs", 8, "--stream-buffer", 16384,
                    "--read-timeout", 2, "--write-timeout", 3, "--keep-alive-timeout", 3,
                    "--max-header-size", 4096, "--max-body-size", 100000,
                    "--disable-log-requests") as server:
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                for done in pool.map(lambda number: misbehave(server, number), range(COUNT)):
                    self.assertIsNone(done)
                    self.assertIsNone(server.process.poll(), server.log)
            server.wait_until_idle(30)
            self.assertEqual(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 3})[0],
                             200)
            self.assertEqual(server.stop(), 0, server.log)


if __name__ == "__main__":
    unittest.main()
