#!/usr/bin/env python3
"""What NVFP4 experts do to logits: gpt-oss and the quantiser by numpy, independent of the C++ code.

Usage: nvfp4_golden.py TINY OUT     TINY: tests/golden/tiny; OUT: tests/golden/nvfp4.safetensors

The experts of `tiny` are moved off the FP4 grid: the seven low mantissa bits of element i of each expert tensor, in the
transposed bf16 form [expert, in, out], are xored with the upper bits of 2654435761 i mod 2^32. OUT holds the logits of
that model (`bf16.*`) and of the same with its experts in NVFP4 (`nvfp4.*`: least-error scales, a power of two for each
expert), both in float64 but for the rotary angle, which is rounded to float32 as in every implementation. The forward
pass is first compared with the logits of transformers for `tiny` itself. No routing decision is closer than 5e-5.
"""
import json
import struct
import sys

import numpy as np
from quantize_golden import E2M1, LEAST_ERROR, LINEAR, NVFP4, POWER_OF_TWO, Quantised, global_scale

NUM_IDS = 200
POSITIONS = [0, 1, 2, 31, 63, 100, 126, 127, 128, 129, 130, 150, 170, 190, 198, 199]
TYPES = {"F32": "<f4", "BF16": "<u2", "U8": "u1", "I32": "<i4"}


def read(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            array = np.frombuffer(data[8 + length + begin : 8 + length + end], TYPES[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = widen(array) if entry["dtype"] == "BF16" else array
    return tensors


def write(path, tensors):
    header, offset = {}, 0
    for name, array in tensors.items():
        dtype = "F32" if array.dtype == np.float32 else "I32"
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(array.tobytes() for array in tensors.values()))


def widen(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def decoded(blocks, scales):
    """[expert, out, in / 32, 16] and [expert, out, in / 32] -> float32 [expert, out, in]."""
    codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*scales.shape, 32)
    values = np.where(codes & 8, -1.0, 1.0) * E2M1[codes & 7] * np.exp2(scales.astype(np.float64) - 127)[..., None]
    return values.reshape(*scales.shape[:2], -1).astype(np.float32)


def off_grid(weights):
    stored = np.ascontiguousarray(weights.transpose(0, 2, 1)).view(np.uint32) >> 16
    flips = (np.arange(stored.size, dtype=np.uint32) * np.uint32(2654435761)) >> 25
    return widen((stored ^ flips.reshape(stored.shape)).astype(np.uint16)).transpose(0, 2, 1)


def in_nvfp4(weights):
    scaled = [Quantised(x, NVFP4, LEAST_ERROR, LINEAR, global_scale(POWER_OF_TWO, x), (1, 1)) for x in weights]
    return np.stack([quantised.out for quantised in scaled])


class Model:
    def __init__(self, config, tensors, experts):
        self.c, self.w, self.experts, self.gap = config, {k: v.astype(np.float64) for k, v in tensors.items()}, experts, np.inf

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, name, x):
        return self.w[name + ".weight"] * x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"])

    def rotated(self, x):
        """x [tokens, heads, dim]; yarn, halves paired."""
        s, half = self.c["rope_scaling"], x.shape[-1] // 2
        theta, base = self.c["rope_theta"], s["original_max_position_embeddings"]
        plain = theta ** (-np.arange(half) / half)
        low, high = (half * np.log(base / (beta * 2 * np.pi)) / np.log(theta) for beta in (s["beta_fast"], s["beta_slow"]))
        ramp = np.clip((np.arange(half) - low) / (high - low), 0, 1)
        inverse = (ramp * plain / s["factor"] + (1 - ramp) * plain).astype(np.float32)
        angle = (np.arange(len(x), dtype=np.float32)[:, None] * inverse).astype(np.float64)[:, None]
        c = 0.1 * np.log(s["factor"]) + 1
        a, b = x[..., :half], x[..., half:]
        return c * np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def attention(self, p, x, is_window):
        n, d = len(x), self.c["head_dim"]
        q, k, v = (self.linear(p + name, x).reshape(n, -1, d) for name in ("q_proj", "k_proj", "v_proj"))
        group = q.shape[1] // k.shape[1]
        q, k, v = self.rotated(q), np.repeat(self.rotated(k), group, 1), np.repeat(v, group, 1)
        distance = np.arange(n)[:, None] - np.arange(n)
        hidden = (distance < 0) | (is_window & (distance >= self.c["sliding_window"]))
        scores = np.where(hidden, -np.inf, np.einsum("qhd,khd->hqk", q, k) / np.sqrt(d))
        sinks = self.w[p + "sinks"][:, None, None]
        top = np.maximum(scores.max(-1, keepdims=True), sinks)
        weights = np.exp(scores - top)
        weights /= weights.sum(-1, keepdims=True) + np.exp(sinks - top)
        return self.linear(p + "o_proj", np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1))

    def moe(self, layer, p, x):
        logits = self.linear(p + "router", x)
        k = self.c["num_experts_per_tok"]
        order = np.argsort(-logits, axis=-1, kind="stable")
        ranked = np.take_along_axis(logits, order, -1)
        self.gap = min(self.gap, (ranked[:, k - 1] - ranked[:, k]).min())
        gates = np.exp(ranked[:, :k] - ranked[:, :1])
        gates /= gates.sum(-1, keepdims=True)
        up_weights, down_weights = self.experts[layer]
        out = np.zeros_like(x)
        for token, slot in np.ndindex(len(x), k):
            e = order[token, slot]
            u = up_weights[e] @ x[token] + self.w[p + "experts.gate_up_proj_bias"][e]
            gate, up = np.minimum(u[0::2], 7), np.clip(u[1::2], -7, 7)
            h = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
            out[token] += gates[token, slot] * (down_weights[e] @ h + self.w[p + "experts.down_proj_bias"][e])
        return out

    def logits(self, ids):
        x = self.w["model.embed_tokens.weight"][ids]
        for layer, kind in enumerate(self.c["layer_types"]):
            p = f"model.layers.{layer}."
            x = x + self.attention(p + "self_attn.", self.norm(p + "input_layernorm", x), kind == "sliding_attention")
            x = x + self.moe(layer, p + "mlp.", self.norm(p + "post_attention_layernorm", x))
        return self.norm("model.norm", x) @ self.w["lm_head.weight"].T


