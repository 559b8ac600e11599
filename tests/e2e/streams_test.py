"""A thousand streams at once, wave after wave: all complete, memory stays, health answers meanwhile.

Takes minutes and both processors, so it runs only when asked to:

    NIBBLE_LARGE=1 ctest --test-dir build/cpu -L large -R streams -V

`nibble bench-serve` is the client. The times of /health are printed, not judged: they belong to the
machine, and docs/server.md says what they were. NIBBLE_STREAMS and NIBBLE_WAVES change the numbers.
"""
import json
import os
import pathlib
import re
import statistics
import threading
import time
import unittest

from program import Case, run
from server import Server

STREAMS = int(os.environ.get("NIBBLE_STREAMS", "1000"))
WAVES = int(os.environ.get("NIBBLE_WAVES", "16"))
# Four waves fill the cache, whose pages cost memory when they are first used; in two more malloc finds
# its size.
WARM_UP = 6
# Of `rise`, over 5 waves of 1,000: whole, it was 1.7 MiB at the most in four runs of 16 waves; with 2 KB
# that each stream left behind, 9.3.
ROOM_BYTES = 4 << 20
SKIPPED = 77          # what CTest takes for "skipped"


def resident_bytes(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return sum(int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) for name in ("RssAnon", "VmSwap")) * 1024


def rise(memory):
    """By how much the least of the later waves exceeds the least of the earlier ones.

    What malloc gives back to the system, and when, changes from wave to wave without a direction, by
    megabytes: no single wave says anything. What leaks is in every later wave, the least one too.
    """
    settled = memory[WARM_UP:]
    half = len(settled) // 2
    return min(settled[half:]) - min(settled[:half])


class Probe(threading.Thread):
    """Asks for /health twenty times a second, on a connection of its own each time."""

    def __init__(self, server):
        super().__init__()
        self.server, self.times_ms, self.most_running = server, [], 0
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.wait(0.05):
            begin = time.monotonic()
            status = self.server.get("/health")[0]
            self.times_ms.append(1000 * (time.monotonic() - begin))
            if status != 200:
                raise AssertionError(f"/health: {status}")
            if len(self.times_ms) % 10 == 0:
                self.most_running = max(self.most_running,
                                        self.server.metric("num_requests_running"))


class Streams(Case):
    def wave(self, server, seed):
        result = self.folder / f"wave{seed}.json"
        run("bench-serve", "--base-url", server.url, "--num-prompts", STREAMS, "--max-concurrency",
            STREAMS, "--random-input-len", 24, "--random-output-len", 40, "--ignore-eos", "--seed",
            seed, "--save-result", "--result-dir", self.folder, "--result-filename", result.name,
            check=0)
        return json.loads(result.read_text())

    def test_all_complete_in_steady_memory(self):
        for num_seqs in (STREAMS, 16):
            with self.subTest(computed_together=num_seqs), \
                 Server("--max-model-len", 256, "--max-num-seqs", num_seqs, "--max-queued-requests",
                        STREAMS, "--disable-log-requests") as server:
                probe = Probe(server)
                probe.start()
                memory, rates = [], []
                for seed in range(WAVES):
                    result = self.wave(server, seed)
                    self.assertEqual((result["completed"], result["failed"]), (STREAMS, 0))
                    self.assertEqual(result["total_output_tokens"], 40 * STREAMS)
                    self.assertEqual(result["max_concurrent_requests"], STREAMS)
                    server.wait_until_idle()
                    memory.append(resident_bytes(server.process))
                    rates.append(result["output_throughput"])
                probe.is_over.set()
                probe.join()
                times = sorted(probe.times_ms)
                print(f"{STREAMS} streams, {num_seqs} computed together, {WAVES} waves: "
                      f"{statistics.median(rates):.0f} tokens/s; most running at once "
                      f"{probe.most_running:.0f}\n"
                      f"  /health, {len(times)} times: median {statistics.median(times):.1f} ms, "
                      f"p99 {times[len(times) * 99 // 100]:.1f} ms, longest {times[-1]:.1f} ms\n"
                      f"  resident, MiB after each wave: "
                      f"{' '.join(f'{bytes_ / 2 ** 20:.1f}' for bytes_ in memory)}", flush=True)
                self.assertLessEqual(rise(memory), ROOM_BYTES)
                self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    if os.environ.get("NIBBLE_LARGE") != "1":
        print("skipped: it takes minutes and both processors; NIBBLE_LARGE=1 asks for it")
        raise SystemExit(SKIPPED)
    unittest.main()
