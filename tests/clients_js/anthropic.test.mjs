import assert from "node:assert/strict";
import { describe, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { DOG, PARIS, ROME, TEXT, WEATHER_SCHEMA, live } from "./support/live.mjs";

const server = live();
const Dog = z.object({ name: z.string(), ages: z.array(z.number()) });
const tool = { name: "get_weather", input_schema: WEATHER_SCHEMA };

function client(options = {}) {
  return new Anthropic({ baseURL: server.url, apiKey: "unused", maxRetries: 0, ...options });
}

function ask(content, fields = {}) {
  return { model: "tiny", max_tokens: 1000, messages: [{ role: "user", content }], ...fields };
}

test("a whole answer, and the same prompt counted", async () => {
  const answer = await client().messages.create(ask("hi"));
  assert.deepEqual(answer.content.map((block) => block.text), [TEXT]);
  assert.equal(answer.stop_reason, "end_turn");
  const { max_tokens, ...counted } = ask("hi");
  assert.equal((await client().messages.countTokens(counted)).input_tokens, answer.usage.input_tokens);
});

test("a stream", async () => {
  const stream = client().messages.stream(ask("hi"));
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const message = await stream.finalMessage();
  assert.equal(text, TEXT);
  assert.equal(message.content[0].text, TEXT);
  assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
});

test("inputs of tools are streamed, parallel calls are blocks of their own", async () => {
  const stream = client().messages.stream(ask("two calls", { tools: [tool] }));
  let fragments = 0;
  stream.on("inputJson", () => fragments++);
  const message = await stream.finalMessage();
  assert.equal(message.stop_reason, "tool_use");
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.input), [PARIS, ROME]);
  assert.ok(fragments > 8, `${fragments} fragments`);
});

test("one call, if only one is wanted", async () => {
  const choice = { type: "auto", disable_parallel_tool_use: true };
  const message = await client().messages.create(ask("two calls", { tools: [tool], tool_choice: choice }));
  assert.deepEqual(message.content.filter((block) => block.type === "tool_use").map((call) => call.input), [PARIS]);
});

for (const stream of [false, true]) {
  test(`the tool runner calls and answers, ${stream ? "streamed" : "whole"}`, async () => {
    const asked = [];
    const run = (place) => (asked.push(place), `${place.city} is fine`);
    const weather = betaTool({ name: "get_weather", description: "Weather", inputSchema: WEATHER_SCHEMA, run });
    const final = await client().beta.messages.toolRunner(ask("two calls", { tools: [weather], stream }));
    assert.equal(final.content.at(-1).text, "The tool said Paris is fine and Röm \"old\" is fine.");
    assert.deepEqual(asked, [PARIS, ROME]);
  });
}

test("thinking, with a signature, and sent back", async () => {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const stream = client().messages.stream(ask("think", { max_tokens: 2000, thinking }));
  const { content } = await stream.finalMessage();
  assert.deepEqual(content.map((block) => block.type), ["thinking", "text"]);
  assert.equal(content[0].thinking, "Hm, é.");
  assert.ok(content[0].signature);
  const messages = [{ role: "user", content: "think" }, { role: "assistant", content }, { role: "user", content: "hi" }];
  assert.equal((await client().messages.create(ask("", { messages }))).content[0].text, TEXT);
});

test("structured output", async () => {
  const output_config = { format: zodOutputFormat(Dog) };
  assert.deepEqual((await client().messages.parse(ask("a dog", { output_config }))).parsed_output, DOG);
});

test("a cut answer and a stop sequence say so", async () => {
  assert.equal((await client().messages.create(ask("much", { max_tokens: 5 }))).stop_reason, "max_tokens");
  const stopped = await client().messages.create(ask("hi", { stop_sequences: ["<b>"] }));
  assert.equal(stopped.stop_reason, "stop_sequence");
  assert.equal(stopped.stop_sequence, "<b>");
});

test("models", async () => {
  const ids = [];
  for await (const model of client().models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["tiny"]);
});

describe("errors", () => {
  for (const stream of [false, true]) {
    test(`before the first token, ${stream ? "streamed" : "whole"}`, async () => {
      const create = (content, fields) => client().messages.create(ask(content, { stream, ...fields }));
      await assert.rejects(create("hi", { model: "claude" }), (error) => {
        assert.ok(error instanceof Anthropic.NotFoundError);
        assert.equal(error.error.error.type, "not_found_error");
        return true;
      });
      await assert.rejects(create("hi", { temperature: 3 }), Anthropic.BadRequestError);
      await assert.rejects(create("x".repeat(5000)), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError);
        assert.match(error.message, /prompt is too long/);
        return true;
      });
    });
  }

  test("in the middle of a stream", async () => {
    let text = "";
    await assert.rejects(async () => {
      for await (const event of await client().messages.create(ask("fail", { stream: true }))) {
        text += event.delta?.text ?? "";
      }
    }, (error) => error instanceof Anthropic.APIError && /The engine broke/.test(error.message));
    assert.equal(text, "Well");
  });

  test("of a whole answer", async () => {
    await assert.rejects(client().messages.create(ask("fail")), Anthropic.InternalServerError);
  });
});

describe("leaving frees the place", () => {
  for (const stream of [false, true]) {
    test(stream ? "streamed" : "whole", async () => {
      const abort = new AbortController();
      const answer = client().messages.create(ask("wait", { stream }), { signal: abort.signal }).then(async (events) => {
        for await (const _ of events);
      });
      answer.catch(() => {});
      await server.until(1);
      abort.abort();
      await server.until(0);
      await answer.catch((error) => assert.ok(error instanceof Anthropic.APIUserAbortError, String(error)));
    });
  }
});
