import { setTimeout as sleep } from "node:timers/promises";
import createClient from "openapi-fetch";
import type { Client } from "openapi-fetch";

import type { paths } from "./api.gen.js";
import { ProblemError } from "./errors.js";
import type { Problem } from "./errors.js";
import type { Logger } from "./worker.js";

export const REQUEST_TIMEOUT_MS = 30_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 30_000;

interface Answer<Data> {
  data?: Data;
  error?: unknown;
  response: Response;
}

/** Sends requests until they are answered. */
export class Transport {
  readonly client: Client<paths>;

  constructor(
    url: string,
    token: string,
    private readonly log: Logger,
  ) {
    const headers = token === "" ? {} : { Authorization: `Bearer ${token}` };
    this.client = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers });
  }

  /**
   * Repeats a request while the API is away, busy, or says to come back later.
   *
   * @throws ProblemError if the API refuses; `signal.reason` once the signal is aborted.
   */
  async send<Data>(
    signal: AbortSignal,
    request: (signal: AbortSignal) => Promise<Answer<Data>>,
    timeoutMs = REQUEST_TIMEOUT_MS,
  ): Promise<Data> {
    for (let failures = 0; ; failures++) {
      signal.throwIfAborted();
      let retryAfterMs = 0;
      let reason: unknown;
      try {
        const { data, error, response } = await withTimeout(signal, timeoutMs, request);
        if (response.ok && data !== undefined) return data;
        reason = new ProblemError(response.status, problemOf(error));
        if (!isTransient(response.status)) throw reason;
        retryAfterMs = 1_000 * (Number(response.headers.get("Retry-After")) || 0);
      } catch (failure) {
        signal.throwIfAborted();
        if (failure instanceof ProblemError) throw failure;
        reason = failure; // no connection, or it broke
      }
      const backoffMs = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(failures, 10));
      const pauseMs = Math.max(backoffMs, retryAfterMs) * (1 + Math.random() / 4);
      this.log.warn("api.unavailable", { reason: String(reason), retry_in_ms: Math.round(pauseMs) });
      await pause(pauseMs, signal);
    }
  }
}

/** Waits; rejects with the signal's reason once that is aborted. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}

async function withTimeout<Result>(
  signal: AbortSignal,
  ms: number,
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  return work(AbortSignal.any([signal, AbortSignal.timeout(ms)]));
}

function problemOf(error: unknown): Partial<Problem> {
  return typeof error === "object" && error !== null ? error : {};
}

/** Whether the same request may be answered otherwise later. */
function isTransient(status: number): boolean {
  return status >= 500 || status === 429 || status === 408;
}
