#!/usr/bin/env python3
"""Times nibble and llama.cpp one after the other on the same shape, and says how far apart they are.

    bench/peer/llama_cpp.py --nibble build/cpu/nibble --model DIR --llama-bench PATH --gguf FILE > result.json

Both run in turn, --rounds times; a figure is the median over the rounds. A round of each side first reads its file, so
that both find it in the page cache even where both files do not fit. Standard error has the table.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys


def cached(path):
    """Reads what the program will map."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.read(1 << 24):
                pass


def rows_of(command):
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(output.stdout)


def name_of(row):
    depth = f" @ d{row['n_depth']}" if row["n_depth"] else ""
    return (f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}") + depth


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", required=True, help="the program")
    parser.add_argument("--model", required=True, type=pathlib.Path, help="folder of nibble's checkpoint")
    parser.add_argument("--llama-bench", required=True, help="llama.cpp's program")
    parser.add_argument("--gguf", required=True, type=pathlib.Path, help="the same shape for llama.cpp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("-p", "--n-prompt", default="512")
    parser.add_argument("-n", "--n-gen", default="64")
    given = parser.parse_args()
    tests = ["-p", given.n_prompt, "-n", given.n_gen, "-t", given.threads, "-r", "1", "-o", "json"]
    sides = {"nibble": (given.model, [given.nibble, "bench", str(given.model), *tests]),
             "llama.cpp": (given.gguf, [given.llama_bench, "-m", str(given.gguf), "-lm", "none", *tests])}
    rounds = {side: [] for side in sides}
    for _ in range(given.rounds):
        for side, (path, command) in sides.items():
            cached(path)
            rounds[side].append({name_of(row): row for row in rows_of(command)})
    result = {"commands": {side: " ".join(command) for side, (_, command) in sides.items()},
              "cpu": rounds["nibble"][0][f"pp{given.n_prompt}"]["cpu_info"], "tests": {}}
    for test in rounds["nibble"][0]:
        speeds = {side: [row[test]["avg_ts"] for row in of] for side, of in rounds.items()}
        ours, theirs = (statistics.median(speeds[side]) for side in ("nibble", "llama.cpp"))
        fractions = {field: statistics.median(row[test][field] for row in rounds["nibble"])
                     for field in ("bandwidth_fraction", "peak_fraction")}
        result["tests"][test] = {"tokens_per_second": speeds, "medians": {"nibble": ours, "llama.cpp": theirs},
                                 "ratio": ours / theirs, **fractions}
        print(f"{test}: nibble {ours:.2f} tok/s, llama.cpp {theirs:.2f}, ratio {ours / theirs:.2f}; of the read bandwidth "
              f"{fractions['bandwidth_fraction']:.1%}, of the dot-product peak {fractions['peak_fraction']:.1%}",
              file=sys.stderr)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
