"""The server as clients see it, on the demo checkpoint: sockets, streams, signals."""
import gzip
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from program import DEMO, NIBBLE, Case, environment, run, run_json
from server import Server, chat_body, joined_chat, parse_events


class Serve(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-model-name", "demo", "--max-model-len", 512,
                            "--max-num-seqs", 8, "--max-queued-requests", 64,
                            "--allowed-origins", "http://page")

        cls.addClassCleanup(cls.server.__exit__)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log

    def tearDown(self):
        self.server.wait_until_idle()

    def test_answers_as_run_does(self):
        arguments = ["--temp", "0", "--json", "--max-model-len", "512", "--current-date",
                     "2026-01-01"]
        for text in ("Tell me a story.", "2+2?"):
            want = run_json("run", DEMO, "-p", text, *arguments)
            reply = self.server.chat(text, receipt=True)
            choice = reply["choices"][0]
            self.assertEqual(choice["message"]["content"], want["content"])
            self.assertEqual(choice["message"].get("reasoning_content", ""), want["reasoning"])
            self.assertEqual(choice["finish_reason"], want["finish_reason"])
            self.assertEqual(reply["usage"]["completion_tokens"], len(want["ids"]))
            self.assertGreater(reply["receipt"]["choices"][0]["prefill_ms"], 0)

    def test_stream_equals_whole(self):
        body = chat_body("Tell me a story.", stream_options={"include_usage": True})
        self.server.chat("Tell me a story.")  # from now on as much of the prompt is cached each time
        whole = self.server.chat("Tell me a story.")
        for events in (self.server.events("/v1/chat/completions", {**body, "stream": True}),
                       self.server.events("/v1/chat/completions", {**body, "stream": True})):
            self.assertEqual(events[-1], "[DONE]")
            message, finish = joined_chat(events)
            want = whole["choices"][0]
            self.assertEqual(message["content"], want["message"]["content"])
            self.assertEqual(message["reasoning_content"], want["message"]["reasoning_content"])
            self.assertEqual(finish, want["finish_reason"])
            self.assertEqual(events[-2]["usage"], whole["usage"])

    def test_gzip_both_ways(self):
        body = {"prompt": ["Once", "Two"] * 32, "max_tokens": 4, "temperature": 0}
        want = self.server.post("/v1/completions", body)[2]["choices"]
        packed = gzip.compress(json.dumps(body).encode())
        connection = self.server.connect()
        connection.request("POST", "/v1/completions", packed,
                           {"content-encoding": "gzip", "accept-encoding": "gzip"})
        reply = connection.getresponse()
        self.assertEqual(reply.getheader("content-encoding"), "gzip")
        data = reply.read()
        self.assertEqual(json.loads(gzip.decompress(data))["choices"], want)
        self.assertLess(len(data), len(json.dumps(want)) / 3)
        for status, data, coding in ((413, gzip.compress(bytes(40 << 20)), "gzip"),
                                     (415, packed, "br"), (400, packed[:-1], "gzip"),
                                     (400, json.dumps(body).encode(), "gzip")):
            self.assertEqual(self.server.post("/v1/completions", data, connection=connection,
                                              headers={"content-encoding": coding})[0], status)
        events = self.server.events("/v1/completions", {**body, "stream": True},
                                    headers={"accept-encoding": "gzip"})
        self.assertEqual(events[-1], "[DONE]")
        connection.close()

    def test_receipts_name_the_kernels(self):
        rows = {row["name"] for row in run_json("inspect", "--kernels", "--json")}
        path = self.server.chat("2+2?", receipt=True)["receipt"]["choices"][0]["kernel_path"]
        self.assertGreater(len(path), 4)
        self.assertLessEqual(set(path), rows)
        self.server.wait_for_log(f"kernel_path={','.join(path)}")

    def test_tool_call_and_its_result(self):
        tool = {"type": "function", "function": {
            "name": "get_weather", "description": "Weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                           "required": ["city"]}}}
        body = chat_body("What is the weather in Paris?", tools=[tool])
        whole = self.server.post("/v1/chat/completions", body)[2]["choices"][0]
        self.assertEqual(whole["finish_reason"], "tool_calls", whole)
        call = whole["message"]["tool_calls"][0]
        self.assertEqual(call["function"]["name"], "get_weather")
        self.assertIn("Paris", json.loads(call["function"]["arguments"])["city"])
        streamed, finish = joined_chat(self.server.events(
            "/v1/chat/completions", {**body, "stream": True}))
        self.assertEqual(finish, "tool_calls")
        self.assertEqual(streamed["tool_calls"][0]["arguments"], call["function"]["arguments"])
        body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": whole["message"]["tool_calls"]},
            {"role": "tool", "tool_call_id": call["id"],
             "content": [{"type": "text", "text": '{"temperature": 21, "sky": "sunny"}'}]}]
        answer = self.server.post("/v1/chat/completions", body)[2]["choices"][0]
        # Where the demo model stops depends on the processor's rounding, what it tells does not.
        self.assertIn(answer["finish_reason"], ("stop", "length"), answer)
        self.assertIn("21", answer["message"]["content"])

    def test_context_limit_is_told_with_numbers(self):
        for tokens, status in ((511, 200), (512, 400), (513, 400), (2048, 400)):
            reply = self.server.post("/v1/completions", {"prompt": [5] * tokens, "max_tokens": 1})
            self.assertEqual(reply[0], status, reply)
            if status == 400:
                self.assertIn("512", reply[2]["error"]["message"])
                self.assertIn(str(tokens), reply[2]["error"]["message"])
        # A default that does not fit is no fault of the client's.
        reply = self.server.post("/v1/completions", {"prompt": [5] * 511})
        self.assertEqual((reply[0], reply[2]["usage"]["completion_tokens"]), (200, 1), reply)
        self.assertEqual(self.server.post("/v1/completions", {"prompt": [5] * 512})[0], 400)
        reply = self.server.post("/v1/completions", {"prompt": [5] * 10, "max_tokens": 507})
        self.assertEqual(reply[0], 400)
        self.assertEqual(reply[2]["error"]["param"], "max_tokens")

    def test_wrong_requests_harm_nobody(self):
        for path, body in (("/v1/completions", {"prompt": ""}),
                           ("/v1/completions", {"prompt": [[]]}),
                           ("/v1/completions", {"prompt": []}),
                           ("/v1/completions", {"prompt": [4096]}),
                           ("/v1/completions", {"prompt": "a", "logit_bias": {"999999": 5}}),
                           ("/v1/completions", {"prompt": "a", "stop_token_ids": [4096]}),
                           ("/v1/completions", {"prompt": "a", "max_tokens": 2 ** 31}),
                           ("/v1/chat/completions", {"messages": []})):
            for _ in range(2):
                status, _, reply = self.server.post(path, body)
                self.assertEqual(status, 400, (body, reply))
                self.assertTrue(reply["error"]["message"])
        self.assertEqual(self.server.post("/v1/completions", {
            "prompt": "Once", "logit_bias": {"4095": -1}, "max_tokens": 2})[0], 200)

    def test_seeds_repeat_whatever_else_runs(self):
        body = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 1, "seed": 42}
        alone = self.server.post("/v1/completions", body)[2]["choices"][0]["text"]
        others = [{**body, "seed": None}, {**body, "seed": 7}, {**body, "seed": 8, "n": 4}] * 2
        texts = [None] * len(others)

        def ask(i):
            texts[i] = self.server.post("/v1/completions", others[i])[2]["choices"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(others))]
        for thread in threads:
            thread.start()
        for _ in range(3):
            again = self.server.post("/v1/completions", body)[2]["choices"][0]["text"]
            self.assertEqual(again, alone)
        for thread in threads:
            thread.join()
        self.assertNotEqual(texts[0][0]["text"], texts[3][0]["text"], "fresh seeds differ")
        self.assertEqual(texts[1][0]["text"], texts[4][0]["text"])
        self.assertEqual([c["text"] for c in texts[2]], [c["text"] for c in texts[5]])
        self.assertEqual(len({c["text"] for c in texts[2]}), 4)
        self.assertEqual(sorted(c["index"] for c in texts[2]), [0, 1, 2, 3])

    # Each answer is held to the schema by a mask of its own.
    def test_answers_to_one_prompt_are_held_apart(self):
        schema = {"type": "object", "required": ["a", "b"], "additionalProperties": False,
                  "properties": {"a": {"type": "string", "maxLength": 20},
                                 "b": {"enum": ["x", "y", "z"]}}}
        ask = {"messages": [{"role": "user", "content": "Tell me a story."}], "seed": 5, "n": 4,
               "temperature": 1, "response_format": {
                   "type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
        status, _, reply = self.server.post("/v1/chat/completions", ask)
        self.assertEqual(status, 200, reply)
        values = [json.loads(choice["message"]["content"]) for choice in reply["choices"]]
        self.assertEqual([list(value) for value in values], [["a", "b"]] * 4)
        self.assertGreater(len({value["a"] for value in values}), 1)
        alone = self.server.post("/v1/chat/completions", {**ask, "n": 1})[2]["choices"][0]
        self.assertEqual(alone["message"]["content"], reply["choices"][0]["message"]["content"])

    def test_equal_client_ids_do_not_mix(self):
        replies = [None] * 2

        def ask(i):
            replies[i] = self.server.post(
                "/v1/completions", {"prompt": f"Number {i}", "max_tokens": 16, "temperature": 0},
                headers={"x-request-id": "same"})

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, (status, headers, reply) in enumerate(replies):
            self.assertEqual((status, headers["x-request-id"]), (200, "same"))
            alone = self.server.post("/v1/completions", {
                "prompt": f"Number {i}", "max_tokens": 16, "temperature": 0})[2]
            self.assertEqual(reply["choices"], alone["choices"])

    def test_many_requests_on_one_connection(self):
        one = self.server.connect()
        for _ in range(3):
            self.assertEqual(self.server.get("/health", connection=one)[0], 200)
        body = chat_body("2+2?")
        first = self.server.post("/v1/chat/completions", body, connection=one)[2]
        second = self.server.post("/v1/chat/completions", body, connection=one)[2]
        self.assertEqual(first["choices"], second["choices"])
        one.close()

    def test_pipelined_requests_are_answered_in_order(self):
        with self.server.raw() as client:
            ask = json.dumps({"prompt": "Once", "max_tokens": 8, "temperature": 0}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                           % (len(ask), ask) +
                           b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
                           b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            data = read_all(client)
        self.assertEqual(data.count(b"HTTP/1.1 200 OK"), 3, data)
        self.assertLess(data.index(b"text_completion"), data.index(b'"version"'))
        self.assertLess(data.index(b'"version"'), data.index(b'"status":"ok"'))

    def test_chunked_bodies_and_expect(self):
        body = json.dumps({"prompt": "Once", "max_tokens": 4}).encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 5]), body[i:i + 5])
                          for i in range(0, len(body), 5)) + b"0\r\n\r\n"
        with self.server.raw() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
                           b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
            self.assertIn(b"100 Continue", client.recv(100))
            for i in range(0, len(chunks), 7):
                client.sendall(chunks[i:i + 7])
            self.assertIn(b"text_completion", read_all(client))

    def test_malformed_requests_get_an_answer(self):
        for data, status in ((b"NONSENSE\r\n\r\n", b"400"),
                             (b"GET / HTTP/9.9\r\n\r\n", b"505"),
                             (b"GET / HTTP/1.1\r\nx: " + b"y" * 40000 + b"\r\n\r\n", b"431"),
                             (b"POST /v1/completions HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n",
                              b"413"),
                             (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"400"),
                             (b"POST / HTTP/1.1\r\nexpect: tea\r\ncontent-length: 1\r\n\r\n", b"417")):
            with self.server.raw() as client:
                client.sendall(data)
                reply = read_all(client)
            self.assertIn(b"HTTP/1.1 " + status, reply.split(b"\r\n")[0], data[:60])
            self.assertIn(b'{"error":', reply)

    def test_clients_that_leave_free_everything(self):
        body = json.dumps({"prompt": "Once upon", "max_tokens": 400, "ignore_eos": True,
                           "stream": True}).encode()
        head = (b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
                % len(body))
        for round_trip in range(12):
            client = self.server.raw()
            client.sendall(head + body)
            if round_trip % 3 == 1:
                client.recv(300)
            elif round_trip % 3 == 2:
                time.sleep(0.01)
            if round_trip % 2:
                client.shutdown(socket.SHUT_WR)
            client.close()
        whole = self.server.raw()
        whole.sendall(head + body.replace(b"true}", b"false}"))
        time.sleep(0.05)
        whole.close()
        self.server.wait_until_idle()
        self.assertGreater(self.server.metric("generation_tokens_total"), 0)

    def test_origins_ids_and_unknown_paths(self):
        headers = {"Origin": "http://page", "x-request-id": "r-1"}
        status, reply, _ = self.server.get("/v1/models", headers=headers)
        self.assertEqual((status, reply["access-control-allow-origin"], reply["x-request-id"]),
                         (200, "http://page", "r-1"))
        self.assertEqual(self.server.get("/", headers={"x-request-id": "x" * 129})[0], 400)
        self.assertEqual(self.server.get("/x" * 50)[0], 404)

    def test_log_tells_each_request_and_no_prompt(self):
        self.server.chat("What is purple?", max_tokens=3)
        self.server.post("/v1/completions", {"prompt": "purple", "max_tokens": 2},
                         headers={"x-request-id": "seen-1"})
        self.server.wait_for_log(r"request id=seen-1 path=/v1/completions status=200.*"
                                 r"completion_tokens=2.*finish=length")
        self.assertNotIn("purple", "".join(self.server.log))


