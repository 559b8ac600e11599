"""Reference ids of the `tokenizers` package.

    demo-tokenizer/encodings.json     the demo vocabulary under several pre-tokenizers, as text and ids
    gpt-oss-tokenizer/unicode.txt     one line for 256 characters: the first (hex), a hash of the ids of
                                      the text that block_text() makes of them

Usage: tokenizer_golden.py GPT_OSS DEMO OUT     (folders of a tokenizer.json, tests/golden)
       tokenizer_golden.py --random N FOLDER OUT.jsonl     random texts, for a longer comparison
"""
import json
import random
import sys

from tokenizers import Tokenizer

RANGES = [(0x20, 0x7E), (0x80, 0x24F), (0x250, 0x5FF), (0x600, 0x6FF), (0x900, 0xFFF), (0x1100, 0x1FFF),
          (0x2000, 0x2FFF), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xA640, 0xABFF), (0xAC00, 0xADFF), (0xE000, 0xE0FF),
          (0xF900, 0xFFFF), (0x10000, 0x11FFF), (0x13000, 0x143FF), (0x1D000, 0x1FBFF), (0x20000, 0x323AF),
          (0xE0000, 0xE01EF), (0x10FFF0, 0x10FFFF)]
BITS = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'\u017f", "12", "1234", "A", "bc", "/", "//", "\u0301", "\u00a0",
        "\u180e", "\u0085", "\u2028", "\u200d", "...", "!?", "\U0001F44D\U0001F3FD", "<|start|>", "<|end", "|>"]
FIXED = ["", "myVarName XMLFile", "can't CAN'T", "1234567", "//\n/", "e\u0301", "a\u00a0b", "\u2192", "\u3001\u3002", "\t\n \n\t",
         "\u0664\u0665\u0666\u0667", "the cat sat on the mat", "x" * 200, "ab" * 60, " " * 50, "\n" * 40, "a-b-c--d", "--", "one-two",
         "<|start|>user<|message|>hi<|end|>", "<|end|><|end|>", "a<<think>b</think>", "<think><think", "zz<|call|>"]
REGEX = lambda pattern: {"Regex": pattern}  # noqa: E731
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = {**BYTES, "use_regex": True}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def steps(*items):
    return {"type": "Sequence", "pretokenizers": [*items, BYTES]}


CHAIN = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
         "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
         " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
PRE_TOKENIZERS = {
    "own": None,
    "chain": steps(*(split(REGEX(p), "Isolated") for p in CHAIN)),
    "gpt2": GPT2,
    "bytes": BYTES,
    "string": steps(split({"String": "-"}, "Isolated")),
    "previous": steps(split({"String": "-"}, "MergedWithPrevious")),
    "next": steps(split({"String": "-"}, "MergedWithNext")),
    "contiguous": steps(split({"String": "-"}, "Contiguous")),
    "previous_inverted": steps(split(REGEX("\\d\\d?"), "MergedWithPrevious", True)),
    "next_inverted": steps(split(REGEX("\\d\\d?"), "MergedWithNext", True)),
    "contiguous_spaces": steps(split(REGEX("\\s"), "Contiguous"), split(REGEX("\\D\\D\\S"), "Isolated")),
    "removed_inverted": steps(split(REGEX("[\\s\\S]"), "Removed", True)),
    "look_around": steps(split(REGEX("(?<=\\p{Lu})[\\S]+(?!\\p{P})"), "Isolated"), split(REGEX("\\P{L}++"), "Isolated")),
}
# Spellings of one another's parts, some `normalized`, which the reference looks for last.
EXTRA = [{"content": "<think>", "special": False, "normalized": True}, {"content": "<<think", "special": False, "normalized": True},
         {"content": "</think>", "special": False, "normalized": False}, {"content": "think>", "special": True, "normalized": False}]


def random_text(rng):
    text = ""
    for _ in range(rng.randint(1, 30)):
        first, last = rng.choice(RANGES)
        text += rng.choice(BITS) if rng.random() < 0.4 else "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 3)))
    return text


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def demo_file(folder, pre_tokenizer):
    tree = json.load(open(f"{folder}/tokenizer.json"))
    first = max(t["id"] for t in tree["added_tokens"]) + 1
    for i, extra in enumerate(EXTRA):
        tree["added_tokens"].append({"id": first + i, "single_word": False, "lstrip": False, "rstrip": False, **extra})
    tree["pre_tokenizer"] = pre_tokenizer or tree["pre_tokenizer"]
    return tree


def demo(folder, out):
    rng = random.Random(7)
    texts = FIXED + [random_text(rng) for _ in range(60)]
    cases = []
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        tree = demo_file(folder, pre_tokenizer)
        tokenizer = Tokenizer.from_str(json.dumps(tree))
        cases.append({"name": name, "pre_tokenizer": tree["pre_tokenizer"], "ids": [ids_of(tokenizer, t) for t in texts]})
    tree = {"added_tokens": demo_file(folder, None)["added_tokens"], "texts": texts, "cases": cases}
    json.dump(tree, open(out, "w"), separators=(",", ":"))


def block_text(first):
    return "".join(f"A{chr(c)}a {chr(c)}{chr(c)}1{chr(c)}'s{chr(c)}\n{chr(c)}/"
                   for c in range(first, first + 256) if not 0xD800 <= c < 0xE000)


def fnv1a(ids):
    state = 0xCBF29CE484222325
    for token in ids:
        state = (state ^ token) * 0x100000001B3 % 2**64
    return state


def unicode_blocks(folder, out):
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    with open(out, "w") as file:
        for first in range(0, 0x110000, 256):
            file.write(f"{first:x} {fnv1a(ids_of(tokenizer, block_text(first))):016x}\n")


if sys.argv[1] == "--random":
    source = Tokenizer.from_file(f"{sys.argv[3]}/tokenizer.json")
    draw = random.Random(11)
    with open(sys.argv[4], "w") as lines:
        for _ in range(int(sys.argv[2])):
            sample = random_text(draw)
            lines.write(json.dumps({"text": sample, "ids": ids_of(source, sample)}) + "\n")
else:
    unicode_blocks(sys.argv[1], f"{sys.argv[3]}/gpt-oss-tokenizer/unicode.txt")
    demo(sys.argv[2], f"{sys.argv[3]}/demo-tokenizer/encodings.json")
