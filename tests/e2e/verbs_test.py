"""score, tokenize, inspect and make-model against golden values and each other."""
import json
import math
import random
import re
import unittest

from program import DEMO, GOLDEN, Case, read_safetensors, run, run_json

# What docs/numerics.md allows between float32 logits of two implementations.
LOGIT_BOUND = 1e-3


class Score(Case):
    def test_logits_and_logprobs_agree_with_the_reference(self):
        golden = read_safetensors(GOLDEN / "demo/golden.safetensors")
        for n in (0, 1, 8):
            ids = golden[f"{n}.ids"][1]
            out = self.folder / "logits.safetensors"
            score = run_json("score", DEMO, "--ids", ",".join(map(str, ids)), "--json",
                             "--activation", "f32", "--logits", out)
            self.assertEqual(score["ids"], list(ids))
            self.assertIsNone(score["logprobs"][0])
            want = golden[f"{n}.logprob_of_next"][1]
            # A log-probability moves by at most twice as much as the logits.
            for a, b in zip(score["logprobs"][1:], want, strict=True):
                self.assertAlmostEqual(a, b, delta=2 * LOGIT_BOUND)
            self.assertAlmostEqual(math.log(score["perplexity"]), -sum(want) / len(want),
                                   delta=2 * LOGIT_BOUND)
            self.compare_logits(read_safetensors(out)["logits"], golden, n)

    def compare_logits(self, written, golden, n):
        (rows, vocab), values = written
        self.assertEqual((rows, vocab), (len(golden[f"{n}.ids"][1]), golden[f"{n}.logits"][0][1]))
        for row, position in enumerate(golden[f"{n}.positions"][1]):
            want = golden[f"{n}.logits"][1][row * vocab:(row + 1) * vocab]
            got = values[position * vocab:(position + 1) * vocab]
            self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), LOGIT_BOUND)

    def test_top_is_sorted_and_holds_the_best(self):
        score = run_json("score", "-p", "Once upon a time there was a cat.", "--top", 5, "--json")
        self.assertIsNone(score["top"][0])
        for logprob, top in zip(score["logprobs"][1:], score["top"][1:]):
            values = [entry["logprob"] for entry in top]
            self.assertEqual(len(values), 5)
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertGreaterEqual(values[0], logprob)

    def test_text_file_and_pipe_agree(self):
        text = "Once upon a time"
        file = self.folder / "text"
        file.write_text(text)
        given = run("score", "-p", text, check=0).stdout
        self.assertEqual(run("score", "-f", file, check=0).stdout, given)
        self.assertEqual(run("score", stdin=text.encode(), check=0).stdout, given)
        self.assertRegex(given.decode(), r"\n\d+ tokens, perplexity \d+\.\d+\n$")

    def test_golden_models_need_no_tokenizer(self):
        for name in ("tiny", "odd", "tiny-bf16", "tiny-original"):
            score = run_json("score", GOLDEN / name, "--ids", "1,2,3", "--json")
            self.assertEqual(len(score["logprobs"]), 3)


class Tokenize(Case):
    TEXT = "Once upon a time, naïve 猫 said:\n\t\"100%\" 👩‍👩‍👧 <|end|>\r\n"

    def test_round_trip_through_pipes(self):
        ids = run("tokenize", stdin=self.TEXT.encode(), check=0).stdout
        self.assertEqual(run("tokenize", "--decode", stdin=ids, check=0).stdout, self.TEXT.encode())
        given = run("tokenize", "--ids", ids.decode().strip(), check=0).stdout
        self.assertEqual(given, self.TEXT.encode())

    def test_ids_equal_the_reference(self):
        case = json.loads((GOLDEN / "demo/greedy.json").read_text())[0]
        tokens = run_json("tokenize", "--special", "-p", case["prompt"], "--json")
        self.assertEqual(tokens["ids"], case["prompt_ids"])
        self.assertEqual(tokens["count"], len(case["prompt_ids"]))
        self.assertEqual("".join(tokens["tokens"]), case["prompt"])

    def test_control_tokens_in_text_stay_text(self):
        plain = run_json("tokenize", "-p", "<|end|>", "--json")["ids"]
        special = run_json("tokenize", "--special", "-p", "<|end|>", "--json")["ids"]
        self.assertEqual(len(special), 1)
        self.assertGreater(len(plain), 1)


