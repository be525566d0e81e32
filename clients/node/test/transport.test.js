// Requests to a real HTTP server whose answers the test says.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test from "node:test";

import { Client, Conflict, OutlastError, QueueFull, Refused, Unreachable, UsageError } from "../src/index.js";

const JOB = { id: "j", type: "t", state: "available", queue: "q", args: [] };
const ok = { status: 200, body: { job: JOB } };
const lost = { status: 0 };
const error = (status, code, headers) => ({ status, headers, body: { error: { code, message: "no" } } });

/** A server that gives these answers in turn, the last one again and again. */
async function site(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    requests.push({ method: request.method, url: request.url, headers: request.headers, text });
    const { status, headers, body, pause = 0 } = answers.length > 1 ? answers.shift() : answers[0];
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (status === 0) return request.socket.destroy();
    response.writeHead(status, headers);
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.close();
    server.closeAllConnections?.();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, requests };
}

test("an enqueue is repeated under one key until it is stored", async (t) => {
  const { url, requests } = await site(t, error(503, "unavailable"), lost, ok);
  const job = await new Client(url, { token: "secret" }).enqueue("t", [1]);
  const keys = new Set(requests.map(({ headers }) => headers["idempotency-key"]));
  assert.deepEqual([job.id, requests.length, keys.size], ["j", 3, 1]);
  assert.equal(requests[0].headers.authorization, "Bearer secret");
});

test("the pause that a server asks for is kept", async (t) => {
  const { url } = await site(t, error(503, "unavailable", { "Retry-After": "1" }), ok);
  const began = performance.now();
  await new Client(url).get("j");
  assert.ok(performance.now() - began >= 1000);
});

test("refusals are not repeated and say what is wrong", async (t) => {
  for (const [answer, Kind] of [
    [error(409, "duplicate"), Conflict],
    [error(429, "QUEUE_FULL", { "Retry-After": "1" }), QueueFull],
    [error(422, "validation_error"), Refused],
    [{ status: 500, body: "<html>" }, Refused],
  ]) {
    const { url, requests } = await site(t, answer);
    await assert.rejects(new Client(url).enqueue("t"), Kind);
    assert.equal(requests.length, 1);
  }
});

test("a request takes no longer than its limit", async (t) => {
  const { url } = await site(t, { ...ok, pause: 5000 });
  const began = performance.now();
  await assert.rejects(new Client(url, { timeout: 300, retryFor: 0 }).get("j"), Unreachable);
  assert.ok(performance.now() - began < 3000);
});

test("a batch whose answer could differ is sent once", async (t) => {
  const { url, requests } = await site(t, lost);
  const job = { type: "t", options: { unique: { onConflict: "ignore" } } };
  await assert.rejects(new Client(url, { retryFor: 2000 }).enqueueAll([job]), Unreachable);
  assert.equal(requests.length, 1);
});

test("the next server is asked when one is away", async (t) => {
  const { url } = await site(t, ok);
  for (let round = 0; round < 4; round++) {
    assert.equal((await new Client(`http://127.0.0.1:1,${url}`).get("j")).id, "j");
  }
});

test("an answer that is no JSON is named", async (t) => {
  const { url } = await site(t, { status: 200, body: "<html>" });
  await assert.rejects(new Client(url).get("j"), (error) => error instanceof OutlastError && /<html>/.test(error.message));
});

test("addresses that are none are refused, and what is no JSON is not sent", async () => {
  for (const wrong of ["127.0.0.1:8080", "ftp://host", "http://", ","]) {
    assert.throws(() => new Client(wrong), UsageError);
  }
  await assert.rejects(new Client("http://127.0.0.1:1").enqueue("t", [1n]), UsageError);
});
