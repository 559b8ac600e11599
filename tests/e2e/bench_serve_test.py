"""nibble bench-serve against a scripted server: exact counts, lower bounds of times, every failure."""
import collections
import http.server
import json
import socket
import threading
import time
import unittest

from program import DEMO, Case, environment, run

GAP_S = 0.02


def event(data):
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def token(text, end=None):
    return event({"choices": [{"index": 0, "text": text, "finish_reason": end}]})


def chat_token(delta, end=None):
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]})


def usage(prompt, completion):
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


DONE = event("[DONE]")


class Server(http.server.ThreadingHTTPServer):
    """The first part of a path picks the behaviour."""
    daemon_threads = True
    request_queue_size = 256

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.seen = []  # (path, headers, body)
        self.connections = 0
        self.released = threading.Event()
        self.running = collections.Counter()
        self.most_running = collections.Counter()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, behaviour):
        return f"http://127.0.0.1:{self.server_address[1]}/{behaviour}"

    def handle_error(self, request, client_address):
        pass  # clients may leave


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, json.dumps({"object": "list", "data": [{"id": "listed"}]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.path.split("/")[1]
        with self.server.lock:
            self.server.seen.append((self.path, dict(self.headers), body))
            number = len(self.server.seen)
            self.server.running[behaviour] += 1
            self.server.most_running[behaviour] = max(self.server.most_running[behaviour],
                                                      self.server.running[behaviour])
        try:
            getattr(self, "serve_" + behaviour)(body, number)
        finally:
            with self.server.lock:
                self.server.running[behaviour] -= 1

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def serve_good(self, body, number):
        """max_tokens tokens with a gap before each."""
        self.begin()
        for _ in range(body["max_tokens"]):
            time.sleep(GAP_S)
            self.chunk(token("x"))
        self.chunk(token("", "length") + usage(1000 + number, body["max_tokens"]) + DONE)
        self.end()

    def serve_chat(self, body, _):
        self.begin()
        self.chunk(chat_token({"role": "assistant", "content": ""}))
        time.sleep(3 * GAP_S)  # a role is no token: the first token is late
        self.chunk(b": ping\r\n\r\n" + chat_token({"reasoning_content": "Hm"}))
        self.chunk(chat_token({"content": "A"}) + chat_token({"content": "B"}))
        self.chunk(chat_token({}, "stop") + usage(7, 3) + DONE)
        self.end()

    def serve_bytes(self, body, _):
        """Every byte is a chunk of its own, without usage."""
        self.begin()
        for byte in token("\u00e9") + token("b") + DONE:
            self.chunk(bytes([byte]))
        self.end()

    def serve_unchunked(self, body, _):
        """Ends where the connection ends."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(token("a", "stop"))
        self.cut()

    def serve_mixed(self, body, number):
        """One request of each kind; the number of the kind is the length of the prompt."""
        kind = len(body["prompt"].split())
        if kind == 1:
            self.begin()
            self.chunk(token("a"))
            self.cut()  # in the middle of a chunked body
        elif kind == 2:
            self.reply(503, b'{"error": {"message": "Loading model", "code": 503}}')
        elif kind == 3:
            self.cut()  # no answer at all
        elif kind == 4:
            self.begin()
            self.chunk(token("a"))
            self.end()  # a stream without an end
        elif kind == 5:
            self.reply(200, b'{"choices": [{"text": "not a stream"}]}')
        elif kind == 6:
            self.begin()
            self.chunk(token("a") + event({"error": {"message": "out of pages"}}) + DONE)
            self.end()
        else:
            self.begin()
            self.chunk(token("a", "stop") + usage(8, 1) + DONE)
            self.end()

    def serve_never(self, body, _):
        self.begin()
        self.chunk(token("a"))
        self.server.released.wait()

    def serve_closing(self, body, _):
        """Says that the connection stays, and closes it."""
        self.begin()
        self.chunk(token("a", "stop") + usage(3, 1) + DONE)
        self.end()
        self.cut()


class BenchServe(Case):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.released.set)

    def bench(self, behaviour, *arguments, check=0):
        """Standard output, and what was saved."""
        done = run("bench-serve", "--base-url", self.server.url(behaviour), "--save-detailed",
                   "--result-dir", self.folder / "results", "--result-filename", "run.json", *arguments,
                   check=check)
        return done.stdout.decode(), json.loads((self.folder / "results/run.json").read_text()), done

    def test_counts_and_times(self):
        text, saved, _ = self.bench("good", "--model", "m", "--tokenizer", DEMO, "--num-prompts", "6",
                                    "--random-input-len", "12", "--random-output-len", "5",
                                    "--max-concurrency", "2", "--percentile-metrics", "ttft,tpot,itl,e2el",
                                    "--metric-percentiles", "50,99", "--goodput", "ttft:1", "tpot:1e6")
        self.assertEqual((saved["completed"], saved["failed"], saved["num_prompts"]), (6, 0, 6))
        self.assertEqual(saved["total_output_tokens"], 30)
        self.assertEqual(saved["output_lens"], [5] * 6)
        # The server counts prompts, and says that each is of another length.
        self.assertEqual(sorted(saved["input_lens"]), [1001, 1002, 1003, 1004, 1005, 1006])
        self.assertEqual(saved["total_input_tokens"], 6021)
        self.assertEqual(saved["generated_texts"], ["xxxxx"] * 6)
        self.assertEqual([len(gaps) for gaps in saved["itls"]], [4] * 6)
        # The server slept this long; how much longer it took says nothing.
        self.assertTrue(all(ttft >= GAP_S for ttft in saved["ttfts"]), saved["ttfts"])
        self.assertTrue(all(latency >= 5 * GAP_S for latency in saved["latencies"]), saved)
        self.assertGreaterEqual(saved["duration"], 15 * GAP_S)
        for ttft, gaps, latency in zip(saved["ttfts"], saved["itls"], saved["latencies"]):
            self.assertGreaterEqual(latency + 1e-9, ttft + sum(gaps))
        self.assertEqual(saved["request_goodput"], 0)  # 1 ms is less than the server sleeps
        self.assertEqual(saved["p50_ttft_ms"], saved["median_ttft_ms"])
        self.assertAlmostEqual(saved["output_throughput"], 30 / saved["duration"])
        self.assertEqual(self.server.most_running["good"], 2)
        self.assertEqual(saved["max_concurrent_requests"], 2)
        self.assertLessEqual(self.server.connections, 2)  # kept and used again
        self.assertIn("============ Serving Benchmark Result ============\n"
                      "Successful requests:                     6         \n", text)
        self.assertIn("\nTotal input tokens:                      6021      \n", text)
        bodies = [body for _, _, body in self.server.seen]
        self.assertTrue(all(len(body["prompt"]) == 12 for body in bodies))
        self.assertEqual({(body["model"], body["max_tokens"], body["stream"]) for body in bodies},
                         {("m", 5, True)})

    def test_chat_headers_and_the_listed_model(self):
        _, saved, _ = self.bench("chat", "--backend", "openai-chat", "--num-prompts", "1", "--api-key", "k",
                                 "--header", "X-A=b=c", "--extra-body", '{"temperature": 0}', "--ignore-eos",
                                 "--num-warmups", "2", "--random-input-len", "4", "--metadata", "tp=2")
        self.assertEqual((saved["completed"], saved["model_id"], saved["backend"], saved["tp"]),
                         (1, "listed", "openai-chat", "2"))
        self.assertEqual((saved["input_lens"], saved["output_lens"]), ([7], [3]))
        self.assertEqual(saved["generated_texts"], ["HmAB"])
        self.assertGreaterEqual(saved["ttfts"][0], 3 * GAP_S)
        self.assertEqual(len(saved["itls"][0]), 2)
        self.assertEqual(len(self.server.seen), 3)  # warm-ups come before
        path, headers, body = self.server.seen[-1]
        self.assertEqual(path, "/chat/v1/chat/completions")
        self.assertEqual((headers["Authorization"], headers["X-A"]), ("Bearer k", "b=c"))
        self.assertEqual(len(body["messages"][0]["content"].split()), 4)
        self.assertEqual((body["model"], body["temperature"], body["ignore_eos"]), ("listed", 0, True))

    def test_any_chunking(self):
        _, saved, _ = self.bench("bytes", "--model", "m", "--num-prompts", "2", "--random-input-len", "3")
        self.assertEqual(saved["generated_texts"], ["\u00e9b"] * 2)
        self.assertEqual((saved["input_lens"], saved["output_lens"]), ([3, 3], [2, 2]))  # nobody counts
        _, saved, _ = self.bench("unchunked", "--model", "m", "--num-prompts", "2")
        self.assertEqual(saved["output_lens"], [1, 1])

    def test_failures_are_counted_and_listed(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": "w " * n}) + "\n" for n in range(1, 9)))
        text, saved, done = self.bench("mixed", "--model", "m", "--dataset-name", "custom", "--dataset-path",
                                       prompts, "--num-prompts", "8", check=1)
        self.assertEqual((saved["completed"], saved["failed"]), (2, 6))
        self.assertEqual((saved["total_input_tokens"], saved["total_output_tokens"]), (16, 2))
        for error in ("the answer broke off: the server closed the connection",
                      "HTTP 503: Loading model",
                      "no answer: the server closed the connection",
                      "the stream ended without [DONE] and without a finish reason",
                      "want a stream of tokens, found '{\"choices\"",
                      "out of pages"):
            with self.subTest(error):
                self.assertEqual(sum(error in line for line in saved["errors"]), 1, saved["errors"])
                self.assertIn(f"       1 {error}", text)
        self.assertEqual(done.stderr.decode().count("\n"), 1)
        self.assertIn("nibble bench-serve: 6 of 8 requests failed; the first: ", done.stderr.decode())

    def test_a_request_may_take_so_long(self):
        _, saved, _ = self.bench("never", "--model", "m", "--num-prompts", "2", "--timeout", "1", check=1)
        self.assertEqual(saved["errors"], ["no complete answer within 1 s"] * 2)

    def test_a_closed_connection_is_opened_again(self):
        _, saved, _ = self.bench("closing", "--model", "m", "--num-prompts", "5", "--max-concurrency", "1")
        self.assertEqual((saved["completed"], saved["failed"]), (5, 0))
        self.assertEqual(self.server.connections, 5)

    def test_open_loop_keeps_its_rate(self):
        _, saved, _ = self.bench("closing", "--model", "m", "--num-prompts", "8", "--request-rate", "20",
                                 "--burstiness", "inf")
        # Even gaps end at 8 / 20 s, and nothing is sent before its time.
        self.assertGreaterEqual(saved["duration"], 8 / 20)
        self.assertEqual(saved["start_times"], sorted(saved["start_times"]))
        self.assertEqual((saved["request_rate"], saved["burstiness"]), (20, "inf"))

    def test_nobody_listens(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            refused = f"connecting to {url[7:]}: Connection refused"
            self.assert_fails(1, "bench-serve", "--base-url", url, message=refused)
            done = self.assert_fails(1, "bench-serve", "--base-url", url, "--model", "m", "--num-prompts",
                                     "3", message=f"3 of 3 requests failed; the first: {refused}")
            self.assertIn(b"Failed requests:                         3         \n", done.stdout)

    def test_warm_up_that_fails_ends_the_run(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text('{"prompt": "w w"}\n')
        self.assert_fails(1, "bench-serve", "--base-url", self.server.url("mixed"), "--model", "m",
                          "--num-warmups", "1", "--dataset-name", "custom", "--dataset-path", prompts,
                          message="warm-up: HTTP 503: Loading model")

    def test_wrong_usage(self):
        for arguments, message in [
            (["--base-url", "https://x"], "--base-url: want http://HOST[:PORT], found 'https://x'"),
            (["--endpoint", "/v1/embeddings"], "--endpoint: want a path"),
            (["--backend", "openai", "--endpoint", "/v1/chat/completions"], "--backend openai: want"),
            (["--request-rate", "0"], "--request-rate: want a positive number or inf, found '0'"),
            (["--burstiness", "-1"], "--burstiness: want"),
            (["--percentile-metrics", "ttft,x"], "--percentile-metrics: want some of"),
            (["--metric-percentiles", "101"], "--metric-percentiles: want"),
            (["--goodput", "itl:3"], "--goodput: want ttft:MS"),
            (["--header", "a"], "--header: want KEY=VALUE"),
            (["--extra-body", "[]"], "--extra-body: want a JSON object"),
            (["--dataset-name", "custom"], "want --dataset-path FILE"),
            (["--dataset-path", "x"], "--dataset-path: want --dataset-name"),
            (["--random-range-ratio", "2"], "want a number in [0, 1], found '2'"),
            (["--num-prompts", "0"], "--num-prompts: want"),
        ]:
            with self.subTest(arguments):
                self.assert_fails(2, "bench-serve", *arguments, message=message)

    def test_missing_files(self):
        self.assert_fails(3, "bench-serve", "--model", "m", "--tokenizer", "/nowhere/x",
                          message="--tokenizer: ")
        self.assert_fails(1, "bench-serve", "--model", "m", "--dataset-name", "custom", "--dataset-path",
                          "/nowhere/x", message="/nowhere/x: No such file")
        broken = self.folder / "broken"
        broken.write_text("{}\n")
        self.assert_fails(1, "bench-serve", "--model", "m", "--dataset-name", "custom", "--dataset-path",
                          broken, message=f"{broken}: line 1: want")


if __name__ == "__main__":
    unittest.main()
