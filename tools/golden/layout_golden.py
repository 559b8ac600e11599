#!/usr/bin/env python3
"""Value, scale and row layouts by numpy reshapes and transposes, independent of the C++ index formulas.

Usage: layout_golden.py OUT      writes tests/golden/quantize/layouts.bin

Little-endian records: 4 i32 (kind: 0 values, 1 scales, 2 gate/up rows; layout; rows; columns) and a u64 hash of
the stored bytes: sum of (byte + 1) * mix(index) mod 2^64. Codes, scales and rows are drawn from the same mix, so
no input is stored.
"""
import itertools
import struct
import sys

import numpy as np

ROW_MAJOR, HOPPER, HOPPER_PAIRS, BLACKWELL = range(4)
COLS = (32, 64, 96, 2880, 2944)
ROWS = (1, 17, 96, 160, 352)


def mix(index):
    with np.errstate(over="ignore"):
        z = (np.asarray(index, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def digest(data):
    data = np.ascontiguousarray(data).ravel().view(np.uint8)
    with np.errstate(over="ignore"):
        return int(((data.astype(np.uint64) + np.uint64(1)) * mix(np.arange(data.size))).sum(dtype=np.uint64))


def padded(array, rows, cols):
    R, C = -(-array.shape[0] // rows) * rows, -(-array.shape[1] // cols) * cols
    full = np.zeros((R, C), array.dtype)
    full[: array.shape[0], : array.shape[1]] = array
    return full


def repack(word):
    """Strings of bit numbers, most significant code bit first, for each byte of the word."""
    places = [(15, 8, 7, 6), (12, 5, 4, 3), (9, 2, 1, 0), (14, 11, 10, 13)]
    out = np.zeros_like(word)
    for byte, odd, bit in itertools.product(range(4), range(2), range(4)):
        value = word >> np.uint32(8 * byte + 4 * odd + 3 - bit) & np.uint32(1)
        out |= value << np.uint32(places[byte][bit] + 16 * odd)
    return out


def values(layout, codes):
    tile = {ROW_MAJOR: (1, 2), HOPPER: (64, 128), HOPPER_PAIRS: (16, 64), BLACKWELL: (1, 256)}[layout]
    full = padded(codes, *tile)
    packed = (full[:, 0::2] | full[:, 1::2] << 4).astype(np.uint8)
    N, B = packed.shape
    if layout == HOPPER:  # (R, w0, t0, s0, C, kt, w1, t1) -> (R, t0, C, s0, t1, kt, w1, w0)
        moved = packed.reshape(N // 16, 2, 4, 2, B // 32, 4, 2, 4).transpose(0, 2, 4, 3, 7, 5, 6, 1)
        return repack(np.ascontiguousarray(moved).reshape(-1).view("<u4"))
    if layout == HOPPER_PAIRS:
        low, high = full[:, 0::2], full[:, 1::2]
        # Rows (unit, half of the pair, r); bytes (unit, L/16, L/8 % 2, L/4 % 2, L % 4).
        shape = (N // 16, 2, 8, B // 32, 2, 2, 2, 4)
        low, high = low.reshape(shape), high.reshape(shape)
        pair = np.stack([low[:, 0] | low[:, 1] << 4, high[:, 0] | high[:, 1] << 4], axis=-1)
        # (unit, r, column unit, L/16, row half, L/4 % 2, L % 4, even/odd) -> rows (unit, row half, r)
        return pair.transpose(0, 4, 1, 2, 3, 6, 5, 7).astype(np.uint8)
    return packed


def scales(layout, bytes_):
    tile = {0: (1, 1), 1: (128, 4), 2: (8, 4), 3: (256, 2)}[layout]
    full = padded(bytes_, *tile)
    N, K = full.shape
    if layout == 1:
        return full.reshape(N // 128, 4, 32, K // 4, 4).transpose(0, 3, 2, 1, 4)
    if layout == 2:
        return full.reshape(N // 8, 8, K // 4, 4).transpose(0, 2, 1, 3)
    if layout == 3:
        return full.reshape(N // 256, 2, 8, 2, 8, K // 2, 2).transpose(0, 2, 5, 1, 4, 6, 3)
    return full


def gate_up(order, rows, half):
    """`rows` [2 * n, width], interleaved as published; each part padded to `half` rows."""
    gate, up = (padded(rows[part::2], half, 1) for part in (0, 1))
    if order == 0:
        return np.stack([gate, up], 1)
    if order == 1:
        return np.stack([up, gate], 1)
    return np.concatenate([gate, up] if order == 2 else [up, gate])


def records():
    for layout, rows, cols in itertools.product(range(4), ROWS, COLS):
        codes = (mix(np.arange(rows * cols)) & np.uint64(15)).astype(np.uint8).reshape(rows, cols)
        yield 0, layout, rows, cols, digest(values(layout, codes))
        blocks = cols // 32
        drawn = (mix(np.arange(rows * blocks)) & np.uint64(255)).astype(np.uint8).reshape(rows, blocks)
        yield 1, layout, rows, blocks, digest(scales(layout, drawn))
        if cols <= 96:
            drawn = (mix(np.arange(2 * rows * cols)) & np.uint64(255)).astype(np.uint8).reshape(2 * rows, cols)
            yield 2, layout, rows, cols, digest(gate_up(layout, drawn, -(-rows // 64) * 64))


with open(sys.argv[1], "wb") as out:
    for *numbers, value in records():
        out.write(struct.pack("<4iQ", *numbers, value))
