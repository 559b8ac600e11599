"""Every reply and event against the types of the `openai` package, strictly: nothing of another type,
nothing unknown, nothing missing but what ABSENT names."""
from openai_package import use_package

use_package()

import importlib
import json
import pkgutil
import time
import typing
import unittest

import openai.types.responses
import pydantic
from openai.types import Completion, CompletionUsage, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response

from program import Case
from server import Server, chat_body, joined_chat

TOOL = {"name": "get_weather", "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                       "required": ["city"], "additionalProperties": False}}
ASK = "What is the weather in Paris?"
STORY = "Tell me a story."

# Ours, and those of other servers that clients read.
ADDED = {
    "chat_completion_message.ChatCompletionMessage": {"reasoning_content", "reasoning"},
    "chat_completion_chunk.ChoiceDelta": {"reasoning_content", "reasoning"},
    "response.Response": {"store"},  # which OpenAI's own replies hold too
}
# What belongs to services that this server is none of, and what one part of a stream leaves to another.
ABSENT = {
    "chat_completion.ChatCompletion": {"metadata", "moderation", "service_tier"},
    "chat_completion_chunk.ChatCompletionChunk": {"moderation", "obfuscation", "service_tier", "usage"},
    "chat_completion_chunk.ChoiceDelta": {"audio", "content", "function_call", "refusal", "role",
                                          "tool_calls"},
    "chat_completion_chunk.ChoiceDeltaToolCall": {"id", "type"},
    "chat_completion_chunk.ChoiceDeltaToolCallFunction": {"name"},
    "chat_completion_message.ChatCompletionMessage": {"audio", "function_call", "tool_calls"},
    "completion.Completion": {"usage"},  # of a stream: the last part
    "function_tool.FunctionTool": {"allowed_callers", "async_", "defer_loading", "output_schema"},
    "model.Model": {"shutdown_date"},
    "response.Response": {"access_programs", "conversation", "image", "input_transformations",
                          "moderation", "prompt", "prompt_cache_diagnostics", "prompt_cache_options",
                          "prompt_cache_retention", "tool_usage"},
    "reasoning.Reasoning": {"context", "generate_summary", "mode"},
    "response_error.ResponseError": {"misalignment", "param", "type"},
    "response_function_tool_call.ResponseFunctionToolCall": {"async_", "caller", "namespace"},
    "response_output_message.ResponseOutputMessage": {"phase"},
    "response_reasoning_item.ResponseReasoningItem": {"encrypted_content"},
    "response_usage.InputTokensDetails": {"cache_write_tokens_details"},
    "response_text_config.ResponseTextConfig": {"verbosity"},
}


def every_event():
    """Type of an event -> its class."""
    found = {}
    for module in pkgutil.iter_modules(openai.types.responses.__path__):
        for value in vars(importlib.import_module(
                f"openai.types.responses.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, pydantic.BaseModel) and \
                    value.__name__.endswith("Event") and "sequence_number" in value.model_fields:
                found[typing.get_args(value.model_fields["type"].annotation)[0]] = value
    return found


EVENTS = every_event()


def faults_of(value, path=""):
    """What is unknown or missing, here and below."""
    if isinstance(value, dict):
        return [fault for key, one in value.items() for fault in faults_of(one, f"{path}.{key}")]
    if isinstance(value, (list, tuple)):
        return [fault for i, one in enumerate(value) for fault in faults_of(one, f"{path}[{i}]")]
    if not isinstance(value, pydantic.BaseModel):
        return []
    kind = type(value)
    name = f"{kind.__module__.rsplit('.', 1)[1]}.{kind.__name__}"
    unknown = set(value.model_extra or {}) - ADDED.get(name, set())
    missing = set(kind.model_fields) - value.model_fields_set - ABSENT.get(name, set())
    found = [f"{path} ({name}): unknown {sorted(unknown)}"] if unknown else []
    found += [f"{path} ({name}): missing {sorted(missing)}"] if missing else []
    return found + [fault for field in value.model_fields_set
                    for fault in faults_of(getattr(value, field), f"{path}.{field}")]


class Types(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--served-model-name", "demo", "--max-model-len", 512)
        cls.addClassCleanup(cls.server.__exit__)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log

    def checked(self, kind, value):
        """`value` as the type; fails on whatever the type does not say."""
        model = kind.model_validate(value, strict=True)
        self.assertEqual(faults_of(model), [], json.dumps(value))
        return model

    def ask(self, path, kind, body):
        status, _, reply = self.server.post(path, body)
        self.assertEqual(status, 200, reply)
        return self.checked(kind, reply)

    def check_head(self, model, prefix):
        self.assertTrue(model.id.startswith(prefix), model.id)
        self.assertEqual(model.model, "demo")
        self.assertLess(abs(model.created - time.time()), 600)
        self.assertRegex(model.system_fingerprint, r"^nibble-[\d.]+-\w+$")

    def check_usage(self, usage):
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens_details.text_tokens, usage.prompt_tokens)
        self.assertEqual(usage.completion_tokens_details.text_tokens, usage.completion_tokens)

    def test_models(self):
        models = self.server.get("/v1/models")[2]
        self.assertEqual(models["object"], "list")
        for model in models["data"]:
            extra = {key: model.pop(key) for key in set(model) - set(Model.model_fields)}
            self.assertEqual(extra.get("max_model_len"), 512)
            self.checked(Model, model)

    def test_chats(self):
        function = {"type": "function", "function": TOOL}
        schema = {"name": "n", "schema": {"type": "object", "properties": {"a": {"enum": [1, 2]}},
                                          "required": ["a"], "additionalProperties": False}}
        for text, fields, finish in (
                (STORY, {"logprobs": True, "top_logprobs": 2, "n": 2, "temperature": 1, "seed": 3},
                 None),
                (STORY, {"max_tokens": 9}, "length"),
                (ASK, {"tools": [function], "tool_choice": "required"}, "tool_calls"),
                (STORY, {"response_format": {"type": "json_schema", "json_schema": schema}}, "stop")):
            with self.subTest(fields):
                body = chat_body(text, **fields)
                whole = self.ask("/v1/chat/completions", ChatCompletion, body)
                self.check_head(whole, "chatcmpl-")
                self.check_usage(whole.usage)
                self.assertEqual([choice.index for choice in whole.choices],
                                 list(range(fields.get("n", 1))))
                if finish:
                    self.assertEqual([choice.finish_reason for choice in whole.choices], [finish])
                self.check_chat_stream(body, whole)

    def check_chat_stream(self, body, whole):
        events = self.server.events("/v1/chat/completions", {
            **body, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(events.pop(), "[DONE]")
        chunks = [self.checked(ChatCompletionChunk, event) for event in events]
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})
        self.check_head(chunks[0], "chatcmpl-")
        self.assertEqual(chunks[-1].choices, [])
        self.check_usage(chunks[-1].usage)
        for choice in whole.choices:
            own = [{"choices": [one for one in event["choices"] if one["index"] == choice.index]}
                   for event in events]
            message, finish = joined_chat(own)
            self.assertEqual(finish, choice.finish_reason)
            self.assertEqual(message["content"], choice.message.content or "")
            calls = choice.message.tool_calls or []
            self.assertEqual([call["arguments"] for call in message["tool_calls"]],
                             [call.function.arguments for call in calls])
            tokens = [token for chunk in chunks for one in chunk.choices
                      if one.index == choice.index and one.logprobs
                      for token in one.logprobs.content]
            self.assertEqual(tokens, choice.logprobs.content if choice.logprobs else [])
            for token in tokens:
                self.assertEqual(bytes(token.bytes).decode("utf-8", "replace"), token.token)

    def test_completions(self):
        body = {"prompt": ["Once", "Two"], "n": 2, "max_tokens": 5, "logprobs": 2, "seed": 3}
        whole = self.ask("/v1/completions", Completion, body)
        self.check_head(whole, "cmpl-")
        self.check_usage(whole.usage)
        self.assertEqual([choice.index for choice in whole.choices], [0, 1, 2, 3])
        for choice in whole.choices:
            self.assertEqual("".join(choice.logprobs.tokens), choice.text)
            self.assertEqual([max(top.values()) >= logprob for top, logprob in
                              zip(choice.logprobs.top_logprobs, choice.logprobs.token_logprobs)],
                             [True] * len(choice.logprobs.tokens))
        # The parts of a stream have no type of their own: their ends are still open.
        events = self.server.events("/v1/completions", {
            **body, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(events.pop(), "[DONE]")
        texts = {index: "" for index in range(4)}
        for event in events:
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            self.check_head(self.checked(Completion, event), "cmpl-")
        self.assertEqual(list(texts.values()), [choice.text for choice in whole.choices])
        self.check_usage(CompletionUsage.model_validate(events[-1]["usage"], strict=True))

    def test_responses(self):
        given = {"temperature": 0, "metadata": {"a": "b"}, "instructions": "Be brief.", "user": "u",
                 "safety_identifier": "s", "prompt_cache_key": "k"}
        tool = {"type": "function", **TOOL}
        for text, fields, status in (
                (STORY, given, None),
                (STORY, {"max_output_tokens": 9, "reasoning": {"effort": "high"}}, "incomplete"),
                (ASK, {"tools": [tool], "tool_choice": {"type": "function", "name": TOOL["name"]},
                       "temperature": 0, "parallel_tool_calls": False}, "completed"),
                (STORY, {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 200}, None)):
            with self.subTest(fields):
                whole = self.ask("/v1/responses", Response, {"input": text, **fields})
                self.check_response(whole, fields)
                if status:
                    self.assertEqual(whole.status, status)
                kept = self.server.get(f"/v1/responses/{whole.id}")[2]
                self.assertEqual(self.checked(Response, kept), whole)
                self.check_response_stream({"input": text, **fields}, whole)

    def check_response(self, response, fields):
        self.assertTrue(response.id.startswith("resp_"))
        self.assertEqual((response.model, response.error), ("demo", None))
        self.assertLess(abs(response.created_at - time.time()), 600)
        self.assertEqual(response.completed_at is None, response.status != "completed")
        last = "completed" if response.status == "completed" else "incomplete"
        self.assertEqual([item.status for item in response.output],
                         ["completed"] * (len(response.output) - 1) + [last])
        if response.status == "incomplete":
            self.assertEqual(response.incomplete_details.reason, "max_output_tokens")
        for name in ("temperature", "metadata", "instructions", "user", "safety_identifier",
                     "prompt_cache_key", "max_output_tokens", "parallel_tool_calls"):
            if name in fields:
                self.assertEqual(getattr(response, name), fields[name], name)
        self.assertEqual(response.reasoning.effort, fields.get("reasoning", {}).get("effort", "medium"))
        for found, asked in zip(response.tools, fields.get("tools", []), strict=True):
            self.assertEqual((found.name, found.parameters, found.strict),
                             (asked["name"], asked["parameters"], asked.get("strict", False)))
        if "tool_choice" in fields:
            self.assertEqual(response.tool_choice.name, fields["tool_choice"]["name"])
        usage = response.usage
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)

    def check_response_stream(self, body, whole):
        events = [self.checked(EVENTS[name], event) for name, event in
                  self.server.events("/v1/responses", {**body, "stream": True})]
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual([event.type for event in events[:2]],
                         ["response.created", "response.in_progress"])
        for event in events[:2]:
            self.assertEqual((event.response.status, event.response.output), ("in_progress", []))
        last = events[-1]
        self.assertEqual(last.type, f"response.{last.response.status}")
        items, text = [], ""
        for event in events[2:-1]:
            self.assertEqual(event.output_index, len(items))
            if event.type == "response.output_item.added":
                self.assertEqual(event.item.status, "in_progress")
                item_id, text = event.item.id, ""
            elif event.type == "response.output_item.done":
                self.assertEqual(event.item.id, item_id)
                items.append(event.item)
            else:
                self.assertEqual(event.item_id, item_id)
                if event.type.endswith(".delta"):
                    text += event.delta
                elif event.type.endswith("_text.done"):
                    self.assertEqual(event.text, text)
                elif event.type.endswith("arguments.done"):
                    self.assertEqual(event.arguments, text)
        self.assertEqual([item.model_dump() for item in items],
                         [item.model_dump() for item in last.response.output])
        if body.get("temperature") == 0:
            alike = {"id", "call_id"}
            self.assertEqual([item.model_dump(exclude=alike) for item in items],
                             [item.model_dump(exclude=alike) for item in whole.output])

    def test_errors_say_what_the_client_reads(self):
        for path, body, status in (("/v1/chat/completions", {}, 400), ("/v1/none", {}, 404),
                                   ("/v1/responses", {"input": []}, 400),
                                   ("/v1/completions", {"prompt": "a", "model": "other"}, 404)):
            found, _, reply = self.server.post(path, body)
            self.assertEqual((found, list(reply)), (status, ["error"]), reply)
            self.assertEqual(set(reply["error"]), {"message", "type", "param", "code"})
            self.assertIsInstance(reply["error"]["message"], str)


if __name__ == "__main__":
    unittest.main()
