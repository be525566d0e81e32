// What is said about a job when it is enqueued, and how the wire writes it. Times are milliseconds.

import { UsageError } from "./errors.js";

const KNOWN = [
  "queue", "priority", "delay", "at", "expiresAfter", "timeout", "retries", "retry", "unique", "meta",
  "idempotencyKey", "tags", "keys", "requires", "prefers", "more",
];
const RETRY = {
  maxAttempts: "max_attempts", firstPause: "initial_interval_ms", longestPause: "max_interval_ms",
  factor: "backoff_coefficient", strategy: "backoff_strategy", jitter: "jitter",
  neverFor: "non_retryable_errors",
};

export function merged(options, more) {
  const unknown = Object.keys(more).filter((name) => !KNOWN.includes(name));
  if (unknown.length > 0) {
    throw new UsageError(`no such option: ${unknown.join(", ")}; there are ${KNOWN.join(", ")}`);
  }
  const all = { ...options, ...more };
  // The last word about the time counts.
  if (more.delay !== undefined && more.at === undefined) delete all.at;
  if (more.at !== undefined && more.delay === undefined) delete all.delay;
  return all;
}

function length(value, name) {
  if (typeof value !== "number" || !Number.isFinite(value) || value < 0) {
    throw new UsageError(`\`${name}\` is a number of milliseconds, not ${value}`);
  }
  return Math.round(value);
}

const iso = (millis) => `PT${millis / 1000}S`;

function retryOf({ retries, retry = {} }) {
  const sent = {};
  for (const [name, value] of Object.entries(retry)) {
    if (name === "deadLetter") {
      if (value) sent.on_exhaustion = "dead_letter";
    } else if (RETRY[name] === undefined) {
      throw new UsageError(`no such option of \`retry\`: ${name}; there are ${Object.keys(RETRY).join(", ")}, deadLetter`);
    } else if (value !== undefined) sent[RETRY[name]] = value;
  }
  if (retries !== undefined) {
    if (!Number.isInteger(retries) || retries < 0) throw new UsageError("`retries` is 0 or more");
    sent.max_attempts ??= retries + 1;
  }
  return sent;
}

function uniqueOf({ byArgs = true, argsKeys = [], byQueue = false, metaKeys = [], period, states = [], onConflict = "reject" }) {
  const keys = ["type"];
  if (byArgs || argsKeys.length > 0) keys.push("args");
  if (byQueue) keys.push("queue");
  if (metaKeys.length > 0) keys.push("meta");
  const sent = { keys, on_conflict: onConflict };
  if (argsKeys.length > 0) sent.args_keys = argsKeys;
  if (metaKeys.length > 0) sent.meta_keys = metaKeys;
  if (states.length > 0) sent.states = states;
  if (period !== undefined) sent.period = iso(length(period, "unique.period"));
  return sent;
}

/** Writes a job: `{type, args, options}`. */
export function wireOf({ type, args = [], options = {} }) {
  if (typeof type !== "string" || type === "") throw new UsageError("a job has a type, such as email.send");
  if (!Array.isArray(args)) throw new UsageError(`args of ${type} are an array, such as [1, 2]`);
  const given = merged({}, options);
  if (given.delay !== undefined && given.at !== undefined) throw new UsageError("say `delay` or `at`, not both");
  const sent = { ...given.more };
  for (const name of ["queue", "priority", "requires", "prefers"]) {
    if (given[name] !== undefined) sent[name] = given[name];
  }
  if (given.delay !== undefined) sent.delay_ms = length(given.delay, "delay");
  if (given.at !== undefined) sent.scheduled_at = new Date(given.at).toISOString();
  if (given.expiresAfter !== undefined) sent.expires_at = `+${iso(length(given.expiresAfter, "expiresAfter"))}`;
  if (given.timeout !== undefined) sent.timeout_ms = length(given.timeout, "timeout");
  const retry = retryOf(given);
  if (Object.keys(retry).length > 0) sent.retry = retry;
  if (given.unique !== undefined) sent.unique = uniqueOf(given.unique);
  if (given.keys !== undefined) {
    sent.keys = Object.fromEntries(Object.entries(given.keys).map(([name, value]) => [name, String(value)]));
  }
  if (given.tags !== undefined) sent.tags = [...given.tags];
  const job = { type, args };
  if (given.meta !== undefined) job.meta = { ...given.meta };
  if (Object.keys(sent).length > 0) job.options = sent;
  return job;
}
