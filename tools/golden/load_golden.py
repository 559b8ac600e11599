#!/usr/bin/env python3
"""Statistics of load runs, in numpy: what tests/unit/client/statistics_test.cpp compares with.

usage: load_golden.py OUT.json
"""
import json
import sys

import numpy as np

RNG = np.random.default_rng(17)


def percentile_case(values):
    values = np.asarray(values, dtype=float)
    return {"values": values.tolist(),
            "want": [[p, float(np.percentile(values, p))] for p in (0, 1, 25, 50, 90, 99, 99.9, 100)],
            "mean_ms": float(np.mean(values) * 1e3), "median_ms": float(np.median(values) * 1e3),
            "std_ms": float(np.std(values) * 1e3)}


def record(start):
    length = int(RNG.integers(1, 30))
    ttft = float(RNG.gamma(2.0, 0.05))
    itls = RNG.gamma(1.0, 0.06, length - 1)
    tail = float(RNG.choice([0.0, 0.002]))  # an end that holds no token
    return {"is_success": bool(RNG.random() > 0.15), "input_len": int(RNG.integers(1, 500)),
            "output_len": length, "start": float(start), "ttft": ttft, "itls": itls.tolist(),
            "latency": float(ttft + itls.sum() + tail)}


def run_case(count, duration, goodput):
    records = [record(100.0 + s) for s in np.sort(RNG.uniform(0, duration / 2, count))]
    good = [r for r in records if r["is_success"]]
    tpot = {id(r): (r["latency"] - r["ttft"]) / (r["output_len"] - 1) if r["output_len"] > 1 else 0.0
            for r in good}
    kept = sum(r["ttft"] <= goodput["ttft"] / 1e3 and tpot[id(r)] <= goodput["tpot"] / 1e3
               and r["latency"] <= goodput["e2el"] / 1e3 for r in good)
    begin = min(r["start"] for r in good)
    token_times = np.concatenate([r["start"] + r["ttft"] + np.concatenate([[0.0], np.cumsum(r["itls"])])
                                  for r in good])
    peak = np.bincount((token_times - begin).astype(int)).max()
    ends = np.array([r["start"] + r["latency"] for r in good])
    starts = np.array([r["start"] for r in good])
    concurrent = max(int(((starts <= t) & (t < ends)).sum()) for t in starts)
    total_in = sum(r["input_len"] for r in good)
    total_out = sum(r["output_len"] for r in good)
    want = {"completed": len(good), "failed": count - len(good), "total_input_tokens": total_in,
            "total_output_tokens": total_out, "request_throughput": len(good) / duration,
            "request_goodput": kept / duration, "output_throughput": total_out / duration,
            "total_token_throughput": (total_in + total_out) / duration,
            "max_output_tokens_per_s": float(peak), "max_concurrent_requests": concurrent,
            "mean_tpot_ms": float(np.mean([tpot[id(r)] for r in good if r["output_len"] > 1]) * 1e3),
            "p99_itl_ms": float(np.percentile(np.concatenate([r["itls"] for r in good]), 99) * 1e3),
            "p90_ttft_ms": float(np.percentile([r["ttft"] for r in good], 90) * 1e3),
            "std_e2el_ms": float(np.std([r["latency"] for r in good]) * 1e3)}
    return {"duration": duration, "goodput": goodput, "records": records, "want": want}


cases = [percentile_case(v) for v in
         ([0.25], [3.0, 1.0], [2.0, 2.0, 2.0], RNG.gamma(2.0, 0.1, 10), RNG.gamma(0.5, 1.0, 101))]
limits = {"ttft": 120.0, "tpot": 62.0, "e2el": 1500.0}
runs = [run_case(2, 3.0, {"ttft": 1e6, "tpot": 1e6, "e2el": 1e6}), run_case(20, 6.0, limits),
        run_case(60, 11.5, limits)]
with open(sys.argv[1], "w") as file:
    json.dump({"percentiles": cases, "runs": runs}, file, separators=(",", ":"))
    file.write("\n")
