"""Wrong usage, missing models, closed and full outputs, signals: exit codes and one line each."""
import os
import signal
import subprocess
import time
import unittest

from program import DEMO, NIBBLE, Case, environment, run


class Usage(Case):
    def test_wrong_lines(self):
        for arguments, message in [
            (["frob"], "unknown verb 'frob'"),
            (["rnu"], "did you mean 'run'?"),
            (["--frob"], "unknown flag"),
            (["run", "--tempratur", "1"], "did you mean '--temperature'?"),
            (["run", "-p"], "needs a value"),
            (["run", "a", "b"], "unexpected argument 'b'"),
            (["run", "-p", "x", "--top-p", "0"], "--top-p: want a number in (0, 1], found '0'"),
            (["run", "-p", ""], "found 0 bytes"),
            (["run"], "found 0 bytes"),
            (["score", "-p", ""], "found 0 bytes"),
            (["run", "--raw", "--ids", "99999999"], ""),
            (["make-model"], "--preset is required"),
        ]:
            with self.subTest(arguments):
                done = self.assert_fails(2, *arguments, message=message)
                self.assertEqual(done.stdout, b"")

    def test_without_a_verb_prints_help(self):
        done = self.assert_fails(2, message="want a verb")
        self.assertIn(b"Usage: nibble", done.stdout)

    def test_help_and_version(self):
        for arguments in (["--help"], ["run", "-h"], ["help", "score"], ["--version"]):
            done = run(*arguments, check=0)
            self.assertEqual(done.stderr, b"")
            self.assertTrue(done.stdout.startswith((b"nibble", b"answer", b"log-")), done.stdout)

    def test_missing_and_broken_models(self):
        (self.folder / "empty").mkdir()
        broken = self.folder / "broken"
        broken.mkdir()
        for file in DEMO.iterdir():
            (broken / file.name).write_bytes(file.read_bytes())
        with open(broken / "model.safetensors", "r+b") as file:
            file.truncate(1000)
        for model in ("no/such-model", self.folder / "empty", broken, DEMO / "config.json"):
            for verb in (["run", "-p", "x"], ["score", "-p", "x"], ["tokenize", "-p", "x"]):
                with self.subTest((model, verb)):
                    self.assert_fails(3, *verb, "-m", model)
        self.assert_fails(3, "inspect", broken, message="model.safetensors")
        self.assert_fails(3, "run", "Tell me a story.", message="-p")

    def test_a_demo_variable_that_names_nothing(self):
        self.assert_fails(3, "run", "-p", "x", env=environment(NIBBLE_DEMO="/nowhere"),
                          message="/nowhere")

    def test_environment(self):
        env = environment(NIBBLE_PROMPT="Hi", NIBBLE_MAX_TOKENS="3", NIBBLE_JSON="1")
        self.assertIn(b'"completion_tokens":3', run("run", env=env, check=0).stdout)
        self.assertIn(b'"completion_tokens":2', run("run", "-n", "2", env=env, check=0).stdout)
        self.assert_fails(2, "run", env=environment(NIBBLE_SEED="x"), message="NIBBLE_SEED: want")


class Outputs(Case):
    def test_a_reader_that_leaves_ends_quietly(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = run("run", "-p", "Tell me a story.", "--temp", "0", stdout=writer)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_reader_that_leaves_stops_the_work(self):
        line = f"'{NIBBLE}' run -p 'Tell me a story.' --temp 0 --ignore-eos | head -c 1"
        done = subprocess.run(["bash", "-c", line], env=environment(), capture_output=True,
                              timeout=120)
        self.assertEqual((len(done.stdout), done.stderr), (1, b""))

    def test_a_closed_or_full_output_is_a_failure(self):
        with open("/dev/full", "wb") as full:
            self.assert_fails(1, "run", "--raw", "-p", "Hi", "-n", "4", stdout=full,
                              message="standard output: No space left on device")
        done = subprocess.run(["bash", "-c", f"'{NIBBLE}' run --raw -p Hi -n 4 >&-"], env=environment(),
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"nibble run: standard output: Bad file descriptor\n")

    def test_unwritable_logits(self):
        self.assert_fails(1, "score", "--ids", "1,2", "--logits", "/nowhere/x", message="/nowhere/x")


class Signals(Case):
    def interrupted(self, number):
        process = subprocess.Popen(
            [NIBBLE, "run", "-p", "Tell me a story.", "--ignore-eos"], env=environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(1)
        process.send_signal(number)
        rest = process.communicate(timeout=60)
        return process.returncode, rest[1]

    def test_interrupt_and_terminate(self):
        self.assertEqual(self.interrupted(signal.SIGINT), (130, b"nibble: interrupted\n"))
        self.assertEqual(self.interrupted(signal.SIGTERM), (143, b"nibble: terminated\n"))


if __name__ == "__main__":
    unittest.main()
