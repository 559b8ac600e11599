"""`nibble run` on the demo checkpoint: one shot, piped, raw, ids, JSON."""
import json
import re
import unittest

from program import DEMO, GOLDEN, SOURCE, Case, environment, run, run_json

GREEDY = json.loads((GOLDEN / "demo/greedy.json").read_text())
STORY = GREEDY[0]  # "Tell me a story about a brave cat.", date 2026-11-30
DATE = "2026-11-30"


class Run(Case):
    def test_answers_with_the_demo_by_default(self):
        done = run("run", "-p", "Tell me a story about a brave cat.", "--temp", "0",
                   "--current-date", DATE, "--activation", "f32", check=0)
        final = STORY["continuation"].split("<|channel|>final<|message|>")[1]
        self.assertEqual(done.stdout.decode().strip(), final.split("<|return|>")[0].strip())
        self.assertRegex(done.stderr.decode(), r"^prompt \d+ tokens, .* tok/s; answer \d+ tokens,")

    def test_readme_shows_what_it_prints(self):
        readme = (SOURCE / "README.md").read_text()
        prompt, answer, counts = re.search(
            r'```\n\$ scripts/run\.sh "(.+?)"\n(.+?)\n(prompt \d+ tokens, [^\n]+)\n```', readme,
            re.DOTALL).groups()
        flags = re.search(r"this one is `(--seed \d+ --current-date [\d-]+)`", readme)[1].split()
        # In float32 by the reference, where every processor draws the same.
        done = run("run", "-p", prompt, *flags, "--activation", "f32", "--reference-kernels",
                   check=0)
        self.assertEqual(done.stdout.decode().strip(), answer)
        for count in re.findall(r"\w+ \d+ tokens", counts):
            self.assertIn(count, done.stderr.decode())

    def test_greedy_ids_equal_the_reference(self):
        for case in GREEDY:
            ids = ",".join(map(str, case["prompt_ids"]))
            want = case["continuation_ids"]
            with self.subTest(case["prompt"][-60:]):
                done = run("run", DEMO, "--raw", "--ids", ids, "--temp", "0", "-n", len(want),
                           "--activation", "f32", check=0)
                got = [int(i) for i in done.stdout.decode().strip().split(",")]
                self.assertEqual(got, want)

    def test_json_agrees_with_the_text(self):
        flags = ["--temp", "0", "--current-date", DATE]
        text = run("run", *flags, "-p", "What is 2 plus 3?", check=0).stdout.decode()
        done = run("run", *flags, "-p", "What is 2 plus 3?", "--json", check=0)
        answer = json.loads(done.stdout)
        self.assertEqual(done.stderr, b"")
        self.assertEqual(answer["content"], text.rstrip("\n"))
        self.assertNotEqual(answer["reasoning"], "")
        self.assertEqual(answer["finish_reason"], "stop")
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens"], len(answer["ids"]))
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + len(answer["ids"]))
        self.assertGreater(answer["timings"]["prefill_ms"], 0)

    def test_piped_text_is_the_prompt(self):
        flags = ["--temp", "0", "--current-date", DATE, "-q"]
        given = run("run", *flags, "-p", "Hello", check=0)
        piped = run("run", *flags, stdin=b"Hello\n", check=0)
        file = self.folder / "prompt.txt"
        file.write_text("Hello")
        read = run("run", *flags, "-f", file, check=0)
        self.assertEqual(given.stdout, piped.stdout)
        self.assertEqual(given.stdout, read.stdout)
        self.assertEqual(given.stderr, b"")

    def test_shown_reasoning_is_marked(self):
        done = run("run", "-p", "What is 2 plus 3?", "--temp", "0", "--show-reasoning", check=0)
        self.assertRegex(done.stdout.decode(), r"(?s)^\[reasoning\]\n.+\n\[answer\]\n.+\n$")

    def test_raw_continues(self):
        done = run("run", "--raw", "-p", "Once upon a time", "-n", "12", "--temp", "0", check=0)
        self.assertGreater(len(done.stdout.strip()), 10)
        self.assertIn(b"cut off at the token limit", done.stderr)

    def test_seeds_repeat_and_differ(self):
        def story(seed):
            return run_json("run", "-p", "Tell me a story.", "-n", "40", "--seed", seed, "--json")
        first = story(7)
        self.assertEqual(first["seed"], 7)
        self.assertEqual(first["ids"], story(7)["ids"])
        self.assertNotEqual(first["ids"], story(8)["ids"])
        fresh = run_json("run", "-p", "Tell me a story.", "-n", "40", "--json")
        self.assertEqual(fresh["ids"], story(fresh["seed"])["ids"])

    def test_stop_strings_end_the_answer(self):
        flags = ["-p", "Tell me a story about a brave cat.", "--temp", "0", "--json"]
        whole = run_json("run", *flags)["content"]
        stop = whole[20:24]
        cut = run_json("run", *flags, "--stop", stop)
        self.assertEqual(cut["content"], whole[:whole.index(stop)])
        self.assertEqual((cut["finish_reason"], cut["stop_string"]), ("stop", stop))

    def test_bias_forbids_and_forces_tokens(self):
        flags = ["--raw", "--ids", "1,2,3", "-n", "5", "--temp", "0"]
        forced = run("run", *flags, "--logit-bias", "100=100", check=0).stdout
        self.assertEqual(forced, b"100,100,100,100,100\n")

    def test_ids_need_no_tokenizer(self):
        for name in ("tiny", "odd", "tiny-bf16", "tiny-original"):
            done = run("run", GOLDEN / name, "--raw", "--ids", "1,2,3", "-n", "4", "--temp", "0",
                       check=0)
            self.assertRegex(done.stdout.decode(), r"^\d+(,\d+){0,3}\n$")
        self.assert_fails(3, "run", GOLDEN / "tiny", "-p", "text", message="tokenizer")

    def test_threads_and_reference_kernels_change_nothing_greedy(self):
        flags = ["--raw", "--ids", "1,2,3", "-n", "6", "--temp", "0", "--activation", "f32"]
        want = run("run", *flags, check=0).stdout
        self.assertEqual(run("run", *flags, "-t", "1", check=0).stdout, want)
        self.assertEqual(run("run", *flags, "--reference-kernels", check=0).stdout, want)

    def test_finds_models_in_the_hugging_face_cache(self):
        snapshots = self.folder / "hub/models--me--demo/snapshots"
        snapshots.mkdir(parents=True)
        (snapshots / "abc").symlink_to(DEMO)
        env = environment(HF_HOME=str(self.folder))
        for name in ("me/demo", "demo"):
            done = run("run", name, "-p", "Hi", "-n", "2", "--json", env=env, check=0)
            self.assertIn(b"models--me--demo", done.stdout)

    def test_a_prompt_beyond_the_context_is_refused_with_numbers(self):
        ids = ",".join(["5"] * 200)
        done = run("run", "--raw", "--ids", ids, "-c", "100")
        self.assertIn(done.returncode, (2, 4))
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertIn(b"100", done.stderr)


if __name__ == "__main__":
    unittest.main()
