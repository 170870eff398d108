// The live server, in a process of its own: started before a file's tests, ended after them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { after, before } from "node:test";

const HERE = fileURLToPath(new URL("..", import.meta.url));

export const TEXT = "Hello é€😀, <b>world</b>!";
export const PARIS = { city: "Paris", days: 3 };
export const ROME = { city: 'Röm "old"', days: 1 };
export const DOG = { name: "Rex", ages: [1, 2] };

/** An object whose `url` is set when the tests of the file run. */
export function live() {
  const server = {
    url: "",
    /** Requests that hold a place in the engine. */
    async running() {
      return (await (await fetch(`${server.url}/health`)).json()).running;
    },
    /** Waits until so many requests hold a place. */
    async until(count) {
      for (let k = 0; k < 6000 && (await server.running()) !== count; k++) await sleep(10);
      assert.equal(await server.running(), count, "places held in the engine");
    },
  };
  let child;
  before(async () => {
    child = spawn(process.env.MILLSTREAM_PYTHON ?? "python3", [`${HERE}server.py`], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, PYTHONPATH: fileURLToPath(new URL("../..", import.meta.url)) },
    });
    const gone = once(child, "exit").then(([code]) => assert.fail(`the server ended with ${code}`));
    gone.catch(() => {});
    const [line] = await Promise.race([once(createInterface({ input: child.stdout }), "line"), gone]);
    server.url = line;
  });
  after(async () => {
    const ended = once(child, "exit");
    child.stdin.end();
    const [code] = await ended;
    assert.equal(code, 0);
  });
  return server;
}

export const WEATHER_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
