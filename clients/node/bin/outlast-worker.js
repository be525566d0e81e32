#!/usr/bin/env node
// `outlast-worker ./tasks.mjs` runs the handlers of a program.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import { Outlast, UsageError, Worker } from "../src/index.js";

const USAGE = `Usage: outlast-worker FILE [options]

Runs jobs with the handlers of a program until SIGTERM. FILE exports one Outlast object.

  --server URL         instead of the one that the program names
  -c, --concurrency N  slots (default: 10)
  --queues A,B         instead of those of the handlers
  --name NAME          what its id begins with (default: the host's name)
  --lease S            ojs.lease of the server in seconds (30)
  --grace S            how long jobs may go on after SIGTERM, in seconds (30)
  --stop-window S      then to end in, in seconds (5)
  --no-handler-window S
                       how long jobs without a handler are left to other workers, in seconds (300)
`;
const options = {
  server: { type: "string" }, concurrency: { type: "string", short: "c" }, queues: { type: "string" },
  name: { type: "string" }, lease: { type: "string" }, grace: { type: "string" },
  "stop-window": { type: "string" }, "no-handler-window": { type: "string" }, help: { type: "boolean", short: "h" },
};

function millis(name, text) {
  if (text === undefined) return undefined;
  const seconds = Number(text);
  if (!(seconds >= 0)) throw new UsageError(`--${name} is a number of seconds, not ${text}`);
  return seconds * 1000;
}

async function load(file) {
  const found = await import(pathToFileURL(resolve(file)).href);
  const apps = new Set(Object.values(found).filter((value) => value instanceof Outlast));
  if (apps.size !== 1) throw new UsageError(`${file} exports ${apps.size} Outlast objects, not one`);
  return [...apps][0];
}

async function main() {
  let given;
  try {
    given = parseArgs({ options, allowPositionals: true });
  } catch (error) {
    throw new UsageError(error.message);
  }
  const { values, positionals } = given;
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  if (positionals.length !== 1) throw new UsageError(`name one file\n\n${USAGE}`);
  const app = await load(positionals[0]);
  if (values.server) app.at(values.server);
  const worker = new Worker(app, {
    concurrency: values.concurrency === undefined ? undefined : Number(values.concurrency),
    queues: values.queues?.split(",").filter(Boolean),
    name: values.name,
    lease: millis("lease", values.lease),
    grace: millis("grace", values.grace),
    stopWindow: millis("stop-window", values["stop-window"]),
    noHandlerWindow: millis("no-handler-window", values["no-handler-window"]),
  });
  return worker.run();
}

try {
  // What the program has left open does not hold the process up.
  process.exit(await main());
} catch (error) {
  console.error(error instanceof UsageError ? `outlast-worker: ${error.message}` : error);
  process.exit(error instanceof UsageError ? 2 : 1);
}
