import type { components } from "./api.gen.js";

export type Problem = components["schemas"]["Problem"];

/** Trying again cannot help. Any other error that leaves a handler may be tried again. */
export class FinalError extends Error {
  override name = "FinalError";
}

/**
 * What an operation needs is not there: the attempt ends without failing, and the operation is
 * called again in a later one.
 */
export class NotYet extends Error {
  override name = "NotYet";

  /**
   * @param afterS Seconds until the next look, at least 1.
   * @param message What it waits for, for people.
   * @param ended What ends the wait from outside, before `afterS` is over: nothing, a signal, a
   *   person's approval, or a completion token (see `Call.completionToken`).
   */
  constructor(
    readonly afterS: number,
    message = "",
    readonly ended:
      | { kind: "check" | "approval" }
      | { kind: "signal"; signal: string }
      | { kind: "completion"; completion_token?: string } = { kind: "check" },
  ) {
    super(message);
  }
}

/**
 * Why a handler is to stop: its agenda was cancelled or has expired, its attempt is over because
 * another worker may have it, its worker stops, or its operation's `timeout_s` is over.
 */
export type StopReason = "cancelled" | "expired" | "outdated" | "puller_stopping" | "timeout";

/** The `reason` of a handler's `signal`. */
export class StopError extends Error {
  override name = "StopError";

  constructor(
    readonly reason: StopReason,
    message: string,
  ) {
    super(message);
  }
}

/** The API refused a request; an RFC 9457 problem. */
export class ProblemError extends Error {
  override name = "ProblemError";

  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    const issues = (problem.issues ?? []).map((one) => `; ${one.field} = ${one.value}: ${one.message}`);
    super(`${status} ${problem.code ?? "unknown"}: ${problem.detail ?? "no detail"}${issues.join("")}`);
  }
}

export const isFinal = (error: unknown): boolean => error instanceof FinalError;

export const codeOf = (error: unknown): string =>
  isFinal(error) ? "operation_final" : "operation_retryable";

/** Why, in words. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const isOurs = error instanceof FinalError || error instanceof StopError || error.name === "Error";
  return isOurs ? error.message : `${error.name}: ${error.message}`;
}