def rms(x):
    return np.sqrt(np.mean(np.square(x, dtype=np.float64)))


def main(tiny, out):
    config, tensors = json.load(open(tiny + "/config.json")), read(tiny + "/model.safetensors")
    stems = [[f"model.layers.{i}.mlp.experts.{name}" for name in ("gate_up_proj", "down_proj")] for i in range(config["num_hidden_layers"])]
    grid = [[decoded(tensors[s + "_blocks"], tensors[s + "_scales"]) for s in pair] for pair in stems]
    rest = {k: v for k, v in tensors.items() if not k.endswith(("_blocks", "_scales"))}

    golden = read(tiny + "/golden.safetensors")
    error = np.abs(Model(config, rest, grid).logits(golden["window.ids"])[golden["window.positions"]] - golden["window.logits"]).max()
    print(f"tiny beside transformers: largest difference {error:.3g}")
    assert error < 1e-3

    experts = {"bf16": [[off_grid(w) for w in pair] for pair in grid]}
    experts["nvfp4"] = [[in_nvfp4(w) for w in pair] for pair in experts["bf16"]]
    for pair, stem, was in zip(experts["nvfp4"], stems, experts["bf16"]):
        print(stem[0], *(f"{rms(b - a) / rms(a):.4f}" for a, b in zip(was, pair)))
    rng = np.random.default_rng(6)
    while True:
        ids = rng.integers(3, config["vocab_size"], NUM_IDS).astype(np.int32)
        models = {name: Model(config, rest, which) for name, which in experts.items()}
        logits = {name: model.logits(ids)[POSITIONS] for name, model in models.items()}
        if min(model.gap for model in models.values()) > 5e-5:
            break
    change = logits["nvfp4"] - logits["bf16"]
    print(f"NVFP4 beside bf16: rms {rms(change) / rms(logits['bf16']):.4f} of that of the logits, at most {np.abs(change).max():.3f}")
    arrays = {}
    for name, values in logits.items():
        arrays |= {f"{name}.ids": ids, f"{name}.positions": np.array(POSITIONS, np.int32), f"{name}.logits": values.astype(np.float32)}
    write(out, arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
