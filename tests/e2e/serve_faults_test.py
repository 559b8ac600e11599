"""Faults that are reported of such servers, over HTTP, on the demo checkpoint: docs/testing.md."""
import json
import random
import select
import signal
import socket
import threading
import time
import unittest

from hostile import reset
from program import Case
from server import Server, chat_body

PAGE = 16
LONG = {"prompt": "Once upon", "ignore_eos": True, "temperature": 0}


def head_of(body):
    return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)


class Faults(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--max-model-len", 2048, "--max-num-seqs", 8, "--block-size", PAGE,
                            "--max-queued-requests", 64)
        cls.addClassCleanup(cls.server.__exit__)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log

    def tearDown(self):
        self.server.wait_until_idle()
        self.assertEqual(self.server.get("/health")[0], 200)

    def complete(self, **fields):
        status, _, reply = self.server.post("/v1/completions", {"temperature": 0, **fields})
        self.assertEqual(status, 200, reply)
        return reply

    def test_numbers_of_tokens_that_are_none(self):
        for value in (0, -1, 1.5, "10", 2 ** 31, 2 ** 63, 1e30, True, []):
            for _ in range(2):
                status, _, reply = self.server.post("/v1/completions",
                                                    {"prompt": "a", "max_tokens": value})
                self.assertEqual((status, reply["error"]["param"]), (400, "max_tokens"), value)
            self.assertEqual(self.server.get("/health")[0], 200)
        for _ in range(2):
            echo = self.complete(prompt="Once upon", max_tokens=0, echo=True)
            self.assertEqual(echo["choices"][0]["text"], "Once upon")
            self.assertEqual(echo["usage"]["completion_tokens"], 0)

    def test_ids_that_are_none(self):
        for field, values in (("prompt", ([4096], [-1], [2 ** 62], [1.5], [[]], [""], "", [])),
                              ("stop_token_ids", ([4096], [-1], [2 ** 62], ["a"])),
                              ("logit_bias", ({"4096": 5}, {"-1": 5}, {"x": 1}, {"5": 1e9}))):
            for value in values:
                status, _, reply = self.server.post("/v1/completions",
                                                    {"prompt": "a", field: value})
                self.assertEqual(status, 400, (field, value, reply))
                self.assertIn(field, reply["error"]["param"] + reply["error"]["message"])
                self.assertEqual(len(self.complete(prompt="a", max_tokens=1)["choices"]), 1)
        self.complete(prompt=[4095], stop_token_ids=[4095], logit_bias={"4095": 1}, max_tokens=2)

    def test_patterns_that_are_none(self):
        for pattern in ("*ab", "{3}k", "(?<!q)z", "[9-0]", "(", "\\", "a{5,2}", "(?P<x", "[", "a**"):
            schema = {"type": "object", "required": ["x"], "additionalProperties": False,
                      "properties": {"x": {"type": "string", "pattern": pattern}}}
            for path, fields in (("/v1/chat/completions", chat_body("hi")),
                                 ("/v1/completions", {"prompt": "a"})):
                status, _, reply = self.server.post(path, {**fields, "response_format": {
                    "type": "json_schema", "json_schema": {"name": "n", "schema": schema}}})
                self.assertEqual(status, 400, (pattern, reply))
                self.assertIn("pattern", reply["error"]["message"])
        self.complete(prompt="a", max_tokens=1)

    def test_log_probabilities_of_the_only_token_there_is(self):
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": 1234}}}
        for stream in (False, True):
            body = chat_body("hi", response_format=form, logprobs=True, top_logprobs=5,
                             stream=stream)
            if stream:
                events = self.server.events("/v1/chat/completions", body)
                tokens = [token for event in events[:-1] for choice in event["choices"]
                          for token in (choice["logprobs"] or {"content": []})["content"]]
            else:
                reply = self.server.post("/v1/chat/completions", body)[2]["choices"][0]
                self.assertEqual(json.loads(reply["message"]["content"]), 1234)
                tokens = reply["logprobs"]["content"]
            self.assertEqual("".join(token["token"] for token in tokens), "1234")
            for token in tokens:
                self.assertEqual(len(token["top_logprobs"]), 5)
                for one in [token, *token["top_logprobs"]]:
                    self.assertTrue(-9999 <= one["logprob"] <= 0, one)

    # A whole number of pages must not leave nothing to compute, nor a look-up past the last page.
    def test_prompts_around_a_page_are_answered_alike_the_second_time(self):
        chance = random.Random(5)
        for length in (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 300):
            prompt = [chance.randrange(4000) for _ in range(length)]
            ask = {"prompt": prompt, "max_tokens": 4, "logprobs": 2}
            first, second = self.complete(**ask), self.complete(**ask)
            self.assertEqual(first["choices"], second["choices"])
            cached = [reply["usage"]["prompt_tokens_details"]["cached_tokens"]
                      for reply in (first, second)]
            self.assertEqual(cached, [0, (length - 1) // PAGE * PAGE], length)

    # Cost in tokens that are computed, which the server counts; the answer is that of a server
    # that keeps no prefixes.
    def test_a_shared_prefix_of_a_thousand_tokens_is_computed_once(self):
        chance = random.Random(6)
        shared = [chance.randrange(4000) for _ in range(1000)]
        asks = [{"prompt": shared + [chance.randrange(4000) for _ in range(40)], "max_tokens": 24,
                 "temperature": 0} for _ in range(2)]
        hits = self.server.metric("prefix_cache_hits_total")
        replies = [self.complete(**ask) for ask in asks]
        computed = [reply["usage"]["prompt_tokens"] -
                    reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
        self.assertEqual(computed[0], 1040)
        self.assertLessEqual(10 * computed[1], computed[0])
        self.assertEqual(self.server.metric("prefix_cache_hits_total") - hits, 1040 - computed[1])
        with Server("--max-model-len", 2048, "--no-enable-prefix-caching") as cold:
            for ask, reply in zip(asks, replies):
                alone = cold.post("/v1/completions", ask)[2]
                self.assertEqual(alone["choices"], reply["choices"])
                self.assertEqual(alone["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    # More of them than threads that serve HTTP; the tokens of each take seconds.
    def test_large_requests_keep_nobody_waiting(self):
        text = " ".join(str(number) for number in range(1_000_000))
        body = json.dumps({"content": text}).encode()
        clients = [self.server.raw() for _ in range(4)]
        for client in clients:
            client.sendall(head_of(body).replace(b"/v1/completions", b"/tokenize") + body)
        for _ in range(5):
            self.assertEqual(self.server.get("/health")[0], 200)
        answered = select.select(clients, [], [], 0)[0]
        self.assertEqual(len(answered), 0, "health waited for large requests")
        for client in clients:
            self.assertIn(b"200 OK", client.recv(100))
            client.close()

    def test_clients_that_hang_up_at_any_moment_free_everything(self):
        want = self.complete(**LONG, max_tokens=12)["choices"]
        chance = random.Random(7)
        for number in range(200):
            is_long = chance.random() < 0.3
            body = json.dumps({**LONG, "prompt": [9] * 1500 if is_long else "Once",
                               "max_tokens": chance.choice([1, 8, 400]),
                               "stream": chance.random() < 0.6}).encode()
            with self.server.raw() as client:
                client.sendall(head_of(body) + body)
                moment = chance.randrange(4)
                if moment == 1:
                    time.sleep(0.02 * chance.random())
                elif moment == 2:  # after the first bytes of an answer
                    client.recv(1)
                elif moment == 3:  # at its end, or somewhere near
                    client.recv(100_000)
                if number % 3 == 0:
                    reset(client)
        self.server.wait_until_idle()
        self.assertEqual(self.complete(**LONG, max_tokens=12)["choices"], want)

    # Gauges must not wait for new work to notice.
    def test_gauges_fall_when_all_hang_up_together(self):
        body = json.dumps({**LONG, "max_tokens": 1900, "stream": True}).encode()
        clients = [self.server.raw() for _ in range(30)]
        for client in clients:
            client.sendall(head_of(body) + body)
        deadline = time.monotonic() + 60
        while self.server.metric("num_requests_running") < 1:
            self.assertLess(time.monotonic(), deadline)
        for client in clients:
            client.close()
        self.server.wait_until_idle()


class Ends(Case):
    """SIGTERM and SIGKILL in the middle of work."""

    def ask(self, server, number, results):
        body = {**LONG, "max_tokens": 100 + number, "stream": number % 2 == 0}
        if body["stream"]:
            events = server.events("/v1/completions", body)
            texts = [event["choices"][0] for event in events[:-1]]
            results[number] = ("".join(choice["text"] for choice in texts),
                               texts[-1]["finish_reason"], events[-1])
        else:
            choice = server.post("/v1/completions", body)[2]["choices"][0]
            results[number] = choice["text"], choice["finish_reason"], "[DONE]"

    # 40 requests on 4 places: most still wait when the signal comes.
    def test_sigterm_loses_none_of_those_that_run_or_wait(self):
        with Server("--max-model-len", 512, "--max-num-seqs", 4, "--shutdown-timeout",
                    600) as server:
            results = [None] * 40
            threads = [threading.Thread(target=self.ask, args=(server, i, results))
                       for i in range(len(results))]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 60
            while (server.metric("num_requests_running") + server.metric("num_requests_waiting")
                   < len(results)):
                self.assertLess(time.monotonic(), deadline)
            kept = server.connect()  # a connection from before, used again
            self.assertEqual(server.get("/health", connection=kept)[0], 200)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_log("draining")
            status, headers, _ = server.post("/v1/completions", {"prompt": "a"}, connection=kept)
            self.assertEqual((status, headers["retry-after"]), (503, "1"))
            self.assertEqual(server.get("/health")[0], 503)
            self.assertEqual(server.get("/live")[0], 200)
            for thread in threads:
                thread.join()
            self.assertEqual(server.process.wait(60), 0, server.log)
            longest = results[-1][0]
            for text, finish, end in results:
                self.assertEqual((finish, end), ("length", "[DONE]"))
                self.assertTrue(text and longest.startswith(text.rstrip("\ufffd")))

    def test_a_killed_server_starts_again_at_once_under_load(self):
        path = self.folder / "s"
        for address in (("--port", None), ("--uds", path)):
            with Server("--max-model-len", 512, "--uds", path) if address[1] else \
                    Server("--max-model-len", 512) as server:
                family = socket.AF_UNIX if address[1] else socket.AF_INET
                place = str(path) if address[1] else ("127.0.0.1", server.port)
                body = json.dumps({**LONG, "max_tokens": 500, "stream": True}).encode()
                clients = [socket.socket(family) for _ in range(20)]
                for client in clients:
                    client.connect(place)
                    client.sendall(head_of(body) + body)
                clients[0].recv(20)
                server.stop(signal.SIGKILL)
                flags = ("--uds", path) if address[1] else ("--port", server.port)
                with Server("--max-model-len", 512, *flags) as again:  # clients still hold on
                    with socket.socket(family) as client:
                        client.connect(place)
                        client.sendall(b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
                        self.assertIn(b"200 OK", client.recv(100))
                    self.assertEqual(again.stop(), 0)
                for client in clients:
                    client.close()


if __name__ == "__main__":
    unittest.main()
