import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { DOG, PARIS, ROME, TEXT, live } from "./support/live.mjs";

const server = live();
const Dog = z.object({ name: z.string(), ages: z.array(z.number()) });

const openai = () => createOpenAI({ baseURL: `${server.url}/v1`, apiKey: "unused" });
const PROVIDERS = {
  "openai, chat": (model) => openai().chat(model),
  "openai, responses": (model) => openai().responses(model),
  "openai-compatible": (model) =>
    createOpenAICompatible({ name: "millstream", baseURL: `${server.url}/v1`, supportsStructuredOutputs: true, includeUsage: true })(model),
  anthropic: (model) => createAnthropic({ baseURL: `${server.url}/v1`, apiKey: "unused" })(model),
};

function weather(asked) {
  return tool({
    description: "Weather",
    inputSchema: z.object({ city: z.string(), days: z.number() }),
    execute: async (place) => (asked.push(place), `${place.city} is fine`),
  });
}

for (const [name, provider] of Object.entries(PROVIDERS)) {
  describe(name, () => {
    const ask = (prompt, fields = {}) => ({ model: provider("tiny"), prompt, maxRetries: 0, ...fields });

    test("a whole answer", async () => {
      const { text, finishReason, usage } = await generateText(ask("hi"));
      assert.equal(text, TEXT);
      assert.equal(finishReason, "stop");
      assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    });

    test("a stream", async () => {
      const stream = streamText(ask("hi"));
      let text = "";
      for await (const delta of stream.textStream) text += delta;
      assert.equal(text, TEXT);
      assert.equal(await stream.finishReason, "stop");
      assert.ok((await stream.usage).outputTokens > 0);
    });

    test("parallel calls are run and answered", async () => {
      const asked = [];
      const fields = { tools: { get_weather: weather(asked) }, stopWhen: stepCountIs(3) };
      const { text, steps } = await generateText(ask("two calls", fields));
      assert.equal(text, 'The tool said Paris is fine and Röm "old" is fine.');
      assert.deepEqual(steps.map((step) => step.finishReason), ["tool-calls", "stop"]);
      assert.deepEqual(asked, [PARIS, ROME]);
    });

    test("arguments are streamed", async () => {
      const asked = [];
      const fields = { tools: { get_weather: weather(asked) }, stopWhen: stepCountIs(3) };
      const stream = streamText(ask("one call", fields));
      let fragments = "";
      let count = 0;
      for await (const part of stream.stream ?? stream.fullStream) {
        if (part.type === "tool-input-delta") [fragments, count] = [fragments + part.delta, count + 1];
      }
      assert.deepEqual(JSON.parse(fragments), PARIS);
      assert.ok(count > 4, `${count} fragments`);
      assert.equal(await stream.text, "The tool said Paris is fine.");
    });

    test("structured output", async () => {
      const { output } = await generateText(ask("a dog", { output: Output.object({ schema: Dog }) }));
      assert.deepEqual(output, DOG);
    });

    test("reasoning", async () => {
      if (name === "openai, chat") return; // This provider knows no reasoning text on this surface.
      // Responses tells it to those who ask for a summary.
      const providerOptions = { openai: { reasoningSummary: "auto", forceReasoning: true } };
      const { text, reasoningText } = await generateText(ask("think", { providerOptions }));
      assert.equal(text, "Done.");
      assert.equal(reasoningText, "Hm, é.");
    });

    test("a cut answer says so", async () => {
      const { finishReason } = await generateText(ask("much", { maxOutputTokens: 20 }));
      assert.equal(finishReason, "length");
    });

    test("errors", async () => {
      await assert.rejects(generateText(ask("hi", { model: provider("gpt-4o") })), (error) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.equal(error.statusCode, 404);
        assert.match(error.message, /gpt-4o/);
        return true;
      });
      await assert.rejects(generateText(ask("x".repeat(5000))), { statusCode: 400 });
      await assert.rejects(generateText(ask("fail")), { statusCode: 503 });
      const seen = [];
      const stream = streamText(ask("fail", { onError: ({ error }) => seen.push(error) }));
      let text = "";
      for await (const part of stream.stream ?? stream.fullStream) if (part.type === "text-delta") text += part.text;
      assert.equal(text, "Well");
      assert.match(JSON.stringify(seen[0]) + String(seen[0]?.message), /The engine broke/);
    });

    test("leaving frees the place", async () => {
      for (const start of [
        (abortSignal) => generateText(ask("wait", { abortSignal })),
        (abortSignal) => streamText(ask("wait", { abortSignal })).consumeStream(),
      ]) {
        const abort = new AbortController();
        const answer = Promise.resolve(start(abort.signal)).catch(() => {});
        await server.until(1);
        abort.abort();
        await server.until(0);
        await answer;
      }
    });
  });
}
