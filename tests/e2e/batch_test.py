"""`nibble batch` on the demo checkpoint: answers, faults, interruption at any moment."""
import json
import signal
import subprocess
import time
import unittest

from program import DEMO, NIBBLE, TIMEOUT_S, Case, environment, run, run_json
from server import chat_body

FIXED = ("--served-model-name", "demo", "--max-model-len", "512")


def line(custom_id, body, url="/v1/completions", method="POST"):
    return {"custom_id": custom_id, "method": method, "url": url, "body": body}


def without_ids(body):
    """What two runs must have in common."""
    return {key: value for key, value in body.items() if key not in ("id", "created", "created_at")}


class Batch(Case):
    def setUp(self):
        super().setUp()
        self.source = self.folder / "in.jsonl"
        self.target = self.folder / "out.jsonl"

    def write(self, lines):
        self.source.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n"
                                       for one in lines))

    def records(self):
        """custom_id, or the number of a line without one -> record; each once."""
        found = {}
        for text in self.target.read_text().splitlines():
            record = json.loads(text)
            name = record["custom_id"] or record["error"]["line"]
            self.assertNotIn(name, found)
            found[name] = record
        return found

    def batch(self, *arguments, check=0):
        return run("batch", self.source, self.target, *FIXED, *arguments, check=check)

    def many(self, number):
        """Greedy and seeded, short and long."""
        return [line(f"r{i}", {"model": "demo", "prompt": f"Number {i}. Once upon a time",
                               "max_tokens": 5 + i % 7 * 8, "temperature": i % 3 * 0.5, "seed": i})
                for i in range(number)]

    def answers(self):
        return {name: without_ids(record["response"]["body"])
                for name, record in self.records().items()}

    def test_answers_as_run_does(self):
        want = run_json("run", DEMO, "-p", "2+2?", "--temp", "0", "--json", "--max-model-len", "512",
                        "--current-date", "2026-01-01")
        asked = chat_body("2+2?")
        self.write([line("chat", asked, "/v1/chat/completions"),
                    line("responses", {"input": "2+2?", "temperature": 0}, "/v1/responses"),
                    line("messages", asked | {"max_tokens": 200}, "/v1/messages"),
                    *self.many(20)])
        done = self.batch()
        self.assertEqual(done.stdout, b"")
        text = done.stderr.decode()
        self.assertRegex(text, r"nibble batch: 23 of 23 lines, 0 failed, [\d.]+ s\n$")
        self.assertLessEqual(text.count("\n"), 10)
        records = self.records()
        self.assertEqual(len(records), 23)
        for record in records.values():
            self.assertEqual(record["response"]["status_code"], 200, record)
            self.assertIsNone(record["error"])
            self.assertRegex(record["id"], "^batch_req_")
            self.assertRegex(record["response"]["request_id"], "^req-")
        message = records["chat"]["response"]["body"]["choices"][0]["message"]
        self.assertEqual(message["content"], want["content"])
        self.assertEqual(records["messages"]["response"]["body"]["content"][0]["text"],
                         want["content"])
        self.assertEqual(records["responses"]["response"]["body"]["status"], "completed")

    def test_bad_lines_are_reported_and_the_others_answered(self):
        self.write(["{", line("a", {"prompt": "x", "max_tokens": 2}), "",
                    line("a", {"prompt": "y"}), line("get", {"prompt": "y"}, method="GET"),
                    line("url", {"input": "y"}, "/v1/embeddings"),
                    line("hot", {"prompt": "y", "temperature": -1}),
                    line("stream", {"prompt": "y", "stream": True}),
                    line("later", {"input": "y", "previous_response_id": "resp_1"},
                         "/v1/responses")])
        done = self.batch(check=1)
        self.assertRegex(done.stderr.decode().splitlines()[-1],
                         r"^nibble batch: 7 of 8 lines failed; .*out.jsonl says why$")
        records = self.records()
        self.assertEqual({name: record["error"]["line"] for name, record in records.items()
                          if record["error"]}, {1: 1, 4: 4, "get": 5, "url": 6, "stream": 8})
        self.assertEqual(records["a"]["response"]["status_code"], 200)
        self.assertEqual(records["hot"]["response"]["body"]["error"]["param"], "temperature")
        self.assertEqual(records["later"]["response"]["body"]["error"]["param"],
                         "previous_response_id")
        before = self.target.read_text()
        self.batch(check=1)
        self.assertEqual(self.target.read_text(), before, "nothing was left to do")

    def test_an_interrupted_run_is_continued(self):
        lines = self.many(60)
        self.write(lines)
        self.batch()
        want = self.answers()
        self.assertEqual(len(want), 60)
        self.target.unlink()
        for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)):
            kept = self.target.read_bytes().count(b"\n") if self.target.exists() else 0
            process = subprocess.Popen([NIBBLE, "batch", self.source, self.target, *FIXED,
                                        "--max-num-seqs", "2"], stderr=subprocess.PIPE,
                                       env=environment())
            deadline = time.monotonic() + TIMEOUT_S
            while not self.target.exists() or self.target.read_bytes().count(b"\n") < kept + 5:
                self.assertLess(time.monotonic(), deadline)
                self.assertIsNone(process.poll(), "ended before it could be interrupted")
                time.sleep(0.001)
            process.send_signal(number)
            process.communicate(timeout=TIMEOUT_S)
            self.assertEqual(process.returncode, code)
            data = self.target.read_bytes()
            self.assertLess(data.count(b"\n"), 60)
            self.target.write_bytes(data[:-20])  # as if the machine had stopped within a write
        kept = self.target.read_bytes()
        done = self.batch()
        self.assertEqual(self.answers(), want)
        self.assertTrue(self.target.read_bytes().startswith(kept[:kept.rindex(b"\n") + 1]))
        self.assertIn(f"; {kept.count(10)} were there already", done.stderr.decode())

    def test_files_that_cannot_be(self):
        self.assert_fails(1, "batch", self.folder / "none", self.target, message="no such file")
        self.assertFalse(self.target.exists())
        self.write(self.many(1))
        self.assert_fails(2, "batch", self.source, self.source, message="one for input and output")
        self.target.write_text("my letters\n")
        self.assert_fails(2, "batch", self.source, self.target, message="line 1")
        self.assertEqual(self.target.read_text(), "my letters\n")
        self.assert_fails(1, "batch", self.source, self.folder / "no/out", message="No such file")
        self.assert_fails(2, "batch", self.source, message="OUT")
        self.assert_fails(3, "batch", self.source, self.folder / "out", self.folder / "no model")


if __name__ == "__main__":
    unittest.main()
