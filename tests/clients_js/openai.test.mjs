import assert from "node:assert/strict";
import { describe, test } from "node:test";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { DOG, PARIS, ROME, TEXT, WEATHER_SCHEMA, live } from "./support/live.mjs";

const server = live();
const Dog = z.object({ name: z.string(), ages: z.array(z.number()) });
const says = (content) => [{ role: "user", content }];
const tool = { type: "function", function: { name: "get_weather", parameters: WEATHER_SCHEMA } };
const flat = { type: "function", name: "get_weather", parameters: WEATHER_SCHEMA, strict: false };

function client(options = {}) {
  return new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "unused", maxRetries: 0, ...options });
}

describe("chat completions", () => {
  test("a whole answer", async () => {
    const answer = await client().chat.completions.create({ model: "tiny", messages: says("hi") });
    assert.equal(answer.choices[0].message.content, TEXT);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  });

  test("a stream, with usage as its last chunk", async () => {
    const stream = await client().chat.completions.create({
      model: "tiny", messages: says("hi"), n: 2, stream: true, stream_options: { include_usage: true },
    });
    const texts = ["", ""];
    const ids = new Set();
    let last;
    for await (const chunk of stream) {
      for (const { index, delta } of chunk.choices) texts[index] += delta.content ?? "";
      ids.add(chunk.id);
      last = chunk;
    }
    assert.deepEqual(texts, [TEXT, TEXT]);
    assert.equal(ids.size, 1);
    assert.deepEqual(last.choices, []);
    assert.ok(last.usage.completion_tokens > 0);
  });

  test("stored completions are found, relabelled and forgotten", async () => {
    const { completions } = client().chat;
    const ids = [];
    for (const number of ["1", "2", "3"]) {
      const metadata = { of: "js", number };
      const made = await completions.create({ model: "tiny", messages: says("hi"), store: true, metadata });
      ids.push(made.id);
    }
    const found = [];
    for await (const one of completions.list({ metadata: { of: "js" }, limit: 2 })) found.push(one.id);
    assert.deepEqual(found, ids);
    assert.equal((await completions.retrieve(ids[0])).choices[0].message.content, TEXT);
    assert.deepEqual((await completions.update(ids[0], { metadata: { of: "other" } })).metadata, { of: "other" });
    const asked = [];
    for await (const message of completions.messages.list(ids[0])) asked.push(message.content);
    assert.deepEqual(asked, ["hi"]);
    assert.equal((await completions.delete(ids[0])).deleted, true);
    await assert.rejects(completions.retrieve(ids[0]), OpenAI.NotFoundError);
    const unstored = { model: "tiny", messages: says("hi"), metadata: { a: "b" } };
    await assert.rejects(completions.create(unstored), OpenAI.BadRequestError);
  });

  test("arguments are streamed, parallel calls apart", async () => {
    const stream = client().chat.completions.stream({ model: "tiny", messages: says("two calls"), tools: [tool] });
    let fragments = 0;
    stream.on("tool_calls.function.arguments.delta", () => fragments++);
    const { message, finish_reason } = (await stream.finalChatCompletion()).choices[0];
    assert.equal(finish_reason, "tool_calls");
    assert.deepEqual(message.tool_calls.map((call) => JSON.parse(call.function.arguments)), [PARIS, ROME]);
    assert.equal(new Set(message.tool_calls.map((call) => call.id)).size, 2);
    assert.ok(fragments > 8, `${fragments} fragments`);
  });

  test("one call, if only one is wanted", async () => {
    const answer = await client().chat.completions.create({
      model: "tiny", messages: says("two calls"), tools: [tool], parallel_tool_calls: false,
    });
    assert.deepEqual(answer.choices[0].message.tool_calls.map((call) => JSON.parse(call.function.arguments)), [PARIS]);
  });

  test("the tool runner calls and answers", async () => {
    const asked = [];
    const run = (place) => `${place.city} is fine`;
    const runner = client().chat.completions.runTools({
      model: "tiny",
      messages: says("two calls"),
      stream: true,
      tools: [{
        type: "function",
        function: { ...tool.function, description: "Weather", parse: JSON.parse, function: (place) => (asked.push(place), run(place)) },
      }],
    });
    assert.equal(await runner.finalContent(), `The tool said ${run(PARIS)} and ${run(ROME)}.`);
    assert.deepEqual(asked, [PARIS, ROME]);
  });

  test("structured output", async () => {
    const answer = await client().chat.completions.parse({
      model: "tiny", messages: says("a dog"), response_format: zodResponseFormat(Dog, "dog"),
    });
    assert.deepEqual(answer.choices[0].message.parsed, DOG);
  });

  test("reasoning", async () => {
    const answer = await client().chat.completions.create({ model: "tiny", messages: says("think") });
    assert.equal(answer.choices[0].message.reasoning_content, "Hm, é.");
    assert.equal(answer.choices[0].message.content, "Done.");
  });

  test("a cut answer says so", async () => {
    const create = client().chat.completions.create({ model: "tiny", messages: says("much"), max_tokens: 5 });
    assert.equal((await create).choices[0].finish_reason, "length");
  });
});

