#!/usr/bin/env python3
"""Times nibble and llama.cpp one after the other on the same shape, and says how far apart they are.

    bench/peer/llama_cpp.py --nibble build/cpu/nibble --model DIR --llama-bench PATH --gguf FILE > result.json

nibble runs once for each of --activations. All run in turn, --rounds times; a figure is the median over the rounds.
Before each side's first run of a round its file is read, so that both find theirs in the page cache even where both
files do not fit. Counts of 0 leave a test out. Standard error has the table.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PEER = "llama.cpp"


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


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nibble", required=True, help="the program")
    parser.add_argument("--model", required=True, type=pathlib.Path, help="folder of nibble's checkpoint")
    parser.add_argument("--llama-bench", required=True, help="llama.cpp's program")
    parser.add_argument("--gguf", required=True, type=pathlib.Path, help="the same shape for llama.cpp")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--activations", default="bf16,int8", help="of nibble; the first is its default, exact mode")
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("-p", "--n-prompt", default="512")
    parser.add_argument("-n", "--n-gen", default="64")
    return parser.parse_args()


def measure(given):
    """The commands by side, and of each side a list of rounds: test name to row."""
    tests = ["-p", given.n_prompt, "-n", given.n_gen, "-t", given.threads, "-r", "1", "-o", "json"]
    ours = {f"nibble {activation}": [given.nibble, "bench", str(given.model), *tests, "--activation", activation]
            for activation in given.activations.split(",")}
    files = [(given.model, ours),
             (given.gguf, {PEER: [given.llama_bench, "-m", str(given.gguf), "-lm", "none", *tests]})]
    commands = {side: command for _, sides in files for side, command in sides.items()}
    rounds = {side: [] for side in commands}
    for _ in range(given.rounds):
        for path, sides in files:
            cached(path)
            for side, command in sides.items():
                rounds[side].append({name_of(row): row for row in rows_of(command)})
    return commands, rounds


def summary(test, rounds):
    """Speeds, medians, and of each of nibble's sides the ratio to the peer and the parts of the machine's limits."""
    speeds = {side: [row[test]["avg_ts"] for row in of] for side, of in rounds.items()}
    medians = {side: statistics.median(values) for side, values in speeds.items()}
    ours = [side for side in rounds if side != PEER]
    result = {"tokens_per_second": speeds, "medians": medians,
              "ratio": {side: medians[side] / medians[PEER] for side in ours}}
    for field in ("bandwidth_fraction", "peak_fraction"):
        result[field] = {side: statistics.median(row[test][field] for row in rounds[side]) for side in ours}
    return result


def main():
    commands, rounds = measure(parse())
    first = next(iter(rounds.values()))[0]
    result = {"commands": {side: " ".join(command) for side, command in commands.items()},
              "cpu": next(iter(first.values()))["cpu_info"],
              "tests": {test: summary(test, rounds) for test in first}}
    for test, of in result["tests"].items():
        print(f"{test}: {PEER} {of['medians'][PEER]:.2f} tok/s", file=sys.stderr)
        for side, ratio in of["ratio"].items():
            print(f"{test}: {side} {of['medians'][side]:.2f} tok/s, ratio {ratio:.2f}; of the read bandwidth "
                  f"{of['bandwidth_fraction'][side]:.1%}, of the dot-product peak {of['peak_fraction'][side]:.1%}",
                  file=sys.stderr)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
