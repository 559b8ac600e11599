"""Expected results of the kernel families in float64, computed with numpy.

Usage: kernel_golden.py OUT_DIR    writes gemm, moe, norm, rope, top_k and sample .json
Inputs are short binary fractions, so that they are exact in float32 and, where they are meant for it, in bf16.
Each file is one object of flat lists; shapes are those of the headers in src/kernels.
"""
import json
import math
import pathlib
import sys

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def grid(rng, shape, scale=64, spread=128):
    """Multiples of 1 / scale below spread / scale: 8 significant bits."""
    return rng.integers(-spread, spread + 1, shape) / scale


def to_bf16(x):
    """Nearest bf16, ties to even, of finite values."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def gemm(rng):
    rows, k, parts = 3, 13, (4, 1, 2)
    x, w, bias = grid(rng, (rows, k)), grid(rng, (sum(parts), k)), grid(rng, sum(parts))
    return dict(sizes=[rows, k, *parts], x=x, w=w, bias=bias, out=x @ w.T + bias)


def norm(rng):
    x, weight, eps = grid(rng, (4, 24)), grid(rng, 24), 1e-5
    x[2] = 0
    x[3] *= 2.0 ** -12  # eps counts
    out = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float64(np.float32(eps))) * weight
    return dict(sizes=list(x.shape), x=x, weight=weight, eps=eps, out=out, out_bf16=to_bf16(out))


def inv_freq(dim, theta, factor, fast, slow, length, truncate):
    """YaRN as its authors write it: the ramp goes from extrapolation to interpolation."""
    pairs = np.arange(0, dim, 2) / dim
    extrapolated = 1.0 / theta ** pairs
    if factor <= 1:
        return extrapolated
    find = lambda turns: dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))
    low, high = find(fast), find(slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    mask = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return extrapolated / factor * (1 - mask) + extrapolated * mask


def rope(rng):
    heads, kv_heads, dim, page = 4, 2, 8, 4
    positions, slots = [0, 1, 4095, 131071], [5, -1, 2, 8]
    freq = inv_freq(dim, 150000.0, 32.0, 32.0, 1.0, 4096.0, False).astype(np.float32)
    concentration = np.float32(0.1 * math.log(32.0) + 1.0)
    qkv = grid(rng, (len(positions), (heads + 2 * kv_heads) * dim))
    q = qkv[:, :heads * dim].reshape(-1, heads, dim)
    k = qkv[:, heads * dim:(heads + kv_heads) * dim].reshape(-1, kv_heads, dim)
    v = qkv[:, (heads + kv_heads) * dim:].reshape(-1, kv_heads, dim)
    angle = (np.array(positions, np.float32)[:, None] * freq).astype(np.float64)  # the product in float32
    cosine, sine = float(concentration) * np.cos(angle)[:, None], float(concentration) * np.sin(angle)[:, None]

    def turn(t):
        a, b = t[..., :dim // 2], t[..., dim // 2:]
        return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)

    caches = np.zeros((2, 3, kv_heads, page, dim))
    for row, slot in enumerate(slots):
        if slot >= 0:
            caches[0, slot // page, :, slot % page] = turn(k)[row]
            caches[1, slot // page, :, slot % page] = v[row]
    published = [inv_freq(64, 150000.0, 32.0, 32.0, 1.0, 4096.0, t) for t in (False, True)]
    return dict(sizes=[heads, kv_heads, dim, page], positions=positions, slots=slots, inv_freq=freq,
                concentration=concentration, qkv=qkv, q=turn(q), k_cache=caches[0], v_cache=caches[1],
                yarn=published[0], yarn_truncated=published[1], plain=inv_freq(16, 10000.0, 1.0, 32, 1, 4096, False))


def top_k(rng):
    rows, experts, k = 12, 9, 4
    logits = grid(rng, (rows, experts))
    logits[3] = 1.5                      # all equal
    logits[4] = rng.integers(0, 2, 9)    # many ties
    logits[5] = -40
    logits[6, :] = 1e4 + np.arange(9)    # exp overflows without the maximum taken off
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :k]
    chosen = np.take_along_axis(logits, ids, -1)
    weights = np.exp(chosen - chosen[:, :1])
    return dict(sizes=[rows, experts, k], logits=logits, ids=ids, weights=weights / weights.sum(-1, keepdims=True))


def swiglu(gate, up, alpha, limit):
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return (up + 1) * gate / (1 + np.exp(-alpha * gate))


def mxfp4(blocks, scales):
    values = E2M1[np.stack([blocks & 15, blocks >> 4], -1)].reshape(*blocks.shape[:-1], 32)
    return (values * 2.0 ** (scales[..., None].astype(np.float64) - 127)).reshape(*blocks.shape[:-2], -1)


def moe(rng):
    tokens, hidden, inter, experts, k = 5, 64, 32, 3, 2
    alpha, limit = float(np.float32(1.702)), 7.0
    x = grid(rng, (tokens, hidden), 32)
    blocks = [rng.integers(0, 256, (experts, r, c // 32, 16), dtype=np.uint8) for r, c in ((2 * inter, hidden), (hidden, inter))]
    scales = [rng.integers(121, 125, b.shape[:-1], dtype=np.uint8) for b in blocks]
    bias = [grid(rng, b.shape[:2]) for b in blocks]
    ids = np.array([[0, 2], [2, 0], [2, 0], [0, 2], [2, 0]])  # expert 1 is empty
    weights = rng.integers(1, 64, ids.shape) / 64
    start = grid(rng, (tokens, hidden))
    w = [mxfp4(b, s) for b, s in zip(blocks, scales)]

    def result(round_h):
        out = start.copy()
        for t in range(tokens):
            for j in range(k):
                e = ids[t, j]
                u = w[0][e] @ x[t] + bias[0][e]
                h = round_h(swiglu(u[0::2], u[1::2], alpha, limit))
                out[t] += weights[t, j] * (w[1][e] @ h + bias[1][e])
        return out

    edge = np.array([-20, -7.09375, -7, 0, 7, 7.09375, 20])
    gate, up = (m.reshape(-1) for m in np.meshgrid(edge, edge, indexing="ij"))
    return dict(sizes=[tokens, hidden, inter, experts, k], x=x, gate_up_blocks=blocks[0], gate_up_scales=scales[0],
                gate_up_bias=bias[0], down_blocks=blocks[1], down_scales=scales[1], down_bias=bias[1], ids=ids,
                weights=weights, start=start, out=result(lambda h: h), out_bf16=result(to_bf16),
                clamp_gate=gate, clamp_up=up, clamp_h=swiglu(gate, up, alpha, limit))


def philox(key, counter):
    c = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def distribution(logits, c):
    """(weights by id, how close a filter's border is)"""
    l = logits.copy()
    for i, n in zip(c["seen_ids"], c["seen_counts"]):
        l[i] = l[i] / c["repetition"] if l[i] > 0 else l[i] * c["repetition"]
        l[i] -= (c["presence"] if n > 0 else 0) + c["frequency"] * n
    for i, b in zip(c["bias_ids"], c["bias_values"]):
        l[i] += b
    p = np.exp((l - l.max()) / c["temperature"])
    margin = 1.0
    order = np.argsort(-p, kind="stable")
    if 0 < c["top_k"] < len(p):
        margin = min(margin, p[order[c["top_k"] - 1]] / p[order[c["top_k"]]] - 1)
        p[order[c["top_k"]:]] = 0
    if c["top_p"] < 1:
        sums = np.cumsum(p[order]) / p.sum()
        keep = int(np.searchsorted(sums, c["top_p"])) + 1
        margin = min(margin, abs(sums - c["top_p"]).min(), abs(np.diff(-p[order[:keep + 1]], append=0)[:-1]).min(initial=1))
        p[order[keep:]] = 0
    if c["min_p"] > 0:
        margin = min(margin, abs(p / p.max() - c["min_p"]).min())
        p[p < c["min_p"] * p.max()] = 0
    return p, margin


def sample(rng):
    f = lambda v: float(np.float32(v))
    cases = []
    while len(cases) < 48:
        vocab = int(rng.choice([2, 7, 40, 300]))
        logits = grid(rng, vocab, 32, 192)
        seen = rng.permutation(vocab)[:min(vocab, 5)]
        biased = rng.permutation(vocab)[:2]
        kind = len(cases) % 6
        c = dict(logits=logits, temperature=f(rng.choice([0.25, 0.7, 1.0, 1.5])),
                 top_k=int(rng.integers(1, 20)) if kind in (1, 5) else 0,
                 top_p=f(rng.choice([0.1, 0.5, 0.9, 0.99])) if kind in (2, 5) else 1.0,
                 min_p=f(rng.choice([0.02, 0.1, 0.5])) if kind in (3, 5) else 0.0,
                 seen_ids=seen if kind >= 4 else [], seen_counts=rng.integers(0, 4, len(seen)) if kind >= 4 else [],
                 bias_ids=biased if kind >= 4 else [], bias_values=grid(rng, 2) if kind >= 4 else [],
                 repetition=1.25 if kind >= 4 else 1.0, presence=0.5 if kind >= 4 else 0.0, frequency=0.25 if kind >= 4 else 0.0,
                 seed=int(rng.integers(0, 2 ** 52)))
        p, margin = distribution(logits, c)
        if margin < 1e-4:
            continue
        draws = []
        sums = np.cumsum(p)
        for counter in range(64):
            u = (philox(c["seed"], counter)[0] >> 8) / 2 ** 24
            if abs(sums / sums[-1] - u).min() > 1e-4:  # not decided by rounding
                draws.append((counter, int(np.argmax(sums > u * sums[-1]))))
        cases.append(c | dict(counters=[d[0] for d in draws], ids=[d[1] for d in draws], kept=np.flatnonzero(p)))
    tail = grid(rng, 500)
    return dict(cases=cases, lse_logits=tail, lse=float(np.log(np.exp(tail).sum())))


def plain(value):
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [plain(each) for each in value]
    if isinstance(value, (int, float)):
        return value
    return [int(v) if float(v).is_integer() and v != 0 else float(v) for v in np.asarray(value, np.float64).reshape(-1)]


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for seed, make in enumerate((gemm, moe, norm, rope, top_k, sample)):
        data = plain(make(np.random.default_rng(seed)))
        (out / f"{make.__name__}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")


main()
