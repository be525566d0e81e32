// Pauses between tries: they grow, and differ, so that not everybody comes back at once.

import { uptime } from "node:os";

/** Milliseconds on a clock that is the same in every thread, and that on Linux also runs while the machine sleeps. */
export const now =
  process.platform === "linux" ? () => uptime() * 1000 : () => Number(process.hrtime.bigint() / 1000n) / 1000;

/** From `first` milliseconds to `longest`, doubling, each between a half and the whole of it. */
export class Backoff {
  #first;
  #longest;
  #next;

  constructor(first = 50, longest = 2000) {
    this.#first = this.#next = first;
    this.#longest = longest;
  }

  reset() {
    this.#next = this.#first;
  }

  /** The next pause; at least what the server asks for, and up to a quarter more. */
  pause(asked) {
    const due = this.#next * (0.5 + Math.random() / 2);
    this.#next = Math.min(this.#next * 2, this.#longest);
    return asked === undefined ? due : Math.max(due, asked * (1 + Math.random() / 4));
  }
}
