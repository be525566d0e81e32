/** Enqueue jobs and run them, on an Outlast server or any other of the Open Job Spec. */

/** Lengths of time are milliseconds. */
export type Milliseconds = number;

export interface ConnectOptions {
  /** Bearer token. Otherwise `OUTLAST_TOKEN`. */
  token?: string;
  /** A file with the token, read for each request. Otherwise `OUTLAST_TOKEN_FILE`. */
  tokenFile?: string;
  tenant?: string;
  /** Time limit of one request and its answer. Default: 10 000. */
  timeout?: Milliseconds;
  /** How long a request that may be repeated is repeated. Default: 30 000. */
  retryFor?: Milliseconds;
}

export interface Retry {
  /** In all, the first included. */
  maxAttempts?: number;
  firstPause?: Milliseconds;
  longestPause?: Milliseconds;
  /** The factor from each pause to the next. */
  factor?: number;
  strategy?: "exponential" | "linear" | "constant" | "polynomial";
  jitter?: boolean;
  /** Types of errors after which there is no further attempt, such as `TypeError`. */
  neverFor?: string[];
  /** Whether a job without attempts left becomes a dead letter; otherwise it is discarded. */
  deadLetter?: boolean;
}

export interface Unique {
  /** Whether other arguments make another job. Default: true. */
  byArgs?: boolean;
  /** Only these fields of the first argument that is an object count. */
  argsKeys?: string[];
  byQueue?: boolean;
  metaKeys?: string[];
  /** For how long after it was stored a job is in the way; otherwise in its `states`. */
  period?: Milliseconds;
  states?: string[];
  /** `reject` (rejects with Conflict) is the default. */
  onConflict?: "reject" | "ignore" | "replace" | "replace_except_schedule";
}

/** How a job is to be run. What is left out has the server's defaults. */
export interface Options {
  queue?: string;
  /** From -100 to 100; higher goes first in its queue. */
  priority?: number;
  delay?: Milliseconds;
  at?: Date | string | number;
  expiresAfter?: Milliseconds;
  /** Time limit of one attempt. */
  timeout?: Milliseconds;
  /** Tries after the first one; `retry` says more. */
  retries?: number;
  retry?: Retry;
  unique?: Unique;
  /** Any JSON; handlers and lists show it. */
  meta?: Record<string, unknown>;
  /** Makes the request safe to send again, also after a crash of this program. */
  idempotencyKey?: string;
  tags?: string[];
  /** Outlast only: what the job belongs to. */
  keys?: Record<string, string | number>;
  /** Outlast only: labels that its worker must have. */
  requires?: string;
  /** Outlast only: labels that its worker should have. */
  prefers?: string;
  /** Options by their name in the protocol, for those that are not here. */
  more?: Record<string, unknown>;
}

/** A job that is not stored yet: for `enqueueAll` and workflows. */
export interface NewJob {
  type: string;
  args?: unknown[];
  options?: Options;
}

export interface Event {
  /** Where a reader that saves it goes on: `events({ after: event.id })`. */
  id: string;
  /** Such as `job.completed`. */
  type: string;
  time: string;
  data: Record<string, unknown>;
}

/** A stored job, as it was when it was last looked at. */
export class Job<R = unknown> {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly queue: string;
  readonly args: unknown[];
  readonly meta: Record<string, unknown>;
  readonly attempt: number;
  readonly result: R | undefined;
  readonly error: { type?: string; message?: string; [name: string]: unknown } | undefined;
  readonly deduplicated: boolean;
  readonly raw: Record<string, unknown>;
  get hasEnded(): boolean;
  refresh(): Promise<Job<R>>;
  cancel(): Promise<Job<R>>;
  wait(timeout?: Milliseconds): Promise<Job<R>>;
  waitResult(timeout?: Milliseconds): Promise<R>;
  events(): AsyncGenerator<Event, void, undefined>;
}

export class Workflow {
  readonly id: string;
  readonly name: string | undefined;
  readonly state: string;
  readonly steps: Record<string, unknown>[];
  readonly raw: Record<string, unknown>;
  get hasEnded(): boolean;
  refresh(): Promise<Workflow>;
  cancel(): Promise<Workflow>;
  wait(timeout?: Milliseconds): Promise<Workflow>;
}

declare const form: unique symbol;
export interface Form {
  readonly [form]: true;
}
type Part = NewJob | Form;
export function chain(...parts: Part[]): Form;
export function group(...parts: Part[]): Form;
export function batch(
  parts: Part[],
  callbacks: { onComplete?: NewJob; onSuccess?: NewJob; onFailure?: NewJob },
): Form;
export class Graph {
  constructor(name?: string);
  step(id: string, job: NewJob, ...after: string[]): this;
}

