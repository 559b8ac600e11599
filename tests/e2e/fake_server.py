#!/usr/bin/env python3
"""A server that says what it is told to: the double of `nibble serve` for tests of the page.

As a program it answers every chat with a sample, to work on the page without a model:
    tests/e2e/fake_server.py [PORT]
"""
import http.server
import json
import math
import pathlib
import queue
import sys
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGE = SOURCE / "src/server/page"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
         ".svg": "image/svg+xml"}


def page_headers():
    lines = (PAGE / "headers.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


def event(delta=None, finish=None, **fields):
    """One chunk of a streamed chat completion, as bytes on the wire."""
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "demo", "choices": choices, **fields}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def usage(prompt=12, completion=3, reasoning=0, cached=0):
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning}}


def answer(*deltas, finish="stop", **fields):
    """The pieces of a whole stream."""
    fields.setdefault("usage", usage())
    return [*map(event, deltas), event({}, finish), event(**fields), DONE]


def content(text):
    return {"content": text}


def thought(text):
    return {"reasoning_content": text, "reasoning": text}


class Stream:
    """The body of an event stream, piece by piece when the test wants it: `push`, then `end`."""

    def __init__(self, *pieces, is_open=False):
        self.pieces = queue.Queue()
        self.is_closed = threading.Event()  # the client has gone away
        for piece in pieces:
            self.push(piece)
        if not is_open:
            self.end()

    def push(self, *pieces):
        for piece in pieces:
            self.pieces.put(piece)

    def end(self):
        self.pieces.put(None)


class Refusal:
    def __init__(self, status, message, **headers):
        self.status, self.headers = status, {k.replace("_", "-"): v for k, v in headers.items()}
        self.body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": status}}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, content_type="application/json", **headers):
        self.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, refusal):
        self.reply(refusal.status, refusal.body, **refusal.headers)

    def is_gone(self):
        """After the end, connections that were kept alive end too."""
        self.close_connection = self.server.fake.is_closed
        return self.close_connection

    def is_allowed(self):
        key = self.server.fake.key
        return not key or self.headers.get("Authorization") == f"Bearer {key}"

    def do_GET(self):
        fake = self.server.fake
        if self.is_gone():
            return
        path = self.path.split("?")[0]
        fake.paths.append(path)
        if path == "/health" and fake.health:
            self.refuse(fake.health)
        elif path == "/health":
            self.reply(200, b'{"status":"ok"}')
        elif path == "/v1/models" and not self.is_allowed():
            self.refuse(Refusal(401, "a valid API key is needed"))
        elif path == "/v1/models":
            self.reply(200, json.dumps({"data": [{"id": "demo", "max_model_len": 4096}]}).encode())
        elif path == "/metrics":
            self.reply(200, fake.metrics().encode(), "text/plain; version=0.0.4")
        else:
            self.page_file(fake, path)

    def page_file(self, fake, path):
        file = PAGE / "index.html" if path == "/" else PAGE / path.removeprefix("/page/")
        file = fake.files.get(path, file)
        if file.suffix not in TYPES or not file.is_file():
            self.refuse(Refusal(404, f"{path} is not here"))
            return
        body = file.read_bytes()
        fake.page_bytes[path] = len(body)
        self.reply(200, body, f"{TYPES[file.suffix]}; charset=utf-8", **page_headers())

    def do_POST(self):
        fake = self.server.fake
        if self.is_gone():
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.requests.append(body)
        reply = fake.next_reply(body) if self.is_allowed() else Refusal(401, "a valid API key is needed")
        if isinstance(reply, Refusal):
            self.refuse(reply)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while (piece := reply.pieces.get()) is not None:
                self.wfile.write(piece)
        except OSError:
            reply.is_closed.set()
        self.close_connection = True


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # a browser that goes away is no error
        pass


class FakeServer:
    """Replies to chats with `replies`, in order. Everything it got is in `requests` and `paths`."""

    def __init__(self, port=0):
        self.requests, self.paths, self.replies, self.page_bytes = [], [], [], {}
        self.files = {}  # path -> further file to serve
        self.health = self.key = None
        self.is_closed = False
        self.metrics = lambda: ""
        self.httpd = QuietServer(("127.0.0.1", port), Handler)
        self.httpd.fake = self
        self.url = f"http://127.0.0.1:{self.httpd.server_port}/"
        threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True).start()

    def next_reply(self, _):
        return self.replies.pop(0) if self.replies else Refusal(400, "the test gave no reply for this")

    def close(self):
        self.is_closed = True
        self.httpd.shutdown()
        self.httpd.server_close()


EDGES = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 10, 20, 40, 80, math.inf]


def histogram_text(name, observations):
    lines = [f"# HELP nibble:{name} Seconds.", f"# TYPE nibble:{name} histogram"]
    for edge in EDGES:
        text = "+Inf" if edge == math.inf else f"{edge}"
        n = sum(value <= edge for value in observations)
        lines.append(f'nibble:{name}_bucket{{model_name="demo",le="{text}"}} {n}')
    return lines + [f'nibble:{name}_sum{{model_name="demo"}} {sum(observations)}',
                    f'nibble:{name}_count{{model_name="demo"}} {len(observations)}']


def metrics_text(values, histograms, ended):
    """`values`: name -> number; names of the exposition format without prefix."""
    lines = [f'nibble:{name}{{model_name="demo"}} {value}' for name, value in values.items()]
    lines += [f'nibble:request_success_total{{model_name="demo",finished_reason="{reason}"}} {n}'
              for reason, n in ended.items()]
    for name, observations in histograms.items():
        lines += histogram_text(name, observations)
    return "\n".join(lines) + "\n"


SAMPLE = """A *mixture of experts* has many small networks and uses **only a few** of them for each token.

1. The router scores all experts.
2. The best four are chosen:
   - their scores become weights,
   - the others are not computed.
3. Their outputs are added.

| model | experts | active |
|---|---:|---:|
| gpt-oss-20b | 32 | 4 |
| gpt-oss-120b | 128 | 4 |

```python
def mix(x, experts, weights):
    return sum(w * e(x) for w, e in zip(weights, experts))
```

So `4 / 128` of the expert weights are read for one token. See [the paper](https://arxiv.org/abs/2101.03961).
"""
SAMPLE_THOUGHT = "The user wants a short explanation. I should say what the router does, give numbers and a bit of code."


def pieces(text, size=4):
    return [text[i:i + size] for i in range(0, len(text), size)]


def sample_stream(delay_s):
    stream = Stream(is_open=True)

    def write():
        for make, text in ((thought, SAMPLE_THOUGHT), (content, SAMPLE)):
            for piece in pieces(text):
                stream.push(event(make(piece)))
                time.sleep(delay_s)
        stream.push(*answer(usage=usage(75, 241, 27, 64)))
        stream.end()

    threading.Thread(target=write, daemon=True).start()
    return stream


if __name__ == "__main__":
    server = FakeServer(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
    server.next_reply = lambda _: sample_stream(0.02)
    print(server.url)
    threading.Event().wait()
