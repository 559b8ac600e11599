#!/usr/bin/env python3
"""Block quantisation by numpy, from the words of the format specifications, independent of the C++ code.

Usage: quantize_golden.py OUT      writes tests/golden/quantize/cases.bin

Little-endian. u32 number of inputs; each: i32 dtype (0 f32, 1 bf16, 2 f16), experts, rows, cols, then the
elements. u32 number of cases; each: 10 i32 (input, format, rounding, layout, column-major, global scale,
per expert, row multiple, column multiple, number of global scales), the global scales, values, scales,
6 i64 (the report), then u64 FNV-1a of the dequantised f32 matrix with every NaN as 0x7FC00000.
"""
import itertools
import struct
import sys

import numpy as np

MXFP4, NVFP4, MXFP8 = range(3)
UP, LEAST_ERROR, OCP_FLOOR, NEAREST_EVEN = range(4)
LINEAR, L128X4, L8X4, HOPPER = range(4)
GIVEN, AMAX, POWER_OF_TWO = range(3)
BLOCK = {MXFP4: 32, NVFP4: 16, MXFP8: 32}

E2M1 = np.array([(0.5 * (c & 1)) if c >> 1 == 0 else (1 + 0.5 * (c & 1)) * 2.0 ** ((c >> 1) - 1) for c in range(8)])
E4M3 = np.array([(c & 7) * 2.0**-9 if c >> 3 == 0 else (1 + (c & 7) / 8) * 2.0 ** ((c >> 3) - 7) for c in range(127)])


def nearest(table, magnitude):
    """Index of the nearest entry, ties to the even index, saturating. `magnitude` float64."""
    clipped = np.minimum(magnitude, table[-1])
    distance = np.abs(clipped[..., None] - table)
    best = distance.min(axis=-1, keepdims=True)
    index = np.arange(len(table))
    # Of the entries at the least distance (one, or two neighbours) the even index.
    return np.where(distance == best, index + len(table) * (index % 2), 10**6).argmin(axis=-1)


def table_of(fmt):
    return E4M3 if fmt == MXFP8 else E2M1


def encode(fmt, quotient):
    code = nearest(table_of(fmt), np.abs(quotient.astype(np.float64)))
    return (code | np.where(np.signbit(quotient), 0x80 if fmt == MXFP8 else 8, 0)).astype(np.uint8)


def decode(fmt, code):
    sign = 0x80 if fmt == MXFP8 else 8
    magnitude = table_of(fmt)[code & (sign - 1)]
    return np.where(code & sign, -magnitude, magnitude)


def log2_ceil(amax, largest):
    """Least k with largest * 2^k >= amax."""
    k = int(np.frexp(amax / largest)[1]) - 2
    while np.ldexp(largest, k) < amax:
        k += 1
    return k


def error_of(fmt, block, step):
    quotient = block / step if step != 0 else np.zeros_like(block)
    element = decode(fmt, encode(fmt, quotient))
    difference = block.astype(np.float64) - element * np.float64(step)
    return np.add.accumulate(difference * difference)[-1]


def mx_scale(fmt, rounding, block, amax):
    largest, exponent = (448.0, 8) if fmt == MXFP8 else (6.0, 2)
    if amax == 0:
        return 0
    if rounding == OCP_FLOOR:
        return max(0, int(np.frexp(np.float64(amax))[1]) - 1 - exponent + 127)
    byte = max(0, log2_ceil(np.float64(amax), largest) + 127)
    if rounding == LEAST_ERROR and byte > 0:
        steps = [np.float32(np.ldexp(1.0, b - 127)) for b in (byte, byte - 1)]
        byte -= int(error_of(fmt, block, steps[1]) < error_of(fmt, block, steps[0]))
    return byte


def nv_scale(rounding, block, amax, scale):
    ratio = np.float32(amax) / (np.float32(6) * scale)
    if rounding == UP:
        return int(np.searchsorted(E4M3, min(np.float64(ratio), 448.0)))
    onto_6 = int(nearest(E4M3, np.float64(ratio)))
    if rounding == NEAREST_EVEN:
        return onto_6
    onto_4 = int(nearest(E4M3, np.float64(np.float32(amax) / (np.float32(4) * scale))))
    steps = [np.float32(E4M3[c]) * scale for c in (onto_6, onto_4)]
    return onto_4 if error_of(NVFP4, block, steps[1]) < error_of(NVFP4, block, steps[0]) else onto_6


def step_of(fmt, byte, scale):
    if fmt == NVFP4:
        return np.float32(np.nan) if byte == 127 else np.float32(E4M3[byte]) * scale
    return np.float32(np.nan) if byte == 255 else np.float32(np.ldexp(1.0, byte - 127))


