"""The `openai` package as the client: what it sends is understood, what it gets is what it wants."""
from openai_package import use_package

use_package()

import json
import unittest

import openai

from program import DEMO, Case, run, run_json
from server import Server

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
FIXED = {"temperature": 0, "extra_body": {"chat_template_kwargs": {"current_date": "2026-01-01"}}}


class Client(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-model-name", "demo", "--max-model-len", 512, "--api-key",
                            "secret")
        cls.addClassCleanup(cls.server.__exit__)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret",
                                   max_retries=0)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo"])
        self.assertEqual(self.client.models.list().data[0].owned_by, "nibble")

    def test_chat_and_stream(self):
        ask = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}],
               **FIXED}
        whole = self.client.chat.completions.create(**ask, logprobs=True, top_logprobs=2)
        message = whole.choices[0].message
        self.assertEqual(message.role, "assistant")
        self.assertTrue(message.content)
        self.assertEqual("".join(t.token for t in whole.choices[0].logprobs.content),
                         message.content)
        self.assertEqual(len(whole.choices[0].logprobs.content[0].top_logprobs), 2)
        self.assertEqual(whole.usage.total_tokens,
                         whole.usage.prompt_tokens + whole.usage.completion_tokens)
        self.assertIsNotNone(whole.usage.completion_tokens_details.reasoning_tokens)
        self.assertIsNotNone(whole.usage.prompt_tokens_details.cached_tokens)
        chunks = list(self.client.chat.completions.create(
            **ask, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)

    def test_tools_with_the_stream_helper(self):
        with self.client.chat.completions.stream(model="demo", messages=ASK, tools=[TOOL],
                                                 **FIXED) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        call = message.tool_calls[0]
        self.assertEqual(call.function.name, "get_weather")
        self.assertIn("city", json.loads(call.function.arguments))
        answer = self.client.chat.completions.create(
            model="demo", tools=[TOOL], messages=ASK + [
                message.model_dump(exclude_none=True, exclude={"parsed"}),
                {"role": "tool", "tool_call_id": call.id, "content": '{"sky": "sunny"}'}], **FIXED)
        self.assertTrue(answer.choices[0].message.content)

    def test_completions(self):
        reply = self.client.completions.create(model="demo", prompt=["Once", "Two"], n=2,
                                               max_tokens=5, logprobs=1, seed=3)
        self.assertEqual([c.index for c in reply.choices], [0, 1, 2, 3])
        self.assertEqual(len(reply.choices[0].logprobs.tokens),
                         len(reply.choices[0].logprobs.token_logprobs))

    def test_replies_are_compressed_on_the_wire(self):
        raw = self.client.completions.with_raw_response.create(model="demo", prompt=["Once"] * 64,
                                                               max_tokens=4)
        self.assertEqual(raw.headers["content-encoding"], "gzip")
        self.assertEqual(len(raw.parse().choices), 64)

    def test_echo_with_logprobs_scores_a_text(self):
        text = "Once upon a time there was a caf\u00e9."
        want = run_json("score", DEMO, "-p", text, "--top", 2, "--json")
        for answer_tokens in (0, 3):
            reply = self.client.completions.create(model="demo", prompt=text, echo=True, logprobs=2,
                                                   max_tokens=answer_tokens, temperature=0)
            choice, number = reply.choices[0], len(want["ids"])
            self.assertTrue(choice.text.startswith(text))
            self.assertEqual(reply.usage.completion_tokens, answer_tokens)
            self.assertEqual(len(choice.logprobs.tokens), number + answer_tokens)
            self.assertIsNone(choice.logprobs.token_logprobs[0])
            self.assertIsNone(choice.logprobs.top_logprobs[0])
            for found, wanted in zip(choice.logprobs.token_logprobs[1:number],
                                     want["logprobs"][1:]):
                self.assertAlmostEqual(found, wanted, places=5)
            for found, wanted in zip(choice.logprobs.top_logprobs[1:number], want["top"][1:]):
                self.assertAlmostEqual(max(found.values()), wanted[0]["logprob"], places=5)
            self.assertEqual(choice.logprobs.text_offset[:2],
                             [0, len(choice.logprobs.tokens[0])])

    def test_best_of_gives_the_likeliest_of_the_same_answers(self):
        ask = {"model": "demo", "prompt": ["Once upon", "The dog"], "max_tokens": 8, "seed": 5,
               "temperature": 1}
        every = self.client.completions.create(**ask, n=6, logprobs=0).choices
        best = self.client.completions.create(**ask, n=2, best_of=6)
        for prompt in range(2):
            ranked = sorted(every[prompt * 6:][:6],
                            key=lambda choice: -sum(choice.logprobs.token_logprobs))
            self.assertEqual([choice.text for choice in best.choices[prompt * 2:][:2]],
                             [choice.text for choice in ranked[:2]])
            self.assertNotEqual(ranked[0].text, ranked[1].text, "a seed that tells them apart")
        with self.assertRaises(openai.BadRequestError) as wrong:
            self.client.completions.create(**ask, n=2, best_of=6, stream=True)
        self.assertEqual(wrong.exception.param, "best_of")

    def test_batch_bodies_are_what_the_clients_types_say(self):
        bodies = {"chat": ("/v1/chat/completions", openai.types.chat.ChatCompletion,
                           {"messages": ASK, "tools": [TOOL]}),
                  "text": ("/v1/completions", openai.types.Completion,
                           {"prompt": "Once", "logprobs": 1, "best_of": 2}),
                  "responses": ("/v1/responses", openai.types.responses.Response, {"input": "2+2?"})}
        source, target = self.folder / "in.jsonl", self.folder / "out.jsonl"
        source.write_text("".join(
            json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body}) + "\n"
            for name, (url, _, body) in bodies.items()))
        run("batch", source, target, "--max-model-len", 512, check=0)
        records = [json.loads(line) for line in target.read_text().splitlines()]
        self.assertEqual({record["custom_id"] for record in records}, set(bodies))
        for record in records:
            bodies[record["custom_id"]][1].model_validate(record["response"]["body"], strict=True)

    def test_responses(self):
        first = self.client.responses.create(model="demo", input="2+2?", temperature=0)
        self.assertEqual(first.status, "completed")
        self.assertTrue(first.output_text)
        self.assertEqual(first.usage.total_tokens,
                         first.usage.input_tokens + first.usage.output_tokens)
        second = self.client.responses.create(model="demo", input="And 3+3?", temperature=0,
                                              previous_response_id=first.id)
        alone = self.client.responses.create(model="demo", input="And 3+3?", temperature=0)
        self.assertGreater(second.usage.input_tokens,
                           alone.usage.input_tokens + len(first.output_text.split()))
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, first.output_text)
        with self.client.responses.stream(model="demo", input="2+2?", temperature=0) as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(final.output_text, first.output_text)
        self.assertEqual(types[0], "response.created")
        self.assertEqual(types[-1], "response.completed")
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)

    def test_errors(self):
        ask = {"model": "demo", "messages": ASK}
        with self.assertRaises(openai.BadRequestError) as wrong:
            self.client.chat.completions.create(**ask, temperature=-1)
        self.assertEqual(wrong.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as unknown:
            self.client.chat.completions.create(**{**ask, "model": "other"})
        self.assertEqual(unknown.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model="demo", input="x")
        with self.assertRaises(openai.BadRequestError) as form:
            self.client.chat.completions.create(**ask, response_format={
                "type": "json_schema", "json_schema": {"name": "n", "schema": {
                    "type": "string", "pattern": "(?<!q)z"}}})
        self.assertEqual(form.exception.param, "response_format")

    def test_answers_of_a_schema_and_forced_calls(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["a", "b"],
                  "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}
        for stream in (False, True):
            reply = self.client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": "Tell me a story."}],
                response_format={"type": "json_schema",
                                 "json_schema": {"name": "n", "schema": schema, "strict": True}},
                stream=stream, **FIXED)
            text = ("".join(c.choices[0].delta.content or "" for c in reply) if stream
                    else reply.choices[0].message.content)
            value = json.loads(text)
            self.assertEqual(list(value), ["a", "b"])
            self.assertIn(value["b"], "xy")
        forced = self.client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "2+2?"}], tools=[TOOL],
            tool_choice={"type": "function", "function": {"name": "get_weather"}}, **FIXED)
        self.assertEqual(forced.choices[0].finish_reason, "tool_calls")
        self.assertIsInstance(json.loads(
            forced.choices[0].message.tool_calls[0].function.arguments), dict)
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.server.url + "/v1", api_key="x", max_retries=0).models.list()


if __name__ == "__main__":
    unittest.main()