class Inspect(Case):
    def test_reports_the_demo(self):
        text = run("inspect", check=0).stdout.decode()
        self.assertIn("no problems", text)
        self.assertIn("22.6 M", text)
        report = run_json("inspect", DEMO, "--json")
        self.assertEqual(report["problems"], [])
        self.assertGreater(report["parameters"], report["active_parameters"])
        self.assertEqual(len(report["tensors"]),
                         len(run("inspect", "--tensors", check=0).stdout.decode()
                             .split("bytes")[-1].split("\n\n")[0].strip().split("\n")) - 1)

    def test_lists_every_problem(self):
        for file in DEMO.iterdir():
            (self.folder / file.name).write_bytes(file.read_bytes())
        data = (DEMO / "model.safetensors").read_bytes()
        names = (b"model.layers.3.post_attention_layernorm.weight",
                 b"model.layers.5.self_attn.q_proj.bias")
        for name in names:
            data = data.replace(name, name[:-1] + b"x")
        (self.folder / "model.safetensors").write_bytes(data)
        done = self.assert_fails(3, "inspect", self.folder)
        for name in names:
            self.assertIn(name, done.stdout)
        self.assert_fails(3, "run", self.folder, "-p", "Hi")
        broken = run("inspect", self.folder, "--json")
        self.assertEqual(broken.returncode, 3)
        self.assertGreaterEqual(len(json.loads(broken.stdout)["problems"]), 2)


class DamagedCheckpoint(Case):
    """Each kind of fault once; every fault that we could think of is in corruption_test.cpp."""

    def damages(self):
        data = (DEMO / "model.safetensors").read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header = data[8:end]
        (shape,) = re.match(rb'.*?"shape":\[(\d)', header).groups()
        for name, old, new in (
                ("a shape", b'"shape":[' + shape, b'"shape":[' + (b"2" if shape == b"1" else b"1")),
                ("a dtype", b'"BF16"', b'"F32" '),
                ("a name", b".weight", b".weighs"),
                ("an offset", b'"data_offsets":[0,', b'"data_offsets":[1,')):
            self.assertIn(old, header)
            yield name, data[:8] + header.replace(old, new, 1) + data[end:]
        yield "a byte less", data[:-1]
        yield "random bytes", data[:8] + random.Random(1).randbytes(len(header)) + data[end:]

    def test_exits_with_3_and_one_line_that_names_the_file_or_the_tensor(self):
        for file in DEMO.iterdir():
            (self.folder / file.name).write_bytes(file.read_bytes())
        run("score", self.folder, "--ids", "1,2,3", check=0)
        lines = set()
        for name, data in self.damages():
            (self.folder / "model.safetensors").write_bytes(data)
            done = self.assert_fails(3, "run", self.folder, "--raw", "--ids", "1,2,3",
                                     message="model.safetensors")
            self.assertEqual(done.stdout, b"", name)
            lines.add(done.stderr)
        self.assertEqual(len(lines), 6, "each fault has its own words")