def lay_out(layout, scales):
    rows, blocks = scales.shape
    tile = {LINEAR: (1, 1), L128X4: (128, 4), L8X4: (8, 4), HOPPER: (256, 2)}[layout]
    R, K = -(-rows // tile[0]) * tile[0], -(-blocks // tile[1]) * tile[1]
    full = np.zeros((R, K), np.uint8)
    full[:rows, :blocks] = scales
    if layout == L128X4:
        return full.reshape(R // 128, 4, 32, K // 4, 4).transpose(0, 3, 2, 1, 4).ravel()
    if layout == L8X4:
        return full.reshape(R // 8, 8, K // 4, 4).transpose(0, 2, 1, 3).ravel()
    if layout == HOPPER:  # tile, half, warp, b, c, q, d -> tile, warp, q, half, c, d, b
        return full.reshape(R // 256, 2, 8, 2, 8, K // 2, 2).transpose(0, 2, 5, 1, 4, 6, 3).ravel()
    return full.ravel()


def global_scale(kind, x):
    finite = np.abs(x[np.isfinite(x)])
    amax = finite.max() if finite.size else np.float32(0)
    if amax == 0:
        return np.float32(1)
    if kind == POWER_OF_TWO:
        return np.float32(np.ldexp(1.0, max(-126, log2_ceil(np.float64(amax), 1024.0))))
    scale = np.float32(amax) / np.float32(2688)
    return scale if scale > 0 else np.float32(1)


class Quantised:
    def __init__(self, x, fmt, rounding, layout, scale, multiples):
        n = BLOCK[fmt]
        rows, cols = x.shape
        width = np.lcm(n, multiples[1])
        R, C = -(-rows // multiples[0]) * multiples[0], -(-cols // width) * width
        full = np.zeros((rows, C), np.float32)
        full[:, :cols] = x
        codes = np.zeros((R, C), np.uint8)
        scales = np.zeros((R, C // n), np.uint8)
        values = np.zeros((rows, C), np.float32)
        self.report = np.zeros(6, np.int64)  # nan, inf, first (unused here), poisoned, saturated, zeroed
        for r, b in itertools.product(range(rows), range(C // n)):
            at = np.s_[b * n : (b + 1) * n]
            block = full[r, at]
            if not np.isfinite(block).all():
                scales[r, b] = 127 if fmt == NVFP4 else 255
                self.report += [np.isnan(block).sum(), np.isinf(block).sum(), 0, 1, 0, 0]
                values[r, at] = np.nan
                continue
            amax = np.abs(block).max()
            byte = nv_scale(rounding, block, amax, scale) if fmt == NVFP4 else mx_scale(fmt, rounding, block, amax)
            step = step_of(fmt, byte, scale)
            quotient = block / step if step != 0 else np.copysign(np.float32(0), block)
            codes[r, at] = encode(fmt, quotient)
            scales[r, b] = byte
            element = decode(fmt, codes[r, at])
            values[r, at] = element.astype(np.float32) * step
            self.report[4] += (np.abs(quotient) > (464 if fmt == MXFP8 else 7)).sum()
            self.report[5] += bool(amax > 0 and not element.any())
        self.values = codes.ravel() if fmt == MXFP8 else (codes[:, 0::2] | codes[:, 1::2] << 4).ravel()
        self.scales = lay_out(layout, scales)
        self.out = values[:, :cols]


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (2**64 - 1)
    return value


def to_bf16(x):
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def adversarial(rng, experts, rows, cols):
    """Every row its own trouble; the troubles of one element among tame neighbours."""
    neighbours = lambda v: [np.nextafter(v, np.float32(0)), v, np.nextafter(v, np.float32(3.4e38))]
    f = np.float32
    pool = [f(0), f(-0.0), f(1e-45), f(1.1e-38), f(3e38), f(3.4028235e38)]
    for k in (-149, -140, -130, -128, -127, -126, -125, -124, -30, -9, -6, 0, 1, 2, 3, 8, 9, 30, 120, 126, 127):
        for m in (1.0, 1.25, 1.5, 1.75):
            v = np.ldexp(f(m), k)
            if np.isfinite(v):
                pool += neighbours(v)
    pool += [v for q in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 6.01, 7, 7.9, 448, 464, 480) for v in neighbours(f(q))]
    pool = np.array(pool, np.float32)
    x = np.zeros((experts, rows, cols), np.float32)
    for e, r in itertools.product(range(experts), range(rows)):
        kind = (e * rows + r) % 8
        if kind == 0:
            x[e, r] = rng.choice(pool, cols)
        elif kind == 1:  # one magnitude a row: exponents agree, boundaries meet
            peak = rng.choice(pool)
            x[e, r] = peak * rng.choice(np.array([0, 0.125, 0.25, 0.375, 0.5, 0.75, 1], np.float32), cols)
        elif kind == 2:
            x[e, r] = rng.choice(np.array([0, -0.0], np.float32), cols)
        elif kind == 3:  # NaN and Inf in few blocks
            x[e, r] = rng.standard_normal(cols)
            x[e, r, rng.integers(0, cols, 2)] = [np.nan, -np.inf]
        elif kind == 4:  # a grid times a power: comes back exactly
            x[e, r] = np.ldexp(rng.choice(np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32), cols), int(rng.integers(-20, 20)))
        elif kind == 5:  # the block maximum on 6 and its neighbours
            x[e, r] = rng.uniform(0, 5, cols)
            x[e, r, ::16] = rng.choice(np.array(neighbours(f(6)), np.float32), len(x[e, r, ::16]))
        elif kind == 6:
            x[e, r] = rng.standard_normal(cols) * 1e-39
        else:
            x[e, r] = rng.choice(np.array(neighbours(f(2.5)) + neighbours(f(3.5)) + neighbours(f(5)), np.float32), cols)
        x[e, r] *= rng.choice(np.array([1, -1], np.float32), cols)
    return x


def inputs(rng):
    random = (rng.standard_normal((2, 9, 100)) * np.exp2(rng.integers(-12, 12, (2, 9, 1)))).astype(np.float32)
    hard = adversarial(rng, 1, 32, 96)
    half = (rng.standard_normal((3, 5, 80)) * 3).astype(np.float32)
    half[1, 2, 40] = np.inf
    deep = np.concatenate([rng.standard_normal((1, 4, 64)), rng.standard_normal((1, 4, 64)) * 2e-5], 1).astype(np.float32)
    bf16 = to_bf16(half)
    return [(0, random, random), (0, hard, hard),
            (1, (bf16.astype(np.uint32) << 16).view(np.float32), bf16),
            (2, deep.astype(np.float16).astype(np.float32), deep.astype(np.float16).view(np.uint16))]


def cases():
    rounds = {MXFP4: (UP, LEAST_ERROR, OCP_FLOOR), NVFP4: (UP, LEAST_ERROR, NEAREST_EVEN), MXFP8: (UP, LEAST_ERROR, OCP_FLOOR)}
    for source, fmt in itertools.product(range(4), range(3)):
        for rounding in rounds[fmt]:
            yield source, fmt, rounding, LINEAR, 0, POWER_OF_TWO, 0, 1, 1
    for layout, fmt in itertools.product((L128X4, L8X4, HOPPER), range(3)):
        yield 2, fmt, UP, layout, layout == L8X4, POWER_OF_TWO, 0, 4, 64
    for kind, per_expert in itertools.product((GIVEN, AMAX, POWER_OF_TWO), (0, 1)):
        yield 0, NVFP4, LEAST_ERROR, L128X4, 1, kind, per_expert, 1, 1
    yield 1, NVFP4, NEAREST_EVEN, L8X4, 1, AMAX, 0, 8, 48
    yield 3, NVFP4, UP, LINEAR, 0, AMAX, 1, 1, 1


def run(case, x):
    _, fmt, rounding, layout, columns, kind, per_expert, *multiples = case
    experts = len(x)
    if fmt != NVFP4:
        scales = np.zeros(0, np.float32)
    elif kind == GIVEN:
        scales = np.array([0.013, 3.7][: experts if per_expert else 1], np.float32)
    else:
        scales = np.array([global_scale(kind, part) for part in (x if per_expert else [x])], np.float32)
    per = [Quantised(x[e], fmt, rounding, layout, scales[e if per_expert else 0] if len(scales) else None, multiples)
           for e in range(experts)]
    report = sum(q.report for q in per)
    order = [q.out.T if columns else q.out for q in per]
    stored = np.stack([m.T if columns else m for m in x])
    bad = np.flatnonzero(~np.isfinite(stored.ravel()))
    report[2] = bad[0] if bad.size else -1
    out = np.stack(order).astype(np.float32)
    bits = np.where(np.isnan(out), np.uint32(0x7FC00000), np.ascontiguousarray(out).view(np.uint32))
    body = struct.pack("<10i", *map(int, case), len(scales)) + scales.tobytes()
    body += b"".join(q.values.astype(np.uint8).tobytes() for q in per)
    body += b"".join(q.scales.tobytes() for q in per)
    return body + report.astype("<i8").tobytes() + struct.pack("<Q", fnv1a(bits.astype("<u4").tobytes()))


def main(path):
    np.seterr(all="ignore")
    sources = inputs(np.random.default_rng(20))
    listed = list(cases())
    with open(path, "wb") as out:
        out.write(struct.pack("<I", len(sources)))
        for dtype, x, stored in sources:
            out.write(struct.pack("<4i", dtype, *x.shape) + np.ascontiguousarray(stored).tobytes())
        out.write(struct.pack("<I", len(listed)))
        for case in listed:
            out.write(run(case, sources[case[0]][1]))


if __name__ == "__main__":
    main(sys.argv[1])
