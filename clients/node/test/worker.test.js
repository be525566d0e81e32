// Workers of a server that the test plays.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { describe } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Outlast, Worker } from "../src/index.js";

const job = (id = "j", more = {}) => ({ id, type: "t", args: [], attempt: 1, lease: `lease-${id}`, ...more });

/** Hands out `jobs`, answers heartbeats with `beat`, and reports with the status of `answer(path, body)`; 0 closes. */
async function play(t, jobs) {
  const site = { jobs, beat: { state: "running" }, reports: [], lines: [], answer: () => 200 };
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const part of request) text += part;
    const body = JSON.parse(text), path = request.url.split("/").at(-1);
    let status = 200, said = {};
    if (path === "fetch") await site.fetches?.();
    if (path === "fetch") said = { jobs: site.jobs.splice(0, body.count) };
    else if (path === "heartbeat") {
      said = await (site.beats?.(body) ?? site.beat);
      status = site.beatStatus ?? 200;
    }
    else {
      site.reports.push([path, body]);
      status = await site.answer(path, body);
    }
    if (status === 0) return request.socket.destroy();
    response.writeHead(status);
    response.end(JSON.stringify(said));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  site.url = `http://127.0.0.1:${server.address().port}`;
  t.after(async () => {
    // A worker ends while its server is there.
    await site.end?.();
    server.close();
    server.closeAllConnections?.();
  });
  return site;
}

async function begin(t, handler, jobs, options = {}) {
  const site = await play(t, jobs);
  const app = new Outlast(site.url);
  app.job("t", handler);
  const log = (line) => site.lines.push(line);
  const worker = new Worker(app, { lease: 3000, grace: 10_000, signals: false, log, ...options });
  const code = worker.run();
  site.end = async () => {
    worker.stop();
    await code;
  };
  return { site, worker, code };
}

/** A worker in a process of its own, with handlers that wait, compute, or start programs. */
async function run(t, site, options) {
  const folder = await mkdtemp(join(tmpdir(), "outlast-")), ids = join(folder, "ids");
  const code = `
    import { spawn } from "node:child_process";
    import { Outlast, Worker } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const app = new Outlast("${site.url}");
    app.job("fork", () => {
      const shell = "sleep 60 & echo $! $$ > ${ids}; wait";
      spawn("sh", ["-c", shell], { detached: true, stdio: "ignore" });
      return new Promise(() => {});
    });
    app.job("t", (job, wait = 0) => new Promise((resolve) => setTimeout(resolve, wait)));
    app.job("crash", () => void setTimeout(() => Promise.reject(new Error("of nobody")), 100));
    app.job("busy", async (job, length = Infinity) => {
      await job.sleep(300);
      for (const end = Date.now() + length; Date.now() < end; );
    });
    process.exit(await new Worker(app, ${options}).run());`;
  await writeFile(join(folder, "worker.mjs"), code);
  const worker = spawn(process.execPath, [join(folder, "worker.mjs")], { stdio: "ignore" });
  t.after(async () => {
    worker.kill("SIGKILL");
    await rm(folder, { recursive: true });
  });
  worker.ids = ids;
  return worker;
}

/** What was reported, in short: the job, and how it ended. */
const ends = (site) =>
  site.reports.map(([path, body]) => `${body.job_id} ${path === "ack" ? path : (body.error?.type ?? "handed back")}`);

async function waitFor(condition, bound = 20_000) {
  for (const end = Date.now() + bound; !condition(); await sleep(20)) assert.ok(Date.now() < end, "waited in vain");
}

