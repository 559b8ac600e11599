#!/usr/bin/env python3
"""Routing and ragged descriptions by numpy, independent of the C++ code.

Writes tests/golden/route_cases.bin: for each case a float64 (weights projected on fixed
coefficients), then for each case a uint32 (hash of ids, fault count and ragged description).
Inputs are not stored: both sides draw them from the counter generator `mix`.

    route_golden.py OUT [--cases 10240]     route_golden.py --show CASE
"""
import argparse
import json

import numpy as np

EXPERTS = [1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 127, 128, 255, 256, 257, 384, 1023, 1024, 1025]
TOP_K = [1, 2, 4, 6, 8, 10**6]  # the last: all experts, when there are at most 33
TOKENS = [0, 1, 2, 3, 4, 5, 8, 13, 40]
BLOCKS = [16, 32, 64, 128]
CONFIG, LOGITS, BIAS, IDS, COEFFICIENTS, REMAP = range(6)


def mix(stream, case, index):
    with np.errstate(over="ignore"):
        x = np.uint64((stream << 56) | (case << 32)) + np.asarray(index, dtype=np.uint64)
        z = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Case:
    def __init__(self, number):
        self.number = number
        d = [int(v) for v in mix(CONFIG, number, np.arange(32))]
        E = self.E = EXPERTS[d[0] % len(EXPERTS)]
        k = TOP_K[d[1] % len(TOP_K)]
        if k > E:
            k = E if E <= 33 else 4
        self.k = k
        self.n = TOKENS[d[2] % len(TOKENS)]
        self.valid = d[4] % (self.n + 1) if d[3] % 4 == 0 else self.n
        self.score = ["logits", "softmax", "sigmoid", "sqrt_softplus"][d[5] % 4]
        self.renormalise = bool(d[6] % 2)
        self.epsilon = np.float32(1e-20) if d[7] % 2 else np.float32(0)
        self.scaling = np.float32([1.0, 1.5, 2.5][d[8] % 3])
        groups = [1, 1, 2, 4, 8][d[9] % 5]
        self.groups = groups if E % groups == 0 else 1
        self.kept = 1 + d[10] % self.groups
        while E // self.groups * self.kept < k:
            self.kept += 1
        self.group_best = bool(d[11] % 2)
        self.by_expert = bool(d[12] % 2)
        self.bf16 = d[13] % 4 == 0
        self.bias_kind = d[14] % 4
        self.bias_dtype = ["f32", "bf16", "f16"][d[15] % 3]  # every value is exact in all three
        self.logit_kind = d[16] % 11
        self.given = d[17] % 8 == 0
        self.place(d)
        self.fill()

    def place(self, d):
        E = self.E
        self.remap, self.physical, self.begin, self.end = None, E, 0, E
        self.compact = self.placed = False
        kind = d[18] % 8
        if kind in (4, 7):
            self.physical = self.end = E + 3
            e = np.arange(E)
            self.remap = (e + d[19] % 97) % self.physical
            self.remap[mix(REMAP, self.number, e) % np.uint64(16) == 0] = -1
            self.placed = True
        if kind in (5, 7):
            self.begin = d[20] % self.physical
            self.end = self.begin + 1 + d[21] % (self.physical - self.begin)
            self.compact = bool(d[22] % 2)
            self.placed = self.placed or self.end - self.begin < self.physical
        if kind == 6:
            ep = [2, 4, 8][d[23] % 3]
            ep = ep if E % ep == 0 else 1
            rank = d[24] % ep
            self.begin, self.end = rank * (E // ep), (rank + 1) * (E // ep)
            self.compact, self.placed = True, ep > 1

    def fill(self):
        n, E = self.n, self.E
        h = mix(LOGITS, self.number, np.arange(n * E)).reshape(n, E)
        unit = ((h >> np.uint64(40)).astype(np.int64) - 2**23).astype(np.float32)  # 24 bits, exact
        x = unit * np.float32(2.0**-20)
        inf = np.float32(np.inf)
        kind = self.logit_kind
        if kind == 1:
            x = ((h % np.uint64(5)).astype(np.float32)) - np.float32(2)
        elif kind == 2:
            x = np.full((n, E), np.float32(-40))
        elif kind == 3:
            x = -np.abs(unit) * np.float32(2.0**-13)
        elif kind == 4:
            x = np.where(h % np.uint64(2) == 0, -inf, x)
        elif kind == 5:
            x[::3] = -inf
        elif kind == 6 and n > 1:
            x[1, self.number % E] = np.nan
        elif kind == 7:
            x[:, self.number % E] += np.float32(20)
        elif kind == 8:
            x = np.float32(1) + (h % np.uint64(3)).astype(np.float32) * np.float32(2.0**-23)
        elif kind == 9 and n > 0:
            x[0, self.number % E] = inf
        elif kind == 10:
            x = unit * np.float32(2.0**104)
        self.x = x.astype(np.float32)
        b = mix(BIAS, self.number, np.arange(E))
        self.bias = None
        if self.bias_kind == 1:
            self.bias = ((b % np.uint64(257)).astype(np.float32) - 128) / np.float32(256)
        elif self.bias_kind == 2:
            self.bias = np.float32(9) + (b % np.uint64(5)).astype(np.float32) * np.float32(0.25)
        elif self.bias_kind == 3:
            self.bias = (b % np.uint64(9)).astype(np.float32) - np.float32(4)
        self.ids = (mix(IDS, self.number, np.arange(n * self.k)) % np.uint64(E)).astype(np.int64)
        self.ids = self.ids.reshape(n, self.k)


def scores(case, x):
    """float64 scores of all experts, x a valid row."""
    x = x.astype(np.float64)
    if case.score == "softmax":
        p = np.exp(x - x.max())
        return p / p.sum()
    if case.score == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if case.score == "sqrt_softplus":
        return np.sqrt(np.logaddexp(0.0, x))
    return x


def choose(case, x, s):
    E, k = case.E, case.k
    adds = case.kept < case.groups and not case.group_best
    key = x if case.bias is None and not adds else s.astype(np.float32)
    if case.score == "logits":
        key = x
    if case.bias is not None:
        key = key + case.bias
    allowed = np.ones(E, bool)
    if case.kept < case.groups:
        g = np.sort(key.reshape(case.groups, -1), axis=1)[:, ::-1]
        total = g[:, 0]
        if adds and g.shape[1] > 1:
            total = np.where(np.isneginf(g[:, 1]), g[:, 1], g[:, 0] + g[:, 1])
        best = np.lexsort((np.arange(case.groups), -total))[: case.kept]
        allowed = np.isin(np.arange(E) // (E // case.groups), best)
    order = np.lexsort((np.arange(E), -key, ~allowed))[:k]
    return np.sort(order) if case.by_expert else order


def to_bf16(w):
    bits = w.astype(np.float32).view(np.uint32)
    bits = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def weigh(case, x, s, ids):
    if case.score == "logits":
        p = np.exp(s[ids] - s[ids].max())
        w = p / p.sum() * np.float64(case.scaling)
    else:
        w = s[ids]
        if case.renormalise:
            w = w / (w.sum() + np.float64(case.epsilon))
        w = w * np.float64(case.scaling)
    w = w.astype(np.float32)
    return to_bf16(w) if case.bf16 else w


def route(case):
    padding = np.full(case.k, -1) if case.placed else np.arange(case.k)
    ids = np.tile(padding, (case.n, 1))
    weights = np.zeros((case.n, case.k), np.float32)
    faults = 0
    for t in range(case.valid):
        x = case.x[t]
        if np.isnan(x).any() or np.isposinf(x).any():
            faults += 1
            continue
        s = scores(case, x)
        chosen = case.ids[t] if case.given else choose(case, x, s)
        w = weigh(case, x, s, chosen)
        if not np.isfinite(w).all():
            faults += 1
            continue
        if case.placed:
            p = chosen if case.remap is None else case.remap[chosen]
            here = (p >= case.begin) & (p < case.end)
            p, w = np.where(here, p - case.begin, -1), np.where(here, w, np.float32(0))
            if case.compact:
                order = np.argsort(~here, kind="stable")
                p, w = p[order], w[order]
            chosen = p
        ids[t], weights[t] = chosen, w
    return ids, weights, faults


def ragged(ids, weights, valid, E):
    n, k = ids.shape
    flat = ids.copy()
    flat[valid:] = -1
    flat = flat.ravel()
    live = np.flatnonzero(flat >= 0)
    order = live[np.argsort(flat[live], kind="stable")]
    gather = np.full(n * k, -1)
    gather[: len(order)] = order
    scatter = np.full(n * k, -1)
    scatter[order] = np.arange(len(order))
    gates = np.zeros(n * k, np.float32)
    gates[: len(order)] = weights.ravel()[order]
    sizes = np.bincount(flat[live], minlength=E)
    offs = np.concatenate([[0], np.cumsum(sizes)])
    rows = n * k
    places = rows if rows <= E else E - 1 - ((E - rows - 1) // 16)
    block_offs, schedules = [], []
    for block in BLOCKS:
        count = -(-sizes // block)
        block_offs.append(np.concatenate([[0], np.cumsum(count)]))
        slices = np.repeat(np.arange(E), count)
        numbers = np.arange(len(slices)) - np.repeat(block_offs[-1][:-1], count)
        schedule = np.full(places, -1)
        schedule[: len(slices)] = numbers * 65536 + slices
        schedules.append(schedule)
    return sizes, offs, gather, scatter, gates, np.array(block_offs), np.array(schedules)


def hashed(arrays):
    total = 0
    for tag, array in enumerate(arrays):
        values = np.asarray(array).ravel().astype(np.int64).astype(np.uint32).astype(np.uint64)
        index = np.arange(len(values), dtype=np.uint64)
        with np.errstate(over="ignore"):
            terms = mix(64 + tag, 0, (values << np.uint64(24)) ^ index)
            total += int(terms.sum(dtype=np.uint64))
    return (total >> 32) & 0xFFFFFFFF


def answer(case):
    ids, weights, faults = route(case)
    parts = ragged(ids, weights, case.valid, case.end - case.begin)
    sizes, offs, gather, scatter, gates, block_offs, schedules = parts
    ints = [ids, [faults], sizes, offs, gather, scatter, block_offs, schedules]
    values = np.concatenate([weights.ravel(), gates]).astype(np.float64)
    c = (mix(COEFFICIENTS, 0, np.arange(len(values))) >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return ints, hashed(ints), float((c * values).sum()), weights


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?")
    parser.add_argument("--cases", type=int, default=10240)
    parser.add_argument("--show", type=int)
    options = parser.parse_args()
    np.seterr(all="ignore")
    if options.show is not None:
        case = Case(options.show)
        ints, digest, projection, weights = answer(case)
        skip = {"x", "ids", "bias", "remap"}
        print({k: v for k, v in vars(case).items() if k not in skip})
        print(json.dumps({"ids": np.asarray(ints[0]).tolist(), "faults": ints[1], "hash": digest,
                          "sizes": ints[2].tolist(), "gather": ints[4].tolist(),
                          "weights": weights.tolist(), "projection": projection}))
        return
    answers = [answer(Case(i)) for i in range(options.cases)]
    with open(options.out, "wb") as file:
        file.write(np.array([a[2] for a in answers], "<f8").tobytes())
        file.write(np.array([a[1] for a in answers], "<u4").tobytes())


main()
