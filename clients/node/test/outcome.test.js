import assert from "node:assert/strict";
import test from "node:test";

import { OutlastError, Permanent, currentJob } from "../src/index.js";
import { JobContext, runIn } from "../src/context.js";
import { completed, outcomeOf } from "../src/outcome.js";

const job = () => new JobContext({ id: "j", type: "t", args: [], timeout_ms: 100 });

test("results and errors are reported", () => {
  class Odd extends Error {}
  for (const [thrown, type, retryable] of [
    [new TypeError("x"), "TypeError", true],
    [new Odd("x"), "Odd", true],
    [new Permanent("never", "bad"), "bad", false],
    ["text", "Error", true],
    [Object.create(null), "Error", true],
    [Object.defineProperty(new Error("x"), "message", { get: () => nothing.at.all }), "Error", true],
    [Object.defineProperty(new Error("x"), "stack", { value: 7 }), "Error", true],
  ]) {
    const { error } = outcomeOf(thrown, job()).fields;
    assert.deepEqual([error.type, error.retryable], [type, retryable]);
  }
  assert.deepEqual(completed(7), { path: "ack", fields: { result: 7 } });
  assert.equal(completed(1n).fields.error.type, "invalid_result");
});

test("what a stopped handler throws is the stop, and only a timeout costs a retry", () => {
  for (const [reason, type] of [["shutdown", "shutdown"], ["cancelled", "shutdown"], ["lost", "shutdown"], ["timeout", "timeout"]]) {
    const one = job();
    one.stop(reason);
    assert.ok(one.signal.aborted);
    assert.equal(one.signal.reason.reason, reason);
    assert.equal(outcomeOf(new TypeError("while cleaning up"), one).fields.error.type, type);
  }
});

test("the first reason to stop stays", () => {
  const one = job();
  one.stop("timeout");
  one.stop("shutdown");
  assert.equal(one.stopReason, "timeout");
});

test("a job sleeps until it is stopped", async () => {
  const one = job();
  setTimeout(() => one.stop("cancelled"), 50);
  await assert.rejects(one.sleep(60_000));
});

test("a handler knows its job, and nothing else does", async () => {
  const one = job();
  await runIn(one, async () => {
    await one.sleep(1);
    assert.equal(currentJob(), one);
  });
  assert.throws(() => currentJob(), OutlastError);
});
