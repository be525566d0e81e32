import assert from "node:assert/strict";
import test from "node:test";

import { Graph, Outlast, UsageError, Worker, batch, chain, group } from "../src/index.js";
import { merged, wireOf } from "../src/options.js";

const NOWHERE = "http://127.0.0.1:9";

test("only what was said is sent", () => {
  assert.deepEqual(wireOf({ type: "t", args: [1] }), { type: "t", args: [1] });
});

test("every option has its name on the wire", () => {
  const options = {
    queue: "q", priority: -5, delay: 1500, timeout: 2000, expiresAfter: 90_000, retries: 3,
    retry: {
      firstPause: 1000, longestPause: 9000, factor: 1.5, strategy: "linear", jitter: false,
      neverFor: ["TypeError"], deadLetter: true,
    },
    unique: {
      argsKeys: ["customer"], byQueue: true, metaKeys: ["region"], period: 90_000, states: ["available"],
      onConflict: "ignore",
    },
    meta: { trace: "abc" }, keys: { tenant: 42 }, requires: "gpu=true", prefers: "zone=a", tags: ["x"],
    more: { visibility_timeout_ms: 9000 },
  };
  assert.deepEqual(wireOf({ type: "t", args: [1, "two"], options }), {
    type: "t", args: [1, "two"], meta: { trace: "abc" },
    options: {
      queue: "q", priority: -5, delay_ms: 1500, timeout_ms: 2000, expires_at: "+PT90S",
      retry: {
        max_attempts: 4, initial_interval_ms: 1000, max_interval_ms: 9000, backoff_coefficient: 1.5,
        backoff_strategy: "linear", jitter: false, non_retryable_errors: ["TypeError"],
        on_exhaustion: "dead_letter",
      },
      unique: {
        keys: ["type", "args", "queue", "meta"], args_keys: ["customer"], meta_keys: ["region"],
        period: "PT90S", states: ["available"], on_conflict: "ignore",
      },
      keys: { tenant: "42" }, requires: "gpu=true", prefers: "zone=a", tags: ["x"],
      visibility_timeout_ms: 9000,
    },
  });
});

test("the last word about the time counts", () => {
  const at = new Date(Date.UTC(2030, 0, 1));
  const later = merged({ delay: 1 }, { at });
  assert.deepEqual(wireOf({ type: "t", options: later }).options, { scheduled_at: "2030-01-01T00:00:00.000Z" });
  assert.deepEqual(wireOf({ type: "t", options: merged(later, { delay: 2 }) }).options, { delay_ms: 2 });
});

test("slips are refused by name before anything is sent", () => {
  const job = { type: "t" };
  for (const [wrong, word] of [
    [() => merged({}, { qeue: "q" }), /qeue/],
    [() => wireOf({ type: "t", options: { retries: -1 } }), /retries/],
    [() => wireOf({ type: "t", options: { retry: { attempts: 1 } } }), /attempts/],
    [() => wireOf({ type: "t", options: { delay: "1s" } }), /delay/],
    [() => wireOf({ type: "t", args: "ab" }), /array/],
    [() => wireOf({ args: [] }), /type/],
    [() => batch([job]), /callback/],
    [() => new Graph().step("a", job, "b"), /comes after b/],
  ]) {
    assert.throws(wrong, (error) => error instanceof UsageError && word.test(error.message));
  }
});

test("workflows have the forms of the standard", () => {
  const one = { type: "a", args: [1] }, two = { type: "b", args: [] };
  assert.deepEqual(chain(one, group(two, two)).wire(), {
    type: "chain", steps: [one, { type: "group", jobs: [two, two] }],
  });
  assert.deepEqual(batch([one], { onFailure: two }).wire(), {
    type: "batch", jobs: [one], callbacks: { on_failure: two },
  });
  assert.deepEqual(new Graph("n").step("x", one).step("y", two, "x").wire(), {
    name: "n", steps: [{ id: "x", ...one }, { id: "y", ...two, depends_on: ["x"] }],
  });
});

test("a task with other options leaves the first as it was", () => {
  const app = new Outlast(NOWHERE, { queue: "mail" });
  const send = app.job("send", { retries: 2 }, () => {});
  assert.deepEqual(send.job("a").options, { queue: "mail", retries: 2 });
  assert.equal(send.using({ queue: "b" }).job().options.queue, "b");
  assert.equal(send.job().options.queue, "mail");
  assert.throws(() => app.job("send", () => {}), UsageError);
});

test("a worker takes jobs from the queues of its handlers, and one that cannot work is refused", () => {
  const app = new Outlast(NOWHERE, { queue: "mail" });
  assert.throws(() => new Worker(app), UsageError);
  app.job("a", () => {});
  app.job("b", { queue: "reports" }, () => {});
  assert.deepEqual(new Worker(app).queues, ["mail", "reports"]);
  for (const wrong of [{ concurrency: 0 }, { concurrency: 1.5 }, { lease: 500 }]) {
    assert.throws(() => new Worker(app, wrong), UsageError);
  }
});

test("the grace is what the environment says", (t) => {
  const app = new Outlast(NOWHERE);
  app.job("a", () => {});
  const names = ["OUTLAST_GRACE", "OJS_GRACE_PERIOD", "OJS_SHUTDOWN_GRACE_PERIOD"];
  const before = names.map((name) => [name, process.env[name]]);
  const set = (values) => {
    for (const [name, value] of values) value === undefined ? delete process.env[name] : (process.env[name] = value);
  };
  t.after(() => set(before));
  const grace = (...values) => {
    set(names.map((name, n) => [name, values[n]]));
    return new Worker(app).grace;
  };
  assert.equal(grace(), 30_000);
  assert.equal(grace(undefined, undefined, "7"), 7000);
  assert.equal(grace(undefined, "1.5", "7"), 1500);
  assert.equal(grace("0", "7"), 0);
  assert.equal(grace(undefined, "45s"), 45_000);
  assert.equal(grace(undefined, "2m"), 120_000);
  assert.equal(grace(undefined, "250ms"), 250);
  for (const wrong of ["soon", "-1", "1 s"]) assert.throws(() => grace(undefined, wrong), UsageError);
});
