// The producer's side: enqueue jobs, wait for them, follow events, schedules, workflows.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import { Backoff, now } from "./backoff.js";
import { findJob } from "./context.js";
import {
  Conflict, JobFailed, NotFound, Refused, Unanswered, Unreachable, UsageError, WaitTimeout, WorkflowFailed,
} from "./errors.js";
import { wireOf } from "./options.js";
import { Transport, settingsOf } from "./transport.js";

/** Most jobs of one request. */
const BATCH_MAX = 10_000;
/** Longest that one request waits for an end. */
const LONG_WAIT = 20_000;
const ENDED = ["completed", "cancelled", "discarded"];
const WORKFLOW_ENDED = ["completed", "failed", "cancelled"];

/** A stored job, as it was when it was last looked at. */
export class Job {
  #client;

  constructor(client, raw, deduplicated = false) {
    this.#client = client;
    const { id, type, state, queue, args = [], meta = {}, attempt = 0, result, error } = raw;
    Object.assign(this, { id, type, state, queue, args, meta, attempt, result, error, raw });
    this.deduplicated = deduplicated || raw.deduplicated === true;
  }

  get hasEnded() {
    return ENDED.includes(this.state);
  }

  refresh() {
    return this.#client.get(this.id);
  }

  cancel() {
    return this.#client.cancel(this.id);
  }

  /** Waits until it has ended, however it does. */
  wait(timeout) {
    return this.#client.wait(this.id, timeout);
  }

  /** Waits for its result. Rejects with JobFailed if it ends without one. */
  async waitResult(timeout) {
    const job = await this.wait(timeout);
    if (job.state !== "completed") throw new JobFailed(job);
    return job.result;
  }

  /** Follows what happens to it, to its end. */
  events() {
    return this.#client.events({ job: this.id });
  }
}

/** A workflow, as it was when it was last looked at. */
export class Workflow {
  #client;

  constructor(client, raw) {
    this.#client = client;
    const { id, name, state, steps = [] } = raw;
    Object.assign(this, { id, name, state, steps, raw });
  }

  get hasEnded() {
    return WORKFLOW_ENDED.includes(this.state);
  }

  refresh() {
    return this.#client.getWorkflow(this.id);
  }

  cancel() {
    return this.#client.cancelWorkflow(this.id);
  }

  /** Waits until it has ended. Rejects with WorkflowFailed if it did not complete. */
  async wait(timeout) {
    const workflow = await this.#client.waitWorkflow(this.id, timeout);
    if (workflow.state !== "completed") throw new WorkflowFailed(workflow);
    return workflow;
  }
}

export class Client {
  // Whether the server has Outlast's own paths, once that is known.
  #isOutlast;

  constructor(url, options) {
    this.transport = new Transport(settingsOf(url, options));
  }

  /** Stores a job. It is on the server's disk when this resolves. It may be repeated: there is one. */
  enqueue(type, args = [], options = {}) {
    return this.enqueueJob({ type, args, options });
  }

  async enqueueJob(job) {
    const key = job.options?.idempotencyKey ?? randomUUID();
    const answer = await this.transport.send("POST", "/ojs/v1/jobs", traced(wireOf(job)), { key });
    return new Job(this, answer.job ?? answer, answer.deduplicated === true);
  }

  /** Stores up to 10,000 jobs in one request: all of them or none. */
  async enqueueAll(jobs, { idempotencyKey } = {}) {
    if (jobs.length > BATCH_MAX) {
      throw new UsageError(`${jobs.length} jobs are too many for one request; ${BATCH_MAX} are not`);
    }
    if (jobs.some((job) => job.options?.idempotencyKey !== undefined)) {
      throw new UsageError("a batch has one `idempotencyKey`: give it to `enqueueAll`");
    }
    if (jobs.length === 0) return [];
    // With `ignore`, the answer to a repeated request could not be the same.
    const repeat = !jobs.some((job) => job.options?.unique?.onConflict === "ignore");
    const key = idempotencyKey ?? (repeat ? randomUUID() : undefined);
    const body = { jobs: jobs.map((job) => traced(wireOf(job))) };
    const answer = await this.transport.send("POST", "/ojs/v1/jobs/batch", body, { key, repeat });
    return answer.jobs.map((raw) => new Job(this, raw));
  }

  async get(id) {
    const answer = await this.transport.send("GET", path("jobs", id));
    return new Job(this, answer.job ?? answer);
  }

  /** Cancels a job. Cancelling twice is not an error; one that has ended otherwise is. */
  async cancel(id) {
    try {
      const answer = await this.transport.send("DELETE", path("jobs", id));
      return new Job(this, answer.job ?? answer);
    } catch (error) {
      const job = error instanceof Conflict ? await this.get(id) : undefined;
      if (job?.state === "cancelled") return job;
      throw error;
    }
  }

  /** Waits until a job has ended, however it does. Rejects with WaitTimeout. */
  wait(id, timeout = 60_000) {
    return this.#wait(`job ${id}`, timeout, `/api/v1/executions/${encodeURIComponent(id)}`, () => this.get(id));
  }

