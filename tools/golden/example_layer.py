#!/usr/bin/env python3
"""What examples/moe_layer prints, in numpy and double: the sum of squares of the layer's output."""
import numpy as np

TOKENS, EXPERTS, TOP_K, HIDDEN, INTERMEDIATE = 6, 8, 2, 64, 96
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def draws(count, state=[1]):
    values = []
    for _ in range(count):
        state[0] = (state[0] * 1664525 + 1013904223) % 2**32
        values.append(state[0] >> 16)
    return np.array(values)


def matrix(rows, cols):
    """[experts, rows, cols] of FP4 values, every scale 2^(122 - 127)."""
    packed = draws(EXPERTS * rows * cols // 2) % 256
    codes = np.stack([packed % 16, packed // 16], axis=-1).reshape(EXPERTS, rows, cols)
    return E2M1[codes] * 2.0**-5


def floats(*shape):
    return (draws(np.prod(shape)) % 2048 / 1024 - 1).reshape(shape)


gate_up = matrix(2 * INTERMEDIATE, HIDDEN)
down = matrix(HIDDEN, INTERMEDIATE)
x = floats(TOKENS, HIDDEN)
logits = floats(TOKENS, EXPERTS)
out = np.zeros((TOKENS, HIDDEN))
for t in range(TOKENS):
    chosen = np.argsort(-logits[t], kind="stable")[:TOP_K]
    weights = np.exp(logits[t][chosen] - logits[t][chosen].max())
    for e, weight in zip(chosen, weights / weights.sum()):
        u = gate_up[e] @ x[t]
        gate, up = np.minimum(u[0::2], 7), np.clip(u[1::2], -7, 7)
        out[t] += weight * (down[e] @ ((up + 1) * gate / (1 + np.exp(-1.702 * gate))))
print(f"sum of squares of the output: {(out**2).sum():.6g}")