describe("a worker", { concurrency: 4 }, () => {
  test("a signal after an ordered drain is the first one", async (t) => {
    let runs = false;
    const handler = async (job) => {
      runs = true;
      await job.sleep(2500);
    };
    const { site, worker, code } = await begin(t, handler, [job()]);
    await waitFor(() => runs);
    site.beat = { state: "terminate" };
    await waitFor(() => site.lines.some((line) => line.startsWith("draining")));
    worker.stop();
    assert.equal(await code, 0);
    assert.deepEqual(ends(site), ["j ack"]);
  });

  test("a second claim of a job without lease is kept", async (t) => {
    let runs = 0, listed;
    const { site } = await begin(t, (job) => job.sleep(++runs === 1 ? 30_000 : 1500), [job("j", { lease: undefined })]);
    site.beats = (body) => {
      listed = body.active_jobs;
      return site.beat;
    };
    await waitFor(() => runs === 1);
    site.jobs.push(job("j", { lease: undefined, attempt: 2 }));
    await waitFor(() => runs === 2 && site.reports.length === 1);
    await sleep(800);
    assert.deepEqual(listed, ["j"]);
  });

  test("a second claim waits no longer than the stop window", async (t) => {
    const { site } = await begin(t, () => sleep(2000), [job()], { stopWindow: 500 });
    await waitFor(() => site.jobs.length === 0);
    site.jobs.push(job("j", { lease: "lease-2", attempt: 2, timeout_ms: 100 }));
    await waitFor(() => site.reports.length === 1);
    const [[path, { lease, requeue }]] = site.reports;
    assert.deepEqual([path, lease, requeue], ["nack", "lease-2", true]);
    await waitFor(() => site.reports.length === 2);
  });

  test("a second signal ends the stop window", async (t) => {
    const site = await play(t, [job("deaf", { args: [60_000] })]);
    const worker = await run(t, site, "{ lease: 3000, grace: 0, stopWindow: 30_000 }");
    let state, active = [];
    site.beats = (body) => {
      ({ state, active_jobs: active } = body);
      return site.beat;
    };
    await waitFor(() => active.length > 0);
    worker.kill("SIGTERM");
    await waitFor(() => state === "terminate");
    await sleep(300);
    worker.kill("SIGTERM");
    assert.deepEqual(await Promise.race([once(worker, "exit"), sleep(20_000)]), [0, null]);
    assert.deepEqual(ends(site), ["deaf shutdown"]);
  });

  test("a job that cannot begin is handed back, and the next ones run", async (t) => {
    const { site } = await begin(t, () => 1, [job("odd", { meta: null }), job("good")]);
    await waitFor(() => site.reports.length >= 2);
    assert.deepEqual(ends(site).sort(), ["good ack", "odd handed back"]);
  });

  test("a new job without a handler is left to other workers", async (t) => {
    const times = { type: "other", enqueued_at: "2030-01-01T00:00:00.1Z", started_at: "2030-01-01T00:01:00.123Z" };
    const { site } = await begin(t, () => 1, [job("new", times)]);
    await waitFor(() => site.reports.length === 1);
    const began = performance.now(), old = { ...times, enqueued_at: "2029-12-31T23:55:00Z" };
    site.jobs.push(job("old", old), job("strange", { type: "other" }));
    await waitFor(() => site.reports.length === 3);
    assert.ok(performance.now() - began > 200);
    assert.deepEqual(ends(site), ["new handed back", "old no_handler", "strange no_handler"]);
    site.jobs.push(job("due", { ...old, scheduled_at: "2030-01-01T00:00:59Z" }));
    await waitFor(() => ends(site).includes("due handed back"));
  });

  test("a report that is not allowed is repeated", async (t) => {
    const { site } = await begin(t, () => 1, []);
    const statuses = [401, 403, 200];
    site.answer = () => statuses.shift();
    site.jobs.push(job());
    await waitFor(() => site.reports.length === 3);
    assert.deepEqual(ends(site), ["j ack", "j ack", "j ack"]);
  });

  test("a report that is too long for the server is given up", async (t) => {
    const { site } = await begin(t, () => "x".repeat(2 << 20), []);
    site.answer = (path) => (path === "ack" ? 0 : 200);
    site.jobs.push(job());
    await waitFor(() => site.reports.some(([path]) => path === "nack"));
    assert.equal(ends(site).at(-1), "j invalid_result");
  });

  test("an error that the server cannot read is reported in other words", async (t) => {
    const { site } = await begin(t, () => { throw new TypeError(`${"x".repeat(8191)}😀`); }, []);
    site.answer = (path, { error }) => (error.type === "invalid_error" ? 200 : 400);
    site.jobs.push(job());
    await waitFor(() => site.reports.length === 2);
    const [first, second] = site.reports.map(([, { error }]) => error);
    assert.equal(first.type, "TypeError");
    assert.equal(first.message.at(-1), "\ufffd");
    assert.equal(second.retryable, true);
  });

  test("what has completed is reported so by the program that hands back", async (t) => {
    const site = await play(t, [job("done"), job("deaf", { args: [60_000] })]);
    site.answer = async (path) => {
      if (path !== "ack" || site.reports.length > 1) return 200;
      await sleep(3000);
      return 503;
    };
    const worker = await run(t, site, "{ grace: 0, stopWindow: 300 }");
    await waitFor(() => site.reports.length > 0);
    worker.kill("SIGTERM");
    assert.deepEqual((await once(worker, "exit"))[0], 0);
    assert.deepEqual(ends(site), ["done ack", "done ack", "deaf shutdown"]);
  });

  test("what handlers have started ends before their jobs are handed back", async (t) => {
    const site = await play(t, [job("j", { type: "fork" })]);
    const worker = await run(t, site, "{ grace: 0, stopWindow: 200 }");
    const textOf = (file) => (existsSync(file) ? readFileSync(file, "latin1") : "");
    const read = () => textOf(worker.ids).trim().split(" ").filter(Boolean);
    await waitFor(() => read().length === 2);
    const states = [];
    site.answer = () => {
      for (const id of read()) states.push(textOf(`/proc/${id}/stat`));
      return 200;
    };
    worker.kill("SIGTERM");
    assert.deepEqual(await once(worker, "exit"), [0, null]);
    assert.equal(states.length, 2);
    for (const state of states) assert.match(state, /^$|\) Z /);
  });

  test("an error that nobody catches ends the worker when its jobs are handed back", async (t) => {
    const jobs = [job("long", { args: [60_000] }), job("bad", { type: "crash" })];
    const site = await play(t, jobs);
    const worker = await run(t, site, "{ lease: 3000 }");
    const [code] = await once(worker, "exit");
    assert.equal(code, 1);
    assert.ok(ends(site).includes("long shutdown"), String(ends(site)));
  });

  test("a handler that is deaf when the server is away ends with its process", async (t) => {
    const site = await play(t, [job("deaf", { args: [60_000] })]);
    const worker = await run(t, site, "{ lease: 2000 }");
    await waitFor(() => site.jobs.length === 0);
    site.beatStatus = 503;
    assert.deepEqual(await once(worker, "exit"), [1, null]);
    assert.deepEqual(ends(site), ["deaf shutdown"]);
  });

  test("a handler that computes when the server is away is killed with its process", async (t) => {
    const site = await play(t, [job("busy", { type: "busy" })]);
    const worker = await run(t, site, "{ lease: 2000 }");
    await waitFor(() => site.jobs.length === 0);
    site.beatStatus = 503;
    assert.deepEqual(await once(worker, "exit"), [null, "SIGKILL"]);
  });

  test("a worker whose handlers have ended waits for its server", async (t) => {
    const { site, code } = await begin(t, () => 1, [], { lease: 2000 });
    site.answer = () => {
      site.beatStatus = 503;
      return 503;
    };
    site.jobs.push(job());
    await waitFor(() => site.reports.length > 0);
    assert.equal(await Promise.race([code, sleep(4000, "it waits")]), "it waits");
    site.beatStatus = 200;
    site.answer = () => 200;
  });

  test("a job that comes when the server is away is stopped, too", async (t) => {
    const { site } = await begin(t, (job) => job.sleep(30_000), [], { lease: 6000 });
    let fetched;
    site.fetches = () => new Promise((resolve) => (fetched = resolve));
    await waitFor(() => fetched !== undefined);
    site.beatStatus = 503;
    await sleep(4600);
    site.jobs.push(job("late"));
    fetched();
    await waitFor(() => site.reports.length > 0);
    assert.deepEqual(ends(site), ["late shutdown"]);
  });

  test("a job that comes while a handler computes is kept", async (t) => {
    const site = await play(t, [job("first", { type: "busy", args: [5000] })]);
    const listed = new Set();
    site.beats = ({ active_jobs: jobs }) => {
      if (site.reports.length === 0) for (const id of jobs) listed.add(id);
      return site.beat;
    };
    site.fetches = async () => {
      // The one after that of the first job is on its way when the handler begins.
      if (site.jobs.length > 0) return;
      await sleep(1000);
      if (!listed.has("second")) site.jobs.push(job("second"));
    };
    await run(t, site, "{ lease: 1500, concurrency: 2 }");
    await waitFor(() => site.reports.length >= 2);
    assert.deepEqual(ends(site).slice(0, 2), ["first ack", "second ack"]);
    assert.deepEqual([...listed], ["first", "second"]);
  });

  test("only attempts that a heartbeat has listed are stopped by its answer", async (t) => {
    let runs = 0;
    const handler = (job) => (++runs === 1 ? job.sleep(30_000) : job.sleep(1500));
    const { site } = await begin(t, handler, [job()], { lease: 6000 });
    await waitFor(() => runs === 1);
    let answered = false;
    site.beats = async ({ active_jobs: listed }) => {
      if (answered || listed.length === 0) return site.beat;
      answered = true;
      // While this answer is on its way, the job comes again with another lease.
      site.jobs.push(job("j", { lease: "lease-2", attempt: 2 }));
      await waitFor(() => runs === 2);
      return { state: "running", stale_jobs: ["j"] };
    };
    await waitFor(() => site.reports.length === 2);
    assert.deepEqual(ends(site), ["j shutdown", "j ack"]);
  });
});

test("a worker without its thread of heartbeats ends", async (t) => {
  let thread;
  process.once("worker", (made) => (thread = made));
  let reason;
  const handler = async (job) => job.sleep(30_000).catch(() => (reason = job.stopReason));
  const { site, code } = await begin(t, handler, [job()]);
  await waitFor(() => thread !== undefined && site.jobs.length === 0);
  await sleep(300);
  await thread.terminate();
  assert.equal(await Promise.race([code, sleep(5000)]), 1);
  assert.equal(reason, "lost");
});
