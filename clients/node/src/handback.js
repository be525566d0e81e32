// Hands jobs back for a worker that waits for this program, so that no handler runs meanwhile.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Backoff, now } from "./backoff.js";
import { endDescendants } from "./descendants.js";
import { Refused } from "./errors.js";
import { isFinal } from "./outcome.js";
import { Transport, encode } from "./transport.js";

/** How long the reports may take. */
const REPORT_MAX = 5000;

const { settings, worker, reports } = JSON.parse(readFileSync(0, "utf8"));
// Programs that handlers have started.
endDescendants(process.ppid, process.pid);
const transport = new Transport(settings);
const end = now() + REPORT_MAX;

async function report([path, body]) {
  for (const backoff = new Backoff(); now() < end; ) {
    try {
      const timeout = Math.max(end - now(), 100);
      await transport.once("POST", `/ojs/v1/workers/${path}`, encode(body), { timeout });
      return true;
    } catch (error) {
      // 409: it is not this worker's any more.
      if (error instanceof Refused && isFinal(error)) return error.status === 409;
    }
    await sleep(backoff.pause());
  }
  return false;
}

let left = 0;
for (const one of reports) if (!(await report(one))) left += 1;
if (left === 0) {
  const goodbye = encode({ worker_id: worker, state: "terminated", active_jobs: [] });
  await transport.once("POST", "/ojs/v1/workers/heartbeat", goodbye, { timeout: 2000 }).catch(() => {});
}
process.exit(left === 0 ? 0 : 1);
