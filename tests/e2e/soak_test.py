"""Memory over thousands of requests of each kind, among them those that fail: it stays in bounds.

Takes minutes, so it runs only when asked to:

    NIBBLE_LARGE=1 ctest --test-dir build/cpu -L large -R soak -V

Caches fill up in the beginning; what is judged is the second half of the requests of a kind.
NIBBLE_SOAK_COUNT: how many requests of each kind (2,000).
"""
import concurrent.futures
import json
import os
import random
import unittest

from program import Case
from server import Server, chat_body
from streams_test import SKIPPED, resident_bytes

COUNT = int(os.environ.get("NIBBLE_SOAK_COUNT", "2000"))
WORKERS = 8
STORE_BYTES = 1 << 20
ROOM_BYTES = 1 << 20  # of the second half: 1,000 requests that leave 2 KB each show


def words(number):
    chance = random.Random(number)
    return " ".join(chance.choice("alpha bravo charlie delta echo foxtrot".split())
                    for _ in range(30)) + f" {number}"


def plain(server, number):
    return server.post("/v1/completions", {"prompt": words(number), "max_tokens": 4})[0]


def stream(server, number):
    events = server.events("/v1/chat/completions", chat_body(words(number), max_tokens=4, stream=True))
    return 200 if events[-1] == "[DONE]" else 0


def logprobs(server, number):
    return server.post("/v1/completions",
                       {"prompt": words(number), "max_tokens": 4, "logprobs": 20})[0]


def schema(server, number):  # a new one each time
    form = {"type": "object", "required": [f"k{number}"], "additionalProperties": False,
            "properties": {f"k{number}": {"enum": [1, 2]}}}
    return server.post("/v1/chat/completions", chat_body("hi", response_format={
        "type": "json_schema", "json_schema": {"name": "n", "schema": form}}))[0]


def response(server, number):
    return server.post("/v1/responses", {"input": words(number), "max_output_tokens": 4})[0]


def wrong(server, number):
    return server.post("/v1/completions", {"prompt": words(number), "max_tokens": -number})[0] - 200


def hang_up(server, number):
    body = json.dumps({"prompt": words(number), "max_tokens": 200, "stream": True,
                       "ignore_eos": True}).encode()
    with server.raw() as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                       % (len(body), body))
        client.recv(100)
    return 200


class Soak(Case):
    def test_memory_stays_for_each_kind_of_request(self):
        for kind in (plain, stream, logprobs, schema, response, wrong, hang_up):
            with self.subTest(kind.__name__), \
                 Server("--max-model-len", 512, "--max-num-seqs", 8, "--disable-log-requests",
                        "--response-store-size", STORE_BYTES) as server, \
                 concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
                memory = []
                for quarter in range(4):
                    numbers = range(quarter * COUNT // 4 + 1, (quarter + 1) * COUNT // 4 + 1)
                    for status in pool.map(lambda number: kind(server, number), numbers):
                        self.assertEqual(status, 200)
                    server.wait_until_idle()
                    memory.append(resident_bytes(server.process))
                print(f"{kind.__name__}, {COUNT} requests: resident, MiB after each quarter: "
                      f"{' '.join(f'{bytes_ / 2 ** 20:.1f}' for bytes_ in memory)}", flush=True)
                self.assertLessEqual(memory[3], memory[1] + ROOM_BYTES)


if __name__ == "__main__":
    if os.environ.get("NIBBLE_LARGE") != "1":
        print("skipped: it takes minutes; NIBBLE_LARGE=1 asks for it")
        raise SystemExit(SKIPPED)
    unittest.main()
