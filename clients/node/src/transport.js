// HTTP to one of several servers: a time limit on every request, and retries.
//
// A request is repeated only if that is harmless: what is read or cancelled, and what is stored under
// an `Idempotency-Key`. Otherwise it is sent again only if it certainly never arrived.

import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

import { Backoff, now } from "./backoff.js";
import { OutlastError, Refused, Unanswered, Unreachable, UsageError, refusal } from "./errors.js";

export const MEDIA_TYPE = "application/openjobspec+json";
const USER_AGENT = "outlast-node/0.1.0";
/** No answer of a server is longer. */
const ANSWER_MAX = 64 << 20;
/** Longest that a server's `Retry-After` is heeded. */
const RETRY_AFTER_MAX = 60_000;
/** A server sends a comment every ten seconds: after this long a stream is dead. */
const STREAM_SILENCE = 35_000;
const EVENT_MAX = 4 << 20;
/** What goes wrong before anything is sent. */
const NOT_SENT = new Set([
  "ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT",
]);

/** Where the servers are, and what to show them; plain data, so that threads can share it. */
export function settingsOf(url, options = {}) {
  const env = process.env;
  const given = url ?? env.OUTLAST_SERVER ?? env.OJS_URL ?? "http://127.0.0.1:8080";
  const servers = given.split(",").map((part) => part.trim().replace(/\/+$/, "")).filter(Boolean);
  for (const server of servers) {
    const protocol = protocolOf(server);
    if (protocol !== "http:" && protocol !== "https:") {
      throw new UsageError(`"${server}" is no address; write one such as http://host:8080`);
    }
  }
  if (servers.length === 0) throw new UsageError("no server is named; write one such as http://host:8080");
  let { token, tokenFile } = options;
  if (token === undefined && tokenFile === undefined) {
    tokenFile = env.OUTLAST_TOKEN_FILE;
    if (tokenFile === undefined) token = env.OUTLAST_TOKEN ?? env.OJS_AUTH_TOKEN;
  }
  const { tenant, timeout = 10_000, retryFor = 30_000 } = options;
  if (!(timeout > 0) || !(retryFor >= 0)) {
    throw new UsageError("`timeout` must be more than 0 milliseconds, `retryFor` at least 0");
  }
  return { servers, token, tokenFile, tenant, timeout, retryFor };
}

function protocolOf(server) {
  try {
    return new URL(server).protocol;
  } catch {
    return "";
  }
}

export class Transport {
  #used;

  constructor(settings) {
    this.settings = settings;
    // Clients spread over the servers.
    this.#used = Math.floor(Math.random() * settings.servers.length);
  }

  /** Sends a request until it is answered; resolves to the JSON of the answer. */
  async send(method, path, body, { key, repeat = true, retryFor = this.settings.retryFor } = {}) {
    const text = body === undefined ? undefined : encode(body);
    const end = now() + retryFor;
    const backoff = new Backoff();
    for (let tries = 1; ; tries++) {
      let failed;
      try {
        return await this.once(method, path, text, { key });
      } catch (error) {
        failed = error;
      }
      const isUnanswered = failed instanceof Unanswered;
      if (!isUnanswered && !(failed instanceof Refused && failed.isForNow && repeat)) throw failed;
      const pause = backoff.pause(failed.retryAfter);
      if ((isUnanswered && !repeat && failed.sent) || now() + pause >= end) {
        throw isUnanswered ? this.unreachable(failed, tries) : failed;
      }
      await sleep(pause);
    }
  }

  unreachable(failed, tries) {
    return new Unreachable(this.settings.servers.join(","), tries, failed.message, failed.cause);
  }

