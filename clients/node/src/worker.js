// A worker: fetches jobs, runs their handlers, beats, and ends without losing one.
//
//     running ──SIGTERM, an order──▶ draining ──none runs──▶ goodbye, exit code 0
//       │ ▲                            │
//     quiet order, SIGTSTP             └─ grace over, 2nd SIGTERM ─▶ stopping ─▶ handed back
//       ▼ │                                                          (3rd SIGTERM: exit code 1)
//      quiet ──resume, SIGCONT
//
// It takes no more jobs than it has slots. Heartbeats and fetches have a thread of their own (`beats.js`).

import { spawnSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Worker as Thread } from "node:worker_threads";

import { Backoff, now } from "./backoff.js";
import { JobContext, runIn, waited } from "./context.js";
import { OutlastError, Refused, Unanswered, UsageError } from "./errors.js";
import { completed, failed, handedBack, isFinal, outcomeOf, refused, stopped, textOf } from "./outcome.js";
import { Transport, encode } from "./transport.js";

/** Most jobs of one fetch, and longest that a server lets it wait for one. */
const FETCH_MAX = 1000, FETCH_WAIT = 10_000;
/** Pause after an empty answer of a server that does not wait for jobs. */
const POLL_PAUSE = 1000;
/** How often the times are looked at. */
const TICK = 50;
/** The parts of a lease after which handlers are stopped for want of a server, and ended. */
const PATIENCE = 0.7, PATIENCE_MAX = 0.9;
/** How long handlers have after a second SIGTERM. */
const FORCED_WINDOW = 500;
/** How long the last fetch of a drain is waited for, and what it may bring. */
const LAST_FETCH = 1000;
/** How long the last reports may take after the last handler had to end. */
const REPORT_WINDOW = 5000;
/** How long a server's own error may answer the same report. */
const ERROR_PATIENCE = 300_000;
/** First and longest pause after a job that could not begin, and how long pauses are remembered. */
const PAUSE = 500, PAUSE_MAX = 10_000, PAUSE_MEMORY = 60_000;
/** A report of more bytes is given up when so many tries were not answered, but heartbeats were. */
const UNREAD_MAX = 3, BODY_LARGE = 1 << 20;

