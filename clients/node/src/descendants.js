// What a process has started, and what that has: found and killed, where `/proc` lists it.

import { existsSync, readFileSync, readdirSync } from "node:fs";

import { now } from "./backoff.js";

/** How long to kill for. What waits in the kernel cannot end. */
const END_MAX = 2000;

/** Kills them again and again, as some may be starting others, until none but `spared` is left. */
export function endDescendants(ancestor, spared) {
  for (const end = now() + END_MAX; now() < end; ) {
    const left = descendants(ancestor, spared);
    if (left.length === 0) return;
    for (const id of left) {
      try {
        process.kill(id, "SIGKILL");
      } catch {
        // It has just ended.
      }
    }
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
  }
}

/** All of them, from one look: those of one that is killed first would not be found any more. */
function descendants(ancestor, spared) {
  const children = new Map();
  for (const folder of existsSync("/proc/self") ? readdirSync("/proc") : []) {
    try {
      const text = readFileSync(`/proc/${Number.parseInt(folder, 10)}/stat`, "latin1");
      // The name, in brackets, may hold anything.
      const [state, parent] = text.slice(text.lastIndexOf(")") + 2).split(" ");
      if (state === "Z" || state === "X" || Number(folder) === spared) continue;
      children.set(Number(parent), [...(children.get(Number(parent)) ?? []), Number(folder)]);
    } catch {
      // No process, or one that has just ended.
    }
  }
  const found = [ancestor];
  for (const id of found) found.push(...(children.get(id) ?? []));
  return found.slice(1);
}
