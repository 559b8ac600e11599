// Replies as clients see them: streams put together again, ids taken out, so that what was streamed
// and what came whole can be compared.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "unit/server/scripted_api.h"

namespace nibble::server {

inline TestJson without(TestJson value, const char* name) {
  value.erase(name);
  return value;
}

// The message that a client puts together from chunks, in the form of the whole reply.
inline TestJson joined(const std::vector<TestJson>& events) {
  TestJson message = {{"content", ""}, {"reasoning", ""}, {"calls", TestJson::array()}};
  TestJson finish;
  for (const TestJson& event : events) {
    for (const TestJson& choice : event["choices"]) {
      const TestJson& delta = choice["delta"];
      message["content"] = message["content"].get<std::string>() + delta.value("content", "");
      message["reasoning"] =
          message["reasoning"].get<std::string>() + delta.value("reasoning_content", "");
      for (const TestJson& call : delta.value("tool_calls", TestJson::array())) {
        const std::size_t index = call["index"];
        if (index == message["calls"].size()) {
          message["calls"].push_back({{"name", call["function"]["name"]}, {"arguments", ""}});
        }
        TestJson& arguments = message["calls"].at(index)["arguments"];
        arguments = arguments.get<std::string>() + call["function"].value("arguments", "");
      }
      if (!choice["finish_reason"].is_null()) {
        EXPECT_TRUE(finish.is_null()) << "two ends";
        finish = choice["finish_reason"];
      }
    }
  }
  message["finish"] = finish;
  return message;
}

inline TestJson plain(const TestJson& reply) {
  const TestJson& choice = reply["choices"][0];
  const TestJson& message = choice["message"];
  TestJson out = {{"content", message["content"].is_null() ? TestJson("") : message["content"]},
                  {"reasoning", message.value("reasoning_content", "")},
                  {"calls", TestJson::array()}};
  for (const TestJson& call : message.value("tool_calls", TestJson::array())) {
    out["calls"].push_back(
        {{"name", call["function"]["name"]}, {"arguments", call["function"]["arguments"]}});
  }
  out["finish"] = choice["finish_reason"];
  return out;
}

// The message that Anthropic's client puts together.
inline TestJson assembled(const std::vector<TestJson>& events) {
  EXPECT_EQ(events.front()["type"], "message_start");
  EXPECT_EQ(events.back()["type"], "message_stop");
  TestJson message = events.front()["message"];
  std::string partial;
  int open = -1;
  for (const TestJson& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(open, -1) << "one block at a time";
      open = event["index"];
      EXPECT_EQ(message["content"].size(), open);
      message["content"].push_back(event["content_block"]);
    } else if (type == "content_block_delta") {
      EXPECT_EQ(event["index"], open);
      TestJson& block = message["content"].back();
      const TestJson& delta = event["delta"];
      const std::string field = delta["type"] == "text_delta" ? "text" : "thinking";
      if (delta["type"] == "input_json_delta") {
        partial += delta["partial_json"].get<std::string>();
      } else {
        block[field] = block[field].get<std::string>() + delta[field].get<std::string>();
      }
    } else if (type == "content_block_stop") {
      if (message["content"].back()["type"] == "tool_use") {
        const TestJson input =
            partial.empty() ? TestJson::object() : TestJson::parse(partial, nullptr, false);
        message["content"].back()["input"] =
            input.is_object() ? input : TestJson({{"arguments", partial}});
        partial.clear();
      }
      open = -1;
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    }
  }
  return message;
}

inline TestJson without_call_ids(TestJson message) {
  for (TestJson& block : message["content"]) {
    block.erase("id");
  }
  return without(std::move(message), "id");
}

// Ids differ from request to request.
inline TestJson plain_output(const TestJson& response) {
  TestJson out = {{"status", response["status"]},
                  {"incomplete", response["incomplete_details"]},
                  {"usage", response["usage"]},
                  {"output", response["output"]}};
  for (TestJson& item : out["output"]) {
    item.erase("id");
    item.erase("call_id");
  }
  return out;
}

// The items of a response, walked through its events, each of which must fit those before it.
inline TestJson items_of(const std::vector<TestJson>& events) {
  EXPECT_EQ(events.front()["type"], "response.created");
  TestJson items = TestJson::array();
  std::string text;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const TestJson& event = events[i];
    EXPECT_EQ(event["sequence_number"], i);
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], items.size());
      items.push_back(event["item"]);
      text.clear();
    } else if (type.ends_with(".delta")) {
      EXPECT_EQ(event["item_id"], items.back()["id"]);
      text += event["delta"].get<std::string>();
    } else if (type.ends_with("_text.done")) {
      EXPECT_EQ(event["text"], text);
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], text);
    } else if (type == "response.output_item.done") {
      items.back() = event["item"];
    }
  }
  return items;
}

}  // namespace nibble::server