describe("responses", () => {
  test("a whole answer, and the next turn", async () => {
    const first = await client().responses.create({ model: "tiny", input: "hi" });
    assert.equal(first.output_text, TEXT);
    assert.equal(first.status, "completed");
    const next = await client().responses.create({ model: "tiny", input: "hi", previous_response_id: first.id });
    assert.ok(next.usage.input_tokens > first.usage.input_tokens);
    assert.equal((await client().responses.retrieve(first.id)).output_text, TEXT);
    await client().responses.delete(first.id);
    await assert.rejects(client().responses.retrieve(first.id), OpenAI.NotFoundError);
  });

  test("a stream with calls", async () => {
    const stream = client().responses.stream({ model: "tiny", input: "two calls", tools: [flat] });
    const numbers = [];
    for await (const event of stream) numbers.push(event.sequence_number);
    assert.deepEqual(numbers, numbers.map((_, k) => k));
    const { output, status } = await stream.finalResponse();
    assert.equal(status, "completed");
    const calls = output.filter((item) => item.type === "function_call");
    assert.deepEqual(calls.map((call) => JSON.parse(call.arguments)), [PARIS, ROME]);
    const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "sun" }));
    const input = [...says("two calls"), ...output, ...results];
    const answer = await client().responses.create({ model: "tiny", input, tools: [flat], store: false });
    assert.equal(answer.output_text, "The tool said sun and sun.");
  });

  test("structured output", async () => {
    const format = zodTextFormat(Dog, "dog");
    const answer = await client().responses.parse({ model: "tiny", input: "a dog", text: { format } });
    assert.deepEqual(answer.output_parsed, DOG);
  });

  test("a cut answer and a broken one say so", async () => {
    const cut = await client().responses.create({ model: "tiny", input: "much", max_output_tokens: 20 });
    assert.equal(cut.status, "incomplete");
    assert.equal(cut.incomplete_details.reason, "max_output_tokens");
    const types = [];
    const stream = await client().responses.create({ model: "tiny", input: "fail", stream: true });
    for await (const event of stream) types.push(event.type);
    assert.equal(types.at(-1), "response.failed");
  });
});

test("completions", async () => {
  const answer = await client().completions.create({ model: "tiny", prompt: "hi", max_tokens: 100 });
  assert.equal(answer.choices[0].text, TEXT);
  let text = "";
  const stream = await client().completions.create({ model: "tiny", prompt: "hi", max_tokens: 100, stream: true });
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, TEXT);
});

test("models", async () => {
  const ids = [];
  for await (const model of client().models.list()) ids.push(model.id);
  assert.deepEqual(ids, ["tiny"]);
});

describe("errors", () => {
  const create = (fields) => client().chat.completions.create({ model: "tiny", messages: says("hi"), ...fields });

  for (const stream of [false, true]) {
    test(`before the first token, ${stream ? "streamed" : "whole"}`, async () => {
      await assert.rejects(create({ model: "gpt-4o", stream }), (error) => {
        assert.ok(error instanceof OpenAI.NotFoundError);
        assert.equal(error.code, "model_not_found");
        return true;
      });
      await assert.rejects(create({ temperature: 3, stream }), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.equal(error.param, "temperature");
        return true;
      });
      await assert.rejects(create({ messages: says("x".repeat(5000)), stream }), { code: "context_length_exceeded" });
    });
  }

  test("in the middle of a stream", async () => {
    const stream = await create({ messages: says("fail"), stream: true });
    let text = "";
    await assert.rejects(async () => {
      for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
    }, (error) => error instanceof OpenAI.APIError && /The engine broke/.test(error.message));
    assert.equal(text, "Well");
  });

  test("of a whole answer", async () => {
    await assert.rejects(create({ messages: says("fail") }), OpenAI.InternalServerError);
  });
});

describe("leaving frees the place", () => {
  for (const [name, start] of [
    ["chat, streamed", (signal) => client().chat.completions.create({ model: "tiny", messages: says("wait"), stream: true }, { signal })],
    ["chat, whole", (signal) => client().chat.completions.create({ model: "tiny", messages: says("wait") }, { signal })],
    ["responses, streamed", (signal) => client().responses.create({ model: "tiny", input: "wait", stream: true }, { signal })],
    ["responses, whole", (signal) => client().responses.create({ model: "tiny", input: "wait" }, { signal })],
  ]) {
    test(name, async () => {
      const abort = new AbortController();
      const answer = start(abort.signal).then(async (stream) => {
        for await (const _ of stream);
      });
      answer.catch(() => {});
      await server.until(1);
      abort.abort();
      await server.until(0);
      await answer.catch((error) => assert.ok(error instanceof OpenAI.APIUserAbortError, String(error)));
    });
  }

  test("a time limit", async () => {
    const create = client({ timeout: 100 }).chat.completions.create({ model: "tiny", messages: says("wait") });
    await assert.rejects(create, OpenAI.APIConnectionTimeoutError);
    await server.until(0);
  });
});
