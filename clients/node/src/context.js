// What a handler knows about the job that it runs.

import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";

import { JobCancelled, OutlastError, Refused } from "./errors.js";

const current = new AsyncLocalStorage();
/** What a server without the standard's extension "durable execution" answers. */
const NOT_OFFERED = [404, 405, 422, 501];

export class JobContext {
  #controller = new AbortController();
  #transport;

  constructor(fetched, transport) {
    this.#transport = transport;
    const { id, type, queue, args = [], meta = {}, attempt = 0, max_attempts: maxAttempts, epoch, lease } = fetched;
    Object.assign(this, { id, type, queue, args, meta, attempt, maxAttempts, epoch, lease });
    /** Time limit of this attempt in milliseconds. */
    this.timeout = fetched.timeout_ms ?? fetched.options?.timeout_ms;
    /** W3C trace context of the producer. Jobs that this one enqueues carry it on. */
    this.traceparent = typeof meta.traceparent === "string" ? meta.traceparent : undefined;
    /** Why the handler is to stop: `cancelled`, `timeout`, `shutdown` or `lost`. */
    this.stopReason = undefined;
  }

  /** Aborted when the handler is to stop: pass it on to what the handler waits for. */
  get signal() {
    return this.#controller.signal;
  }

  /** The same in every attempt: pass it to services that take one. */
  get idempotencyKey() {
    return this.id;
  }

  /** Sleeps; rejects as soon as the handler is to stop. */
  async sleep(milliseconds) {
    await sleep(milliseconds, undefined, { signal: this.signal });
  }

  /** Stores JSON for the next attempt. Resolves to false where the server takes no checkpoints. */
  async checkpoint(state) {
    return (await this.#checkpoint("PUT", { state })) !== null;
  }

  /** What an earlier attempt stored; null if there is nothing. */
  async lastCheckpoint() {
    return (await this.#checkpoint("GET"))?.state ?? null;
  }

  async #checkpoint(method, body) {
    try {
      const path = `/ojs/v1/jobs/${encodeURIComponent(this.id)}/checkpoint`;
      return (await this.#transport.send(method, path, body)) ?? {};
    } catch (error) {
      if (error instanceof Refused && NOT_OFFERED.includes(error.status)) return null;
      throw error;
    }
  }

  /** @internal */
  stop(reason) {
    if (this.stopReason !== undefined) return;
    this.stopReason = reason;
    this.#controller.abort(new JobCancelled(reason));
  }
}

/**
 * For how many milliseconds it was due before it was fetched, by the server's clock; infinite if the
 * server does not say.
 */
export function waited({ enqueued_at: enqueued, scheduled_at: scheduled, started_at: started }) {
  const times = [enqueued, scheduled].filter(Boolean).map((text) => Date.parse(text));
  const length = (started === undefined ? Date.now() : Date.parse(started)) - Math.max(...times);
  return Number.isNaN(length) ? Infinity : length;
}

/** The job that the calling handler runs. */
export function currentJob() {
  const job = current.getStore();
  if (job === undefined) throw new OutlastError("no job runs here: call it in a handler");
  return job;
}

export const findJob = () => current.getStore();
export const runIn = (job, call) => current.run(job, call);