  async #wait(what, timeout, long, look) {
    const end = now() + timeout;
    const backoff = new Backoff();
    for (let last; ; ) {
      try {
        last = await look();
      } catch (error) {
        // Until the time is over the server may come back.
        if (!(error instanceof Unreachable || error.status >= 500)) throw error;
      }
      if (last?.hasEnded) return last;
      const left = end - now();
      if (left <= 0) throw new WaitTimeout(what, timeout, last);
      if (!(await this.#longWait(long, left))) await sleep(Math.min(backoff.pause(), left));
    }
  }

  /** Waits in one request for the end of something, at a server that can. */
  async #longWait(path, left) {
    if (this.#isOutlast === false) return false;
    const wait = Math.min(left, LONG_WAIT);
    try {
      const timeout = wait + this.transport.settings.timeout;
      await this.transport.once("GET", `${path}?wait=${Math.ceil(wait)}ms`, undefined, { timeout });
      this.#isOutlast = true;
      return true;
    } catch (error) {
      if (error instanceof Unanswered) return false;
      if (!(error instanceof Refused)) throw error;
      if ([404, 405, 501].includes(error.status)) this.#isOutlast = false;
      return false;
    }
  }

  /**
   * Follows events, from now on, or after the event with the id `after`. It reconnects by itself and
   * goes on after the last event, so none is missed or repeated. Those of one job are all of them, and
   * end with the job.
   */
  async *events({ job, types = [], queues = [], after } = {}) {
    const query = new URLSearchParams();
    if (job !== undefined) query.set("job_id", job);
    if (types.length > 0) query.set("types", types.join(","));
    if (queues.length > 0) query.set("queues", queues.join(","));
    if (after === undefined) {
      // What has happened to a job so far, or where all events are now: nothing is missed if the
      // connection is lost before the first event.
      const page = new URLSearchParams(job === undefined ? { newest: "true", limit: "1" } : query);
      page.set("stream", "false");
      let answer;
      try {
        answer = await this.transport.send("GET", `/api/v1/events?${page}`);
      } catch (error) {
        if (!(error instanceof Refused && [404, 405].includes(error.status))) throw error;
        yield* this.#polledEvents(query, after);
        return;
      }
      const first = job === undefined ? [] : answer.data.map((raw) => eventOf(raw));
      after = first.at(-1)?.id ?? answer.next_cursor ?? undefined;
      yield* first;
    }
    for (const backoff = new Backoff(); ; ) {
      try {
        const events = await this.transport.stream(`/api/v1/events?${query}`, after);
        if (events === null) return;
        for await (const { id, raw } of events) {
          after = id;
          backoff.reset();
          yield eventOf(raw, id);
        }
        await sleep(backoff.pause());
      } catch (error) {
        if (error instanceof Refused && [404, 405].includes(error.status)) {
          yield* this.#polledEvents(query, after);
          return;
        }
        if (!(error instanceof Unanswered || error.isForNow)) throw error;
        await sleep(backoff.pause(error.retryAfter));
      }
    }
  }

  /** The standard's own way, for servers without a stream. */
  async *#polledEvents(query, after) {
    for (const backoff = new Backoff(200, 2000); ; ) {
      if (after !== undefined) query.set("after", after);
      const answer = await this.transport.send("GET", `/ojs/v1/events?${query}`);
      const found = (answer.events ?? []).map((raw) => eventOf(raw));
      yield* found;
      after = answer.next_cursor ?? found.at(-1)?.id ?? after;
      if (found.length > 0) backoff.reset();
      else if (query.has("job_id") && (await this.get(query.get("job_id"))).hasEnded) return;
      else await sleep(backoff.pause());
    }
  }

  /** Begins a workflow: `chain(…)`, `group(…)`, `batch(…)` or a `Graph`. */
  async start(workflow, { name, idempotencyKey } = {}) {
    const body = { ...workflow.wire(), ...(name !== undefined && { name }) };
    const key = idempotencyKey ?? randomUUID();
    const answer = await this.transport.send("POST", "/ojs/v1/workflows", body, { key });
    return new Workflow(this, answer.workflow ?? answer);
  }

  async getWorkflow(id) {
    const answer = await this.transport.send("GET", path("workflows", id));
    return new Workflow(this, answer.workflow ?? answer);
  }

  async cancelWorkflow(id) {
    const answer = await this.transport.send("DELETE", path("workflows", id));
    return new Workflow(this, answer.workflow ?? answer);
  }

  waitWorkflow(id, timeout = 60_000) {
    const long = `/api/v1/workflows/${encodeURIComponent(id)}`;
    return this.#wait(`workflow ${id}`, timeout, long, () => this.getWorkflow(id));
  }

  /** Sets a schedule, or changes it: `job` is enqueued at the times of `cron`. */
  async schedule(name, cron, job, { timeZone, overlap } = {}) {
    const body = { name, cron, ...wireOf(job) };
    if (timeZone !== undefined) body.timezone = timeZone;
    if (overlap !== undefined) body.overlap_policy = overlap;
    const answer = await this.transport.send("POST", "/ojs/v1/cron", body);
    return answer.cron ?? answer;
  }

  async schedules() {
    const answer = await this.transport.send("GET", "/ojs/v1/cron");
    return answer.crons ?? answer.cron_jobs ?? [];
  }

  pauseSchedule(name) {
    return this.#switch(name, false);
  }

  resumeSchedule(name) {
    return this.#switch(name, true);
  }

  async #switch(name, enabled) {
    const answer = await this.transport.send("PATCH", path("cron", name), { enabled });
    return answer.cron ?? answer;
  }

  /** Removes a schedule. Its jobs stay; that it is not there is not an error. */
  async removeSchedule(name) {
    try {
      await this.transport.send("DELETE", path("cron", name));
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }
}

const path = (kind, id) => `/ojs/v1/${kind}/${encodeURIComponent(id)}`;

function eventOf(raw, id) {
  return { id: id ?? raw.id, type: raw.type, time: raw.time, data: raw.data ?? {} };
}

/** With the trace of the job that enqueues it, if there is one and it says nothing else. */
function traced(job) {
  const traceparent = findJob()?.traceparent;
  return traceparent === undefined ? job : { ...job, meta: { traceparent, ...job.meta } };
}