export class Client {
  /** `url` may name several servers with commas between them. Otherwise `OUTLAST_SERVER`. */
  constructor(url?: string, options?: ConnectOptions);
  enqueue(type: string, args?: unknown[], options?: Options): Promise<Job>;
  enqueueJob(job: NewJob): Promise<Job>;
  enqueueAll(jobs: NewJob[], options?: { idempotencyKey?: string }): Promise<Job[]>;
  get(id: string): Promise<Job>;
  cancel(id: string): Promise<Job>;
  wait(id: string, timeout?: Milliseconds): Promise<Job>;
  events(filter?: {
    job?: string;
    types?: string[];
    queues?: string[];
    after?: string;
  }): AsyncGenerator<Event, void, undefined>;
  start(workflow: Form | Graph, options?: { name?: string; idempotencyKey?: string }): Promise<Workflow>;
  getWorkflow(id: string): Promise<Workflow>;
  cancelWorkflow(id: string): Promise<Workflow>;
  waitWorkflow(id: string, timeout?: Milliseconds): Promise<Workflow>;
  schedule(
    name: string,
    cron: string,
    job: NewJob,
    options?: { timeZone?: string; overlap?: "skip" | "allow" | "cancel_previous" | "enqueue" },
  ): Promise<Record<string, unknown>>;
  schedules(): Promise<Record<string, unknown>[]>;
  pauseSchedule(name: string): Promise<Record<string, unknown>>;
  resumeSchedule(name: string): Promise<Record<string, unknown>>;
  removeSchedule(name: string): Promise<void>;
}

/** The job that runs. */
export class JobContext {
  readonly id: string;
  readonly type: string;
  readonly queue: string;
  readonly args: unknown[];
  readonly meta: Record<string, unknown>;
  /** Which attempt this is, from 1. Those that were interrupted do not count. */
  readonly attempt: number;
  readonly maxAttempts: number | undefined;
  readonly epoch: number | undefined;
  readonly timeout: Milliseconds | undefined;
  readonly traceparent: string | undefined;
  readonly stopReason: "cancelled" | "timeout" | "shutdown" | "lost" | undefined;
  /** Aborted when the handler is to stop: pass it on to what the handler waits for. */
  get signal(): AbortSignal;
  get idempotencyKey(): string;
  /** Sleeps; rejects as soon as the handler is to stop. */
  sleep(milliseconds: Milliseconds): Promise<void>;
  /** Stores JSON for the next attempt. Resolves to false where the server takes no checkpoints. */
  checkpoint(state: unknown): Promise<boolean>;
  lastCheckpoint(): Promise<unknown>;
}

export function currentJob(): JobContext;

export type Handler<A extends unknown[], R> = (job: JobContext, ...args: A) => R | Promise<R>;

export class Task<A extends unknown[] = unknown[], R = unknown> {
  readonly type: string;
  readonly options: Options;
  job(...args: A): NewJob;
  enqueue(...args: A): Promise<Job<R>>;
  using(options: Options): Task<A, R>;
}

export interface WorkerOptions {
  /** Jobs at the same time. Default: 10. */
  concurrency?: number;
  /** Default: the queues of the handlers. */
  queues?: string[];
  /** What its id begins with. Default: the host's name. */
  name?: string;
  /** `ojs.lease` of the server. Default: 30 000. */
  lease?: Milliseconds;
  /** How long jobs may go on after SIGTERM. Default: `OUTLAST_GRACE` or `OJS_GRACE_PERIOD`, else 30 000. */
  grace?: Milliseconds;
  /** How long a handler may take to end when it is stopped. Default: 5000. */
  stopWindow?: Milliseconds;
  /** How long after it was due a job without a handler here is left to other workers. Default: 300 000. */
  noHandlerWindow?: Milliseconds;
  /** Whether SIGTERM, SIGINT, SIGTSTP and SIGCONT are handled. Default: true. */
  signals?: boolean;
  log?: (text: string) => void;
}

export class Outlast {
  constructor(url?: string, options?: ConnectOptions & { queue?: string });
  readonly queue: string;
  get client(): Client;
  at(url: string): void;
  job<A extends unknown[], R>(type: string, handler: Handler<A, R>): Task<A, R>;
  job<A extends unknown[], R>(type: string, options: Options, handler: Handler<A, R>): Task<A, R>;
  enqueue(type: string, args?: unknown[], options?: Options): Promise<Job>;
  queues(): string[];
  /** Runs jobs until SIGTERM or SIGINT, and then what still runs. Resolves to the exit code. */
  run(options?: WorkerOptions): Promise<number>;
}

export class Worker {
  constructor(app: Outlast, options?: WorkerOptions);
  readonly id: string;
  run(): Promise<number>;
  /** Drains the worker, as SIGTERM does. Called again, it ends the grace. */
  stop(): void;
}

export class OutlastError extends Error {}
export class UsageError extends OutlastError {}
export class Unreachable extends OutlastError {
  readonly server: string;
  readonly tries: number;
  readonly reason: string;
}
export class Refused extends OutlastError {
  readonly status: number;
  readonly code: string;
  readonly hint: string | undefined;
  readonly details: unknown;
  readonly requestId: string | undefined;
  readonly retryAfter: Milliseconds | undefined;
  get isForNow(): boolean;
}
export class NotFound extends Refused {}
export class Conflict extends Refused {}
export class QueueFull extends Refused {}
export class WaitTimeout extends OutlastError {
  readonly last: Job | Workflow | undefined;
}
export class JobFailed extends OutlastError {
  readonly job: Job;
}
export class WorkflowFailed extends OutlastError {
  readonly workflow: Workflow;
}
export class Permanent extends OutlastError {
  constructor(message: string, type?: string);
  readonly type: string;
}
export class JobCancelled extends OutlastError {
  readonly reason: "cancelled" | "timeout" | "shutdown" | "lost";
}