/** Where the environment says how long jobs may go on after SIGTERM. Two are the standard's. */
const GRACE = ["OUTLAST_GRACE", "OJS_GRACE_PERIOD", "OJS_SHUTDOWN_GRACE_PERIOD"];
/** Units of lengths of time in the environment, as the server and its workers have them. */
const UNITS = { "": 1000, ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** What the environment says; the first of these names that is there counts. */
function setting(standard, ...names) {
  for (const name of names) {
    const text = process.env[name];
    if (!text) continue;
    const found = /^(\d+(?:\.\d+)?)(ms|[smhd]?)$/.exec(text);
    if (found === null) throw new UsageError(`${name} is a number of seconds, 500ms, 30s or 5m, not ${text}`);
    return Number(found[1]) * UNITS[found[2]];
  }
  return standard;
}

export class Worker {
  #transport;
  #running = new Set();
  #attempts = 0;
  #signals = 0;
  #wasOrderedToEnd = false;
  #isDraining = false;
  #isQuiet = false;
  #hasCrashed = false;
  #wasOrderedQuiet = false;
  // Jobs are fetched once the server knows the worker.
  #isKnown = false;
  #isOver = false;
  // Since when there is no server, as far as is known.
  #cutOff;
  // No jobs are fetched before.
  #fetchesAt = 0;
  #pauses = new Backoff(PAUSE, PAUSE_MAX);
  // When the latest heartbeat that was answered was sent; the thread of heartbeats writes it.
  #answered = new Float64Array(new SharedArrayBuffer(8));
  #thread;
  // The thread of heartbeats has ended.
  #isMute = false;
  #wake = () => {};
  // What waits for the answer of a fetch.
  #asked;

  constructor(app, options = {}) {
    const {
      concurrency = 10, queues, name = hostname(), lease = setting(30_000, "OUTLAST_LEASE"),
      grace = setting(30_000, ...GRACE), stopWindow = 5000,
      noHandlerWindow = 300_000, signals = true,
      log = (text) => console.error(`${new Date().toISOString()} ${text}`),
    } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 10_000) {
      throw new UsageError("`concurrency` is from 1 to 10000");
    }
    if (app.tasks.size === 0) throw new UsageError("there is no handler: write one with app.job(TYPE, HANDLER)");
    if (!(lease >= 1000)) throw new UsageError("`lease` is at least 1000 milliseconds");
    Object.assign(this, { app, concurrency, lease, grace, stopWindow, noHandlerWindow, signals, log });
    this.queues = queues?.length > 0 ? queues : app.queues();
    // Each process is a worker of its own.
    this.id = `${name}-${randomUUID()}`;
    this.#transport = new Transport(app.client.transport.settings);
  }

  /** Runs until a signal or an order stops it and nothing runs; resolves to the exit code. */
  async run() {
    const restore = this.signals ? this.#catchSignals() : () => {};
    this.log(`worker ${this.id} takes jobs from ${this.queues.join(", ")}`);
    this.#answered[0] = now();
    const { settings } = this.#transport;
    const said = {
      worker_id: this.id, queues: this.queues, concurrency: this.concurrency, hostname: hostname(),
    };
    this.#thread = new Thread(new URL("./beats.js", import.meta.url), {
      workerData: {
        settings, lease: this.lease, said, answered: this.#answered.buffer,
        patience: PATIENCE * this.lease, stopTime: (PATIENCE_MAX - PATIENCE) * this.lease,
      },
    });
    this.#thread.on("message", (message) => this.#heard(message));
    this.#thread.on("error", (error) => this.log(`heartbeats: ${error.stack}`));
    this.#thread.on("exit", () => (this.#isMute = true));
    const fetches = this.#fetches();
    try {
      return await this.#work(fetches);
    } finally {
      this.#isOver = true;
      this.#wake();
      await this.#thread.terminate();
      restore();
    }
  }

  /** Drains the worker, as SIGTERM does. Called again, it ends the grace. */
  stop() {
    this.#signals += 1;
  }

  #catchSignals() {
    const onStop = () => {
      this.stop();
      if (this.#signals > 2) process.exit(1);
    };
    const quiet = (isQuiet) => () => {
      this.#isQuiet = isQuiet;
      this.#tell(true);
      this.#wake();
    };
    const handlers = { SIGTERM: onStop, SIGINT: onStop, SIGTSTP: quiet(true), SIGCONT: quiet(false) };
    // Nothing catches it, so the process ends; other jobs do not wait for their leases.
    if (process.listenerCount("uncaughtException") === 0) handlers.uncaughtException = this.#crash;
    for (const [name, handler] of Object.entries(handlers)) process.on(name, handler);
    return () => {
      for (const [name, handler] of Object.entries(handlers)) process.off(name, handler);
    };
  }

  async #work(fetches) {
    let graceEnds = Infinity, stopsEnd = Infinity, reportsEnd = Infinity;
    for (;;) {
      await sleep(TICK);
      const time = now(), attempts = [...this.#running];
      if (this.#isMute) {
        this.log("no heartbeats any more: the worker ends, and its jobs run elsewhere");
        this.#isDraining = true;
        for (const { job } of attempts) job.stop("lost");
        // So that handlers hear of it.
        await sleep(TICK);
        return 1;
      }
      if (this.#keepTimes(attempts, time)) await this.#handBackAndExit(1);
      if ((this.#signals > 0 || this.#wasOrderedToEnd) && !this.#isDraining) {
        this.log(`draining: ${attempts.length} jobs run, for ${this.grace / 1000} s at most`);
        this.#isDraining = true;
        this.#tell(true);
        this.#wake();
        graceEnds = time + this.grace;
      }
      if (this.#signals > 1) {
        graceEnds = Math.min(graceEnds, time);
        this.stopWindow = Math.min(this.stopWindow, FORCED_WINDOW);
        if (stopsEnd < Infinity) stopsEnd = Math.min(stopsEnd, time + FORCED_WINDOW);
      }
      if (!this.#isDraining) continue;
      if (attempts.length === 0) return this.#leave(fetches);
      if (stopsEnd === Infinity && time >= graceEnds) {
        this.log("stopping what runs");
        stopsEnd = time + this.stopWindow;
        for (const attempt of attempts) attempt.job.stop("shutdown");
      }
      if (reportsEnd === Infinity && time >= stopsEnd) {
        reportsEnd = time + REPORT_WINDOW;
        const left = attempts.filter((attempt) => !attempt.performed);
        if (left.length > 0) await this.#handBackAndExit();
      }
      if (time >= reportsEnd) {
        this.log(`${attempts.length} jobs are left: they run elsewhere when the lease is over`);
        return 1;
      }
    }
  }

  /** Stops handlers. Returns whether one only ends with this process. */
  #keepTimes(attempts, time) {
    for (const { job, began, performed } of attempts) {
      if (job.timeout && !performed && began !== undefined && time > began + job.timeout) job.stop("timeout");
    }
    if (time <= this.#answered[0] + PATIENCE * this.lease) {
      this.#cutOff = undefined;
      return false;
    }
    if (this.#cutOff === undefined) {
      this.#cutOff = time;
      if (attempts.length > 0) this.log("no server: jobs are stopped, as they may soon run elsewhere");
    }
    for (const { job } of attempts) job.stop("lost");
    // Not by the lease alone: a machine that wakes up finds its server again.
    if (time <= this.#cutOff + (PATIENCE_MAX - PATIENCE) * this.lease) return false;
    return attempts.some(({ performed }) => !performed);
  }

  /** Says goodbye: jobs that came at the last moment run elsewhere at once. */
  async #leave(fetches) {
    await Promise.race([fetches, sleep(LAST_FETCH)]);
    // What the last fetch has brought is handed back by its own report.
    const last = [...this.#running].map(({ ended }) => ended);
    await Promise.race([Promise.all(last), sleep(LAST_FETCH)]);
    const left = new Promise((resolve) => this.#thread.on("message", (message) => message.left && resolve()));
    this.#thread.postMessage({ state: "terminate", jobs: [], leaves: true });
    await Promise.race([left, sleep(2000)]);
    this.log("ended");
    return 0;
  }

  /** Hands jobs back when an error has been caught by nobody. */
  #crash = (error) => {
    if (this.#hasCrashed) return;
    this.#hasCrashed = true;
    this.log(`an error was not caught, and ends the worker: ${error?.stack ?? error}`);
    this.#handBackAndExit(1).catch(() => process.exit(1));
  };

  /**
   * Hands back jobs whose handlers do not end. None of them runs on while another program reports.
   * What other handlers have come to is reported as well. `code` is the exit code when all was.
   */
  async #handBackAndExit(code = 0) {
    await this.#thread.terminate();
    this.log("handlers do not end: the process ends with them");
    const reports = [...this.#running].map(({ raw, job, outcome = stopped(job) }) => [
      outcome.path, { ...this.#about(raw), ...outcome.fields },
    ]);
    const input = JSON.stringify({ settings: this.#transport.settings, worker: this.id, reports });
    const program = fileURLToPath(new URL("./handback.js", import.meta.url));
    const { status } = spawnSync(process.execPath, [program], { input, timeout: 10_000 });
    this.log(status === 0 ? `${reports.length} jobs reported or handed back; ended` : "jobs are left: they run elsewhere when the lease is over");
    process.exit(status === 0 ? code : 1);
  }

  // Heartbeats.

  #tell(beat = false, hasTaken = false) {
    const state = this.#isDraining ? "terminate" : this.#isQuiet ? "quiet" : "running";
    const jobs = [...new Set([...this.#running].map(({ job }) => job.id))];
    const attempts = [...this.#running].map(({ number }) => number);
    const isBusy = [...this.#running].some(({ performed }) => !performed);
    this.#thread?.postMessage({ state, jobs, attempts, isBusy, beat, hasTaken });
  }

  #heard({ failed: reason, answer, attempts, fetched, refused: error }) {
    if (fetched !== undefined) this.#asked.resolve(fetched);
    if (error !== undefined) this.#asked.reject(error);
    if (reason !== undefined) this.log(`no heartbeat: ${reason}`);
    if (answer === undefined) return;
    // Cancelled, or not this worker's any more.
    const stale = new Set(answer.stale_jobs ?? []);
    for (const { job, number, performed } of this.#running) {
      // One that began after that heartbeat is a newer claim.
      if (!stale.has(job.id) || !attempts.includes(number) || performed) continue;
      this.log(`job ${job.id} is stopped: it was cancelled or runs elsewhere`);
      job.stop("cancelled");
    }
    if (answer.state === "terminate" && !this.#isDraining && !this.#wasOrderedToEnd) {
      this.log("ordered to drain");
      this.#wasOrderedToEnd = true;
    }
    const isQuiet = answer.state === "quiet";
    if (isQuiet !== this.#wasOrderedQuiet) this.log(isQuiet ? "ordered to take no jobs" : "takes jobs again");
    this.#wasOrderedQuiet = isQuiet;
    this.#isKnown = true;
    this.#wake();
  }

  // Jobs.

  #free() {
    if (!this.#isKnown || this.#isQuiet || this.#wasOrderedQuiet) return 0;
    if (this.#cutOff !== undefined || now() < this.#fetchesAt) return 0;
    return Math.min(this.concurrency - this.#running.size, FETCH_MAX);
  }

  /** Takes no jobs for a while, longer each time, so that others get what it hands back. */
  #pause() {
    const time = now();
    if (time > this.#fetchesAt + PAUSE_MEMORY) this.#pauses.reset();
    if (time > this.#fetchesAt) this.#fetchesAt = time + this.#pauses.pause();
  }

  #changed() {
    return Promise.race([new Promise((resolve) => (this.#wake = resolve)), sleep(4 * TICK)]);
  }

  async #fetches() {
    const backoff = new Backoff(100, 5000);
    while (!this.#isDraining) {
      const free = this.#free();
      if (free <= 0) {
        await this.#changed();
        continue;
      }
      try {
        await this.#fetch(free);
        backoff.reset();
      } catch (error) {
        this.log(`no jobs: ${error.message}`);
        await sleep(backoff.pause(error.retryAfter));
      }
    }
  }

  async #fetch(free) {
    const fetch = {
      queues: this.queues, count: free, worker_id: this.id, wait_ms: FETCH_WAIT,
      // Should the answer be lost, its jobs run elsewhere when this is over.
      visibility_timeout_ms: Math.round(this.lease),
    };
    const asked = now();
    const jobs = await new Promise((resolve, reject) => {
      this.#asked = { resolve, reject };
      this.#thread.postMessage({ fetch, timeout: FETCH_WAIT + 10_000 });
    });
    const back = [];
    for (const fetched of jobs) {
      try {
        this.#start(fetched);
      } catch (error) {
        this.log(`job ${fetched.id} cannot begin: ${error.message}`);
        back.push(fetched);
      }
    }
    this.#tell(false, true);
    for (const fetched of back) {
      const body = encode({ ...this.#about(fetched), requeue: true });
      await this.#transport.once("POST", "/ojs/v1/workers/nack", body);
    }
    // So that the next fetch waits a moment.
    if (back.length > 0) throw new OutlastError(`${back.length} jobs could not begin`);
    if (jobs.length === 0 && now() - asked < FETCH_WAIT / 2 && !this.#isDraining) {
      // A server that does not wait for jobs, or holds none for a worker that is quiet.
      await sleep(POLL_PAUSE * (0.5 + Math.random() / 2));
    }
  }

  #start(fetched) {
    const job = new JobContext(fetched, this.#transport);
    const attempt = { raw: fetched, job, number: ++this.#attempts, performed: false };
    // `began`: its time limit counts from then on. `ended`: when it is reported.
    // A claim after one that this worker has lost: two never run at the same time here.
    const same = [...this.#running].filter((other) => other.job.id === job.id);
    for (const other of same) other.job.stop("lost");
    this.#running.add(attempt);
    this.#tell();
    const ended = this.#attempt(attempt, same);
    attempt.ended = ended.catch((error) => this.log(`job ${job.id}: ${error.stack}`)).finally(() => {
      this.#running.delete(attempt);
      this.#tell();
      this.#wake();
    });
  }

  async #attempt(attempt, before) {
    const { job } = attempt;
    const ends = before.map(({ ended }) => ended);
    if (ends.length > 0) await Promise.race([Promise.all(ends), sleep(this.stopWindow)]);
    attempt.began = now();
    const reason = this.#hindrance(attempt, before);
    let outcome;
    if (this.#isDraining) {
      // It came when the worker had begun to drain.
      outcome = handedBack();
    } else if (reason !== undefined) {
      this.log(`job ${job.id} is left to other workers: ${reason}`);
      this.#pause();
      outcome = handedBack();
    } else {
      outcome = await this.#perform(job);
    }
    attempt.outcome = outcome;
    attempt.performed = true;
    this.#tell();
    this.log(`job ${job.id} (${job.type}): ${textOf(outcome)}, ${((now() - attempt.began) / 1000).toFixed(2)} s`);
    await this.#report(attempt, outcome);
  }

  /** Why it cannot begin here for now, if so. */
  #hindrance({ raw, job }, before) {
    if (before.some(({ performed }) => !performed)) return "its attempt before does not end here";
    const isNew = waited(raw) < this.noHandlerWindow;
    return isNew && !this.app.tasks.has(job.type) ? `no handler for ${job.type}` : undefined;
  }

  async #perform(job) {
    const task = this.app.tasks.get(job.type);
    // Another worker may have one, of a newer version say.
    if (task === undefined) return failed("no_handler", `no handler for ${job.type}`);
    try {
      job.signal.throwIfAborted();
      return completed(await runIn(job, () => task.handler(job, ...job.args)));
    } catch (thrown) {
      return outcomeOf(thrown, job);
    }
  }

  /** What a report says of the attempt, so that one of an older claim is refused. */
  #about({ id, attempt, lease }) {
    return { job_id: id, worker_id: this.id, attempt, lease };
  }

  /** Reports an end again and again, until a server has stored or refused it. */
  async #report(attempt, outcome) {
    const backoff = new Backoff(100, 5000), began = now(), { id } = attempt.job;
    // Tries that were not answered while the server was there, and when the latest one failed.
    let unread = 0, unreadAt = began;
    while (!this.#isOver) {
      let asked;
      const body = encode({ ...this.#about(attempt.raw), ...outcome.fields });
      const length = Buffer.byteLength(body);
      try {
        const answer = await this.#transport.once("POST", `/ojs/v1/workers/${outcome.path}`, body);
        if (answer?.acknowledged === false) this.log(`job ${id} was cancelled: nothing came of the attempt`);
        return;
      } catch (error) {
        if (error instanceof Refused) {
          const instead = [400, 413, 422].includes(error.status) ? refused(outcome, error.message) : undefined;
          if (instead !== undefined) {
            outcome = attempt.outcome = instead;
            continue;
          }
          if (error.status === 409) {
            this.log(`job ${id} is not this worker's any more: ${error.message}`);
            return;
          }
          if (isFinal(error) || now() - began > ERROR_PATIENCE) {
            this.log(`job ${id}: the report is refused: ${error.message}`);
            return;
          }
          asked = error.retryAfter;
        } else if (error instanceof Unanswered) {
          if (error.sent && length > BODY_LARGE && this.#answered[0] > unreadAt) {
            unread += 1;
            unreadAt = now();
          }
          if (unread === UNREAD_MAX) {
            // Servers may close the connection on what is too long, and are not heard then.
            const text = `the report of ${length} bytes is not answered: ${error.message}`;
            outcome = attempt.outcome = refused(outcome, text) ?? outcome;
            unread = 0;
          }
        }
      }
      await sleep(backoff.pause(asked));
    }
  }
}