def read_all(client):
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


class Operations(Case):
    def test_sigterm_finishes_what_runs(self):
        with Server("--max-model-len", 512, "--max-num-seqs", 8, "--log-format", "json",
                    "--status-interval", 1) as server:
            results = []

            def ask(stream):
                body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": stream,
                        "temperature": 0}
                if stream:
                    events = server.events("/v1/completions", body)
                    results.append(events[-1] == "[DONE]" and
                                   events[-2]["choices"][0]["finish_reason"])
                else:
                    results.append(server.post("/v1/completions", body)[2]
                                   ["choices"][0]["finish_reason"])

            threads = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(8)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 60
            while server.metric("num_requests_running") < 8 and time.monotonic() < deadline:
                time.sleep(0.005)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_log("draining")
            status, headers, reply = server.post("/v1/completions", {"prompt": "a"})
            self.assertEqual((status, headers["retry-after"]), (503, "1"), reply)
            for thread in threads:
                thread.join()
            self.assertEqual(results, ["length"] * 8)
            self.assertEqual(server.process.wait(60), 0)
            for line in server.log:
                json.loads(line)

    def test_second_signal_ends_at_once(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number), Server("--max-model-len", 4096) as server:
                client = server.raw()
                body = b'{"prompt": "Once", "max_tokens": 4000, "ignore_eos": true, "n": 4}'
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
                               b"content-length: %d\r\n\r\n%s" % (len(body), body))
                while server.metric("num_requests_running") < 4:
                    time.sleep(0.005)
                server.process.send_signal(signal.SIGTERM)
                server.wait_for_log("draining")
                server.process.send_signal(number)
                self.assertEqual(server.process.wait(60), code, server.log)
                self.assertIn("aborted by a second signal", "".join(server.log))
                client.close()

    def test_time_to_drain_is_limited(self):
        with Server("--max-model-len", 4096, "--shutdown-timeout", 0) as server:
            client = server.raw()
            body = b'{"prompt": "Once", "max_tokens": 4000, "ignore_eos": true}'
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                           % (len(body), body))
            while server.metric("num_requests_running") < 1:
                time.sleep(0.005)
            self.assertEqual(server.stop(), 143)
            self.assertIn(b"503", read_all(client).split(b"\r\n")[0])
            client.close()

    def test_killed_server_starts_again_on_its_port(self):
        with Server("--max-model-len", 256) as server:
            taken = subprocess.run([NIBBLE, "serve", str(DEMO), "--port", str(server.port)],
                                   env=environment(), stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(taken.returncode, 6)
            self.assertEqual(taken.stderr.count(b"\n"), 1, taken.stderr)
            server.stop(signal.SIGKILL)
            with Server("--port", server.port, "--max-model-len", 256) as again:
                self.assertEqual(again.port, server.port)
                self.assertEqual(again.get("/health")[0], 200)

    def test_unix_socket_keys_and_config_file(self):
        config = self.folder / "nibble.conf"
        path = self.folder / "s"
        config.write_text(f"# what we serve\nuds: {path}\napi_key = 'k 1'\nmax-model-len: 256\n")
        with Server("--config", config) as server:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
                               b"GET /v1/models HTTP/1.1\r\nhost: x\r\n"
                               b"authorization: Bearer k 1\r\nconnection: close\r\n\r\n")
                data = read_all(client)
            self.assertIn(b"401 Unauthorized", data)
            self.assertIn(b'"max_model_len":256', data)
            self.assertEqual(server.stop(), 0)
        self.assertFalse(path.exists())

    def test_tls(self):
        names = self.folder / "cert.pem", self.folder / "key.pem"
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                               "2", "-subj", "/CN=localhost", "-keyout", names[1], "-out", names[0]],
                              stderr=subprocess.PIPE)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assert_fails(2, "serve", DEMO, "--ssl-certfile", names[0], message="--ssl-keyfile")
        self.assert_fails(2, "serve", DEMO, "--ssl-certfile", names[1], "--ssl-keyfile", names[1],
                          message="--ssl-certfile")
        with Server("--ssl-certfile", names[0], "--ssl-keyfile", names[1], "--max-model-len", 4096,
                    "--stream-buffer", 4096, "--read-timeout", 1) as server:
            self.assertTrue(server.url.startswith("https://"))
            context = ssl.create_default_context(cafile=names[0])
            context.check_hostname = False
            with context.wrap_socket(server.raw(), suppress_ragged_eofs=False) as client:
                body = b'{"prompt": "Once", "max_tokens": 20, "stream": true}'
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
                               b"connection: close\r\n\r\n%s" % (len(body), body))
                self.assertIn(b"[DONE]", read_all(client))
            # A refused upload is read to its refusal.
            for upload in (b"", b"x" * (2 << 20)):
                with context.wrap_socket(server.raw(), suppress_ragged_eofs=False) as client:
                    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
                                   b"content-length: 99999999\r\n\r\n" + upload)
                    self.assertIn(b"HTTP/1.1 413", read_all(client))
            # What is cut ends otherwise than what is whole.
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            with context.wrap_socket(slow, suppress_ragged_eofs=False) as client:
                body = b'{"prompt": "Once", "max_tokens": 4000, "stream": true, "ignore_eos": true}'
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n"
                               b"connection: close\r\n\r\n%s" % (len(body), body))
                client.recv(100)
                server.wait_for_log(r"path=/v1/completions status=499")
                with self.assertRaises((ssl.SSLEOFError, ConnectionResetError)):
                    read_all(client)
            with server.raw() as client:  # no TLS
                client.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                self.assertNotIn(b"200", read_all(client))
            with server.raw():
                pass
            with server.raw() as client:  # begins nothing
                self.assertEqual(client.recv(1), b"")
            self.assertEqual(server.stop(), 0)

    def test_wrong_flags(self):
        self.assert_fails(3, "serve", self.folder / "none")
        self.assert_fails(2, "serve", "--port", "70000", message="--port")
        self.assert_fails(2, "serve", "--config", self.folder / "none", message="--config")
        self.assert_fails(1, "serve", DEMO, "--host", "192.0.2.1", "--port", "0",
                          message="cannot listen on 192.0.2.1")

    def test_full_queue_and_slow_readers(self):
        with Server("--max-model-len", 4096, "--max-num-seqs", 2, "--max-queued-requests", 1,
                    "--stream-buffer", 4096, "--write-timeout", 5) as server:
            body = json.dumps({"prompt": "Once", "max_tokens": 3500, "ignore_eos": True,
                               "stream": True, "n": 2}).encode()
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                         % (len(body), body))  # and reads nothing
            while server.metric("num_requests_running") < 2:
                time.sleep(0.005)
            waiting = server.raw()
            waiting.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s"
                            % (len(body) - 8, body.replace(b', "n": 2', b"")))
            while server.metric("num_requests_waiting") < 1:
                time.sleep(0.005)
            status, headers, reply = server.post("/v1/completions", {"prompt": "a"})
            self.assertEqual((status, reply["error"]["code"]), (503, "overloaded"))
            self.assertEqual(server.get("/health")[0], 200)
            waiting.close()
            server.wait_until_idle(60)  # the slow one was cut, by its buffer or by its end
            slow.close()


if __name__ == "__main__":
    unittest.main()
