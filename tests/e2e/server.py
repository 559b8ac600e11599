"""A running server for the end-to-end tests, and the standard library's client for it."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from program import DEMO, NIBBLE, TIMEOUT_S, environment


class Server:
    """`nibble serve` on a free port; ready when this returns."""

    def __init__(self, *arguments, model=DEMO, env=None, ready=True):
        self.log = []
        self.process = subprocess.Popen(
            [NIBBLE, "serve", str(model), "--port", "0", *map(str, arguments)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env or environment())
        self.port = 0
        self.url = ""
        self.tls = None
        self.news = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        found = self.wait_for_log(r"listening.*?((?:https?|unix):[^\s\"]+)")
        self.url = found.group(1)
        if not self.url.startswith("unix"):
            self.port = int(self.url.rsplit(":", 1)[1])
        if ready:
            self.wait_for_log(r"\bready\b")

    def read(self):
        for line in self.process.stderr:
            with self.news:
                self.log.append(line.decode("utf-8", "replace"))
                self.news.notify_all()

    def wait_for_log(self, pattern, seconds=TIMEOUT_S):
        deadline = time.monotonic() + seconds
        with self.news:
            while True:
                for line in self.log:
                    if found := re.search(pattern, line):
                        return found
                left = deadline - time.monotonic()
                if left <= 0 or self.process.poll() is not None and not self.reader.is_alive():
                    raise AssertionError(f"want {pattern!r} in the log, found {self.log}")
                self.news.wait(min(left, 0.2))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop(signal.SIGKILL)

    def stop(self, number=signal.SIGTERM):
        """Exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stderr.close()
        return code

    def use_tls(self, context):
        """From now on every call goes through TLS."""
        self.tls = context

    def connect(self):
        if self.tls is not None:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT_S,
                                               context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def raw(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S)

    def call(self, method, path, body=None, headers=None, connection=None):
        """(status, headers, body as JSON or text)."""
        one = connection or self.connect()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        one.request(method, path, data, headers or {})
        reply = one.getresponse()
        text = reply.read().decode()
        if connection is None:
            one.close()
        is_json = "json" in (reply.getheader("content-type") or "")
        return reply.status, dict(reply.getheaders()), json.loads(text) if is_json else text

    def get(self, path, **keywords):
        return self.call("GET", path, **keywords)

    def post(self, path, body, **keywords):
        return self.call("POST", path, body, **keywords)

    def chat(self, text, **fields):
        """The reply to one user message; must succeed."""
        status, _, reply = self.post("/v1/chat/completions", chat_body(text, **fields))
        if status != 200:
            raise AssertionError(f"{status}: {reply}")
        return reply

    def events(self, path, body, headers=None):
        """Data of the events of a stream, as JSON or as text; (name, data) where they have names."""
        one = self.connect()
        one.request("POST", path, json.dumps(body), headers or {})
        reply = one.getresponse()
        if reply.status != 200:
            raise AssertionError(f"{reply.status}: {reply.read()}")
        events = parse_events(reply.read())
        one.close()
        return events

    def metric(self, name):
        text = self.get("/metrics")[2]
        found = re.search(rf"^nibble:{re.escape(name)}(?:{{[^}}]*}})? ([^\n]+)$", text, re.M)
        return float(found.group(1))

    def wait_until_idle(self, seconds=10):
        """Nothing runs, waits or holds a page."""
        deadline = time.monotonic() + seconds
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "kv_cache_window_usage_perc")
        while any(values := [self.metric(name) for name in names]):
            if time.monotonic() > deadline:
                raise AssertionError(dict(zip(names, values)))
            time.sleep(0.02)


def chat_body(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0,
            "chat_template_kwargs": {"current_date": "2026-01-01"}, **fields}


def parse_events(data):
    events = []
    for block in data.decode("utf-8", "strict").split("\n\n"):
        if not block or block.startswith(":"):
            continue
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        value = fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])
        events.append((fields["event"], value) if "event" in fields else value)
    return events


def joined_chat(events):
    """What a client puts together from the chunks of one choice."""
    message = {"content": "", "reasoning_content": "", "tool_calls": []}
    finish = None
    for event in events:
        if event == "[DONE]":
            continue
        for choice in event["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], **call["function"]})
                else:
                    message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
            finish = choice["finish_reason"] or finish
    return message, finish