class Bench(Case):
    def test_reports_the_demo_in_llama_benchs_fields(self):
        rows = run_json("bench", "-p", "8", "-n", "4", "-r", "1", "-o", "json")
        self.assertEqual([(row["n_prompt"], row["n_gen"]) for row in rows], [(8, 0), (0, 4)])
        for row in rows:
            self.assertEqual((row["model"], row["streams"], row["backends"]), ("demo", 1, "CPU"))
            self.assertEqual(len(row["samples_ns"]), 1)
            self.assertEqual(row["avg_ns"], row["samples_ns"][0])
            tokens = row["n_prompt"] + row["n_gen"]
            self.assertAlmostEqual(row["avg_ts"], tokens * 1e9 / row["avg_ns"],
                                   delta=1e-6 * row["avg_ts"])
            self.assertAlmostEqual(row["gb_s"], row["avg_ts"] * row["bytes_per_token"] / 1e9,
                                   delta=1e-5 * row["gb_s"])
            self.assertAlmostEqual(row["bandwidth_fraction"], row["gb_s"] / row["read_gb_s"],
                                   delta=1e-9)
            self.assertGreater(row["model_n_params"], 0)

    def test_compares_with_what_it_wrote(self):
        flags = ["bench", "-p", "8", "-n", "0", "-r", "1", "-t", "1", "-o", "json"]
        rows = run_json(*flags)
        rows[0]["avg_ts"] *= 1e6
        file = self.folder / "baseline.json"
        file.write_text(json.dumps(rows))
        self.assert_fails(8, *flags, "--baseline", file, message="slower than")
        rows[0]["avg_ts"] = 1e-6
        file.write_text(json.dumps(rows))
        run(*flags, "--baseline", file, check=0)


class Nvfp4(Case):
    def test_the_demo_as_nvfp4_runs_and_scores_as_before(self):
        nvfp4 = self.folder / "nvfp4"
        run("quantize", DEMO, nvfp4, "--format", "nvfp4", check=0)
        self.assertIn("nvfp4", run("inspect", nvfp4, check=0).stdout.decode())
        run("verify", nvfp4, "--tokens", "8", check=0)
        flags = ["-p", "Once upon a time there was a cat.", "--activation", "f32"]
        self.assertEqual(run("score", nvfp4, *flags, check=0).stdout,
                         run("score", DEMO, *flags, check=0).stdout)
        flags = ["-p", "Hello", "-n", "12", "--temp", "0", "--activation", "f32"]
        self.assertEqual(run("run", nvfp4, *flags, check=0).stdout,
                         run("run", DEMO, *flags, check=0).stdout)


class MakeModel(Case):
    def test_a_made_model_runs(self):
        made = self.folder / "made"
        done = run("make-model", "--preset", "tiny", "--seed", "3", made, check=0)
        self.assertEqual(done.stderr, b"")
        self.assertIn("wrote", done.stdout.decode())
        run("inspect", made, check=0)
        run("run", made, "--raw", "--ids", "1,2,3", "-n", "4", check=0)
        again = self.folder / "again"
        run("make-model", "--preset", "tiny", "--seed", "3", again, check=0)
        for file in made.iterdir():
            self.assertEqual(file.read_bytes(), (again / file.name).read_bytes(), file.name)
        self.assertNotEqual(run("make-model", "--preset", "tiny", made).returncode, 0)

    def test_shards_hold_the_same_model(self):
        one, many = self.folder / "one", self.folder / "many"
        run("make-model", "--preset", "tiny", one, check=0)
        run("make-model", "--preset", "tiny", "--max-shard-size", "200k", many, check=0)
        self.assertGreater(len(list(many.glob("*.safetensors"))), 1)
        flags = ["--raw", "--ids", "1,2,3", "-n", "8", "--temp", "0"]
        self.assertEqual(run("run", one, *flags, check=0).stdout,
                         run("run", many, *flags, check=0).stdout)

    def test_dry_runs_of_the_published_shapes(self):
        for preset, total in (("gpt-oss-20b", 13.76e9), ("gpt-oss-120b", 65.25e9)):
            text = run("make-model", "--preset", preset, "--dry-run", check=0).stdout.decode()
            self.assertIn("model.layers.0.mlp.experts.gate_up_proj_blocks", text)
            found = int(text.strip().split("\n")[-1].split(" tensors, ")[1].split(" bytes")[0])
            self.assertAlmostEqual(found / total, 1, delta=0.01)

    def test_refusals(self):
        self.assert_fails(2, "make-model", "--preset", "huge", self.folder / "x", message="'huge'")
        for file in DEMO.glob("tokenizer*"):
            self.assertTrue(file.exists())
        (self.folder / "full").mkdir()
        (self.folder / "full/file").write_text("mine")
        done = run("make-model", "--preset", "tiny", self.folder / "full")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((self.folder / "full/file").read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
