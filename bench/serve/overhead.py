#!/usr/bin/env python3
"""What HTTP costs: decoding 16 streams through `nibble serve` beside `nibble bench --streams 16`.

usage: overhead.py [--program build/cpu/nibble] [--rounds 5] [--tokens 512] [--json FILE] [MODEL ...]

MODEL is a folder or `demo` (the default), or `20b-2`: gpt-oss-20b's shape with two layers and random
weights, written to a temporary folder first, with the tokenizer of the tests. Client, server and engine share this machine.
Each round runs the bench, the server with temperature 0 and the server as clients find it
(temperature 1), one after the other, so that a slow minute hurts all three; medians are compared.
Decoding through HTTP: 16 over the mean time between the tokens of a stream, all 16 begun together.
Needs a quiet machine; the load average is part of the report.
"""
import argparse
import json
import lzma
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
STREAMS = 16
PROMPT = 4
RANDOM_MODEL_TOKENS = 64


def output_of(*command):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


class Server:
    def __init__(self, program, model, tokens):
        self.process = subprocess.Popen(
            [program, "serve", str(model), "--port", "0", "--disable-log-requests",
             "--max-num-seqs", str(STREAMS), "--max-model-len", str(tokens + 2 * PROMPT + 64)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = ""
        for line in self.process.stderr:
            if found := re.search(r"listening.*?(http://[^\s\"]+)", line):
                self.url = found[1]
            if re.search(r"\bready\b", line):
                return
        sys.exit("the server did not start")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def bench(program, model, tokens):
    rows = json.loads(output_of(program, "bench", model, "-p", 0, "-n", tokens, "--streams",
                                STREAMS, "-r", 3, "-o", "json"))
    return rows[0]["avg_ts"]


def through_http(program, server, model, tokens, temperature, folder):
    output_of(program, "bench-serve", "--base-url", server.url, "--tokenizer", model,
              "--num-prompts", STREAMS, "--max-concurrency", STREAMS, "--num-warmups", STREAMS,
              "--random-input-len", PROMPT, "--random-output-len", tokens, "--ignore-eos",
              "--extra-body", json.dumps({"temperature": temperature}), "--save-result",
              "--result-dir", folder, "--result-filename", "result.json")
    result = json.loads((pathlib.Path(folder) / "result.json").read_text())
    if result["completed"] != STREAMS or result["total_output_tokens"] != STREAMS * tokens:
        sys.exit(f"not every stream was answered in full: {result['completed']} of {STREAMS}")
    return STREAMS * 1000 / result["mean_tpot_ms"]


def measure(program, model, tokens, rounds, folder):
    rates = {"bench": [], "http, temperature 0": [], "http, temperature 1": []}
    for _ in range(rounds):
        rates["bench"].append(bench(program, model, tokens))
        server = Server(program, model, tokens)
        for temperature in (0, 1):
            rates[f"http, temperature {temperature}"].append(
                through_http(program, server, model, tokens, temperature, folder))
        server.stop()
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default=str(SOURCE / "build/cpu/nibble"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--json", help="append the rates of each model to this file")
    parser.add_argument("models", nargs="*", default=["demo"], metavar="MODEL")
    options = parser.parse_args()
    version = output_of(options.program, "--version").strip()
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            model, tokens = name, options.tokens
            if name == "demo":
                model = SOURCE / "models/demo"
            elif name == "20b-2":
                model, tokens = pathlib.Path(folder) / name, RANDOM_MODEL_TOKENS
                output_of(options.program, "make-model", "--preset", "gpt-oss-20b", "--layers", 2,
                          model)
                packed = SOURCE / "tests/golden/gpt-oss-tokenizer/tokenizer.json.xz"
                (model / "tokenizer.json").write_bytes(lzma.decompress(packed.read_bytes()))
            before = os.getloadavg()[0]
            rates = measure(options.program, model, tokens, options.rounds, folder)
            whole = statistics.median(rates["bench"])
            print(f"{name}, {STREAMS} streams of {tokens} tokens, {version}, {cpu}, "
                  f"{len(os.sched_getaffinity(0))} processors, load {before:.2f} before")
            for way, values in rates.items():
                print(f"  {way:20} {statistics.median(values):10.1f} tokens/s  "
                      f"{100 * statistics.median(values) / whole:5.1f} %  "
                      f"({min(values):.1f} to {max(values):.1f} in {len(values)} rounds)", flush=True)
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps({"model": name, "tokens": tokens, "streams": STREAMS,
                                           "version": version, "cpu": cpu, "load": before,
                                           "rates": rates}) + "\n")


main()
