"""The interactive chat on a pseudo-terminal."""
import json
import os
import signal
import termios
import unittest

from program import Case, Terminal, environment

PROMPT = r"> (\x1b\[[0-9;?]*[A-Za-z])*$"  # of the chat; libedit may add control sequences


class Chat(Case):
    def chat(self, *flags):
        terminal = Terminal("run", "--temp", "0", *flags)
        self.addCleanup(terminal.__exit__)
        terminal.expect(r"/help lists commands, Ctrl-D leaves\.")
        terminal.expect_editing(PROMPT)
        return terminal

    def test_talks_remembers_and_leaves(self):
        chat = self.chat()
        chat.type("What is 2 plus 3?\n")
        self.assertIn("5", chat.expect_editing(PROMPT).split("?", 1)[1])
        chat.type("What is 1 plus 1?\n")
        chat.expect_editing(PROMPT)
        saved = self.folder / "talk.json"
        chat.type(f"/save {saved}\n")
        chat.expect(r"Saved 4 messages")
        chat.expect_editing(PROMPT)
        chat.type("/reset\n")
        chat.expect(r"forgotten")
        chat.expect_editing(PROMPT)
        chat.type(f"/save {saved}2\n")
        chat.expect(r"Saved 0 messages")
        chat.expect_editing(PROMPT)
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)
        roles = [m["role"] for m in json.loads(saved.read_text())["messages"]]
        self.assertEqual(roles, ["user", "assistant"] * 2)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        chat = self.chat("--ignore-eos")
        chat.type("Tell me a story about a brave cat.\n")
        chat.expect(r"cat\.\r\n")
        chat.expect(r"\w+ \w+ \w+ ")  # words of the answer
        chat.type("\x03")
        chat.expect(r"\(stopped\)")
        chat.expect_editing(PROMPT)
        chat.type("/exit\n")
        self.assertEqual(chat.wait(), 0)

    def test_interrupt_at_the_prompt_drops_the_line(self):
        chat = self.chat()
        chat.type("never asked")
        chat.expect("never asked")
        chat.type("\x03")
        chat.expect_editing(PROMPT)
        chat.type(f"/save {self.folder}/talk.md\n")
        chat.expect("Saved 0 messages")

    def test_lines_are_edited_and_remembered(self):
        chat = self.chat("--history", str(self.folder / "lines"))
        chat.type("/effrot\x1b[D\x1b[D\x1b[D\x1b[D")  # left, four times
        chat.type("\x01\x0b/effort high\n")  # to the beginning, kill the line
        chat.expect(r"Reasoning effort: high")
        chat.expect_editing(PROMPT)
        chat.type("\x1b[A\n")  # up
        chat.expect(r"Reasoning effort: high")
        chat.expect_editing(PROMPT)
        chat.type("/système\n")
        chat.expect(r"Unknown command /système; did you mean /system\?")
        chat.expect_editing(PROMPT)
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)
        self.assertIn("effort", (self.folder / "lines").read_text())

    def test_works_without_a_locale(self):
        env = environment()
        for name in ("LC_ALL", "LANG", "LC_CTYPE"):
            env.pop(name, None)
        with Terminal("run", env=env) as chat:
            chat.expect_editing(PROMPT)
            chat.type("/猫\n")
            chat.expect(r"Unknown command /猫")

    def test_reasoning_is_dimmed(self):
        chat = self.chat("--show-reasoning")
        chat.type("What is 2 plus 3?\n")
        seen = chat.expect_editing(PROMPT)
        self.assertRegex(seen, r"(?s)\x1b\[2m.+\x1b\[0m\r\n\r\n.*5")

    def test_termination_restores_the_terminal(self):
        chat = self.chat()
        self.assertNotEqual(termios.tcgetattr(chat.master)[3], chat.settings[3])
        os.kill(chat.pid, signal.SIGTERM)
        self.assertEqual(chat.wait(), 143)
        self.assertEqual(termios.tcgetattr(chat.master)[3], chat.settings[3])


if __name__ == "__main__":
    unittest.main()
