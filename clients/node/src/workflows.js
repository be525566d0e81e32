// Workflows in the forms of the Open Job Spec: chain, group, batch, and graphs of steps.

import { UsageError } from "./errors.js";
import { wireOf } from "./options.js";

class Form {
  constructor(kind, parts, callbacks = {}) {
    Object.assign(this, { kind, parts, callbacks });
  }

  wire() {
    const parts = this.parts.map((part) => (part instanceof Form ? part.wire() : wireOf(part)));
    const sent = { type: this.kind, [this.kind === "chain" ? "steps" : "jobs"]: parts };
    const callbacks = Object.entries(this.callbacks).map(([name, job]) => [name, wireOf(job)]);
    if (callbacks.length > 0) sent.callbacks = Object.fromEntries(callbacks);
    return sent;
  }
}

/** One after another, each when the one before has completed. */
export const chain = (...parts) => new Form("chain", parts);

/** All at the same time. */
export const group = (...parts) => new Form("group", parts);

/** All at the same time, and then a callback: in any case, if all completed, if one did not. */
export function batch(parts, { onComplete, onSuccess, onFailure } = {}) {
  const given = { on_complete: onComplete, on_success: onSuccess, on_failure: onFailure };
  const callbacks = Object.entries(given).filter(([, job]) => job !== undefined);
  if (callbacks.length === 0) throw new UsageError("a batch needs a callback; without any it is a group");
  return new Form("batch", parts, Object.fromEntries(callbacks));
}

/** Steps that wait for others: `new Graph("nightly").step("load", job).step("send", other, "load")`. */
export class Graph {
  #steps = [];

  constructor(name) {
    this.name = name;
  }

  step(id, job, ...after) {
    const unknown = after.filter((name) => !this.#steps.some((step) => step.id === name));
    if (unknown.length > 0) throw new UsageError(`step ${id} comes after ${unknown.join(", ")}, not there yet`);
    this.#steps.push({ id, ...wireOf(job), ...(after.length > 0 && { depends_on: after }) });
    return this;
  }

  wire() {
    return { ...(this.name !== undefined && { name: this.name }), steps: this.#steps };
  }
}
