// `Outlast`: handlers by the type of their jobs, a producer, and a worker in one object.

import { Client } from "./client.js";
import { UsageError } from "./errors.js";
import { merged } from "./options.js";
import { Worker } from "./worker.js";

/** A handler and the type of its jobs. */
export class Task {
  constructor(app, type, handler, options) {
    Object.assign(this, { app, type, handler, options });
  }

  /** The job for these arguments, not stored: for `enqueueAll` and workflows. */
  job(...args) {
    return { type: this.type, args, options: this.options };
  }

  /** Stores a job for these arguments. */
  enqueue(...args) {
    return this.app.client.enqueueJob(this.job(...args));
  }

  /** The same task with other options: `send.using({ delay: 60_000 }).enqueue(…)`. */
  using(options) {
    return new Task(this.app, this.type, this.handler, merged(this.options, options));
  }
}

/** Handlers, and the server that their jobs are on. */
export class Outlast {
  #url;
  #options;
  #client;

  constructor(url, { queue = "default", ...options } = {}) {
    this.#url = url;
    this.#options = options;
    this.queue = queue;
    this.tasks = new Map();
  }

  /** The client, made when it is first used. */
  get client() {
    return (this.#client ??= new Client(this.#url, this.#options));
  }

  /** Uses another server than the one that was given. */
  at(url) {
    this.#url = url;
    this.#client = undefined;
  }

  /** Makes a function the handler of a type of jobs: `app.job("email.send", { retries: 5 }, handler)`. */
  job(type, options, handler) {
    if (typeof options === "function") [options, handler] = [{}, options];
    if (typeof type !== "string" || type === "" || typeof handler !== "function") {
      throw new UsageError("write app.job(TYPE, OPTIONS, HANDLER)");
    }
    if (this.tasks.has(type)) throw new UsageError(`there are two handlers for ${type}`);
    const task = new Task(this, type, handler, merged({ queue: this.queue }, options));
    this.tasks.set(type, task);
    return task;
  }

  /** Stores a job of any type, such as one whose handler is in another program. */
  enqueue(type, args = [], options = {}) {
    return this.client.enqueue(type, args, { queue: this.queue, ...options });
  }

  /** The queues of the handlers. */
  queues() {
    const named = [...this.tasks.values()].map((task) => task.options.queue ?? this.queue);
    return [...new Set(named.length > 0 ? named : [this.queue])];
  }

  /** Runs jobs until SIGTERM or SIGINT, and then what still runs. Resolves to the exit code. */
  run(options) {
    return new Worker(this, options).run();
  }
}
