// How an attempt ended, as the worker reports it.

import { Permanent } from "./errors.js";

/** Longest message of an error, in characters, and most lines of where it came from. */
const MESSAGE_MAX = 8192, FRAMES_MAX = 30;
/** Why a handler was stopped, and what the report says of it. */
const STOPPED = {
  cancelled: "the job was cancelled",
  shutdown: "the worker shuts down",
  lost: "the worker has lost its server",
};

export function completed(result) {
  try {
    JSON.stringify(result);
  } catch (error) {
    return failed("invalid_result", `the result is no JSON: ${error.message}`, { retryable: false });
  }
  return { path: "ack", fields: { result } };
}

export function failed(type, message, { retryable = true, stack } = {}) {
  const error = { type: readable(type), message: readable(message), retryable };
  if (typeof stack === "string") {
    error.details = { backtrace: stack.split("\n").slice(0, FRAMES_MAX).map(readable) };
  }
  return { path: "nack", fields: { error } };
}

/** It did not begin: the attempt counts for nothing. */
export const handedBack = () => ({ path: "nack", fields: { requeue: true } });

/** Not too long, and without halves of characters. */
const readable = (text) => Buffer.from(String(text).slice(0, MESSAGE_MAX)).toString();

/** What to report instead of what the server does not take; undefined if nothing is left to try. */
export function refused({ path, fields: { error } }, why) {
  if (path === "ack") return failed("invalid_result", why, { retryable: false });
  if (error === undefined || error.type === "invalid_error") return undefined;
  return failed("invalid_error", why, { retryable: error.retryable });
}

/** It uses up no retry, but for a timeout. A job that was cancelled stays cancelled. */
export function stopped(job) {
  if (job.stopReason === "timeout") return failed("timeout", `it ran longer than its ${job.timeout} ms`);
  return failed("shutdown", STOPPED[job.stopReason] ?? "the worker stopped it");
}

/** What a handler threw means. */
export function outcomeOf(thrown, job) {
  // Whatever it throws once it was stopped, it throws because of that.
  if (job.stopReason !== undefined) return stopped(job);
  try {
    return failureOf(thrown);
  } catch {
    return failed("Error", "the handler threw what cannot be read");
  }
}

function failureOf(thrown) {
  if (!(thrown instanceof Error)) return failed("Error", thrown);
  const type = thrown.name !== "Error" ? thrown.name : (thrown.constructor?.name ?? "Error");
  if (thrown instanceof Permanent) {
    return failed(thrown.type, thrown.message, { retryable: false, stack: thrown.stack });
  }
  return failed(type, thrown.message, { stack: thrown.stack });
}

/** Whether the same report is refused for ever. A token that has run out may be replaced. */
export const isFinal = ({ status, isForNow }) => status < 500 && ![401, 403].includes(status) && !isForNow;

export const textOf = ({ fields: { error, requeue } }) =>
  requeue ? "handed back" : error ? `${error.type}: ${error.message}` : "completed";