  /** Sends a request once; to the next server if the first cannot be reached at all. */
  async once(method, path, text, { key, timeout = this.settings.timeout } = {}) {
    const signal = AbortSignal.timeout(Math.max(1, Math.ceil(timeout)));
    const headers = await this.#headers(text, key);
    const response = await this.#atAny((server) =>
      fetch(server + path, { method, headers, body: text, signal, redirect: "error" }),
    );
    let body;
    try {
      body = await readAll(response);
    } catch (error) {
      throw unanswered(error);
    }
    return answer(response, body);
  }

  /** Opens a stream of Server-Sent Events; resolves to its events, or null if none will come. */
  async stream(path, lastEventId) {
    const headers = await this.#headers(undefined, undefined);
    headers.Accept = "text/event-stream";
    if (lastEventId) headers["Last-Event-ID"] = lastEventId;
    const controller = new AbortController();
    const opening = setTimeout(() => controller.abort(), this.settings.timeout);
    try {
      const { signal } = controller;
      const response = await this.#atAny((server) =>
        fetch(server + path, { headers, signal, redirect: "error" }),
      );
      if (response.status === 204) return null;
      if (!response.ok) answer(response, await readAll(response));
      return eventsOf(response, controller);
    } finally {
      clearTimeout(opening);
    }
  }

  async #atAny(request) {
    const { servers } = this.settings;
    for (let left = servers.length; ; ) {
      const used = this.#used;
      left -= 1;
      try {
        const response = await request(servers[used]);
        if ([502, 503, 504].includes(response.status)) this.#moveOn(used);
        return response;
      } catch (error) {
        this.#moveOn(used);
        const failed = unanswered(error);
        if (failed.sent || left === 0) throw failed;
      }
    }
  }

  #moveOn(used) {
    if (this.#used === used) this.#used = (used + 1) % this.settings.servers.length;
  }

  async #headers(text, key) {
    const { token, tokenFile, tenant } = this.settings;
    const headers = { Accept: MEDIA_TYPE, "User-Agent": USER_AGENT, "OJS-Version": "1.0" };
    if (text !== undefined) headers["Content-Type"] = MEDIA_TYPE;
    if (key !== undefined) headers["Idempotency-Key"] = key;
    if (tenant !== undefined) headers["X-OJS-Tenant"] = tenant;
    // A file is read each time: it may be replaced while the program runs.
    const shown = tokenFile === undefined ? token : await tokenIn(tokenFile);
    if (shown) headers.Authorization = `Bearer ${shown}`;
    return headers;
  }
}

async function tokenIn(file) {
  try {
    return (await readFile(file, "ascii")).trim();
  } catch (error) {
    throw new UsageError(`token file ${file}: ${error.message}`, { cause: error });
  }
}

function unanswered(error) {
  if (error instanceof OutlastError) return error;
  const cause = error.cause ?? error;
  const isTimeout = error.name === "TimeoutError" || error.name === "AbortError";
  const reason = isTimeout ? "no answer in time" : cause.message || cause.code || String(cause);
  return new Unanswered(reason, !NOT_SENT.has(cause.code), error);
}

async function readAll(response) {
  const parts = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    length += part.length;
    if (length > ANSWER_MAX) throw new Error(`the answer is longer than ${ANSWER_MAX} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

function answer(response, text) {
  let value = null;
  if (text) {
    try {
      value = JSON.parse(text);
    } catch (error) {
      if (response.ok) throw new OutlastError(`the server's answer is no JSON but ${text.slice(0, 80)}`);
    }
  }
  if (response.ok) return value;
  const asked = Number.parseFloat(response.headers.get("Retry-After") ?? "");
  const retryAfter = Number.isNaN(asked) ? undefined : Math.min(Math.max(asked, 0) * 1000, RETRY_AFTER_MAX);
  throw refusal(response.status, value, retryAfter);
}

/** Reads Server-Sent Events: a cursor in `id`, and JSON in `data`. */
async function* eventsOf(response, controller) {
  let silence = setTimeout(() => controller.abort(), STREAM_SILENCE);
  let rest = "", id, data = [];
  try {
    const decoder = new TextDecoder();
    for await (const part of response.body) {
      clearTimeout(silence);
      silence = setTimeout(() => controller.abort(), STREAM_SILENCE);
      rest += decoder.decode(part, { stream: true });
      if (rest.length > EVENT_MAX) throw new Error("a line of the stream is too long");
      const lines = rest.split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (line === "" && data.length > 0) {
          yield { id, raw: JSON.parse(data.join("\n")) };
          data = [];
        } else if (name === "id") id = value;
        else if (name === "data") data.push(value);
      }
    }
  } catch (error) {
    throw unanswered(error);
  } finally {
    clearTimeout(silence);
    controller.abort();
  }
}

export function encode(body) {
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw new UsageError(`this is no JSON: ${error.message}`, { cause: error });
  }
}
