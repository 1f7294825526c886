import type { components } from "./api.gen.js";
import { FinalError } from "./errors.js";
import { referredOperations } from "./references.js";

type Schemas = components["schemas"];

/** An operation of an agenda, as it is submitted. */
export type Operation = Schemas["Operation"];

/** How far an earlier attempt was with an operation. */
export type PriorProgress = Schemas["PriorProgress"];

const MAX_RESULT_BYTES = 256 * 1024;
const MAX_MESSAGE = 2_000;
const MAX_NOTE = 500;
export const MAX_DIAGNOSTICS = 10;

/** What a handler is given. Once the handler has ended, its methods change nothing. */
export interface Call {
  readonly agendaId: string;
  readonly customerId: string;
  readonly insightId: string;
  readonly linkId: string | null;
  /** Of the agenda, from 1; above 1, an earlier one failed or was lost. */
  readonly attempt: number;
  /** Of this operation in this attempt, from 1. */
  readonly tries: number;
  readonly name: string;
  readonly type: string;
  /** The operation's settings, as submitted. */
  readonly params: Readonly<Record<string, unknown>>;
  /** Its input, all references replaced. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- JSON, as the submitter wrote it
  readonly payload: any;
  /** How far an earlier attempt was with it. */
  readonly prior: PriorProgress | null;
  /**
   * Aborted when the handler is to stop; its `reason` is a `StopError`. A handler that still runs
   * five seconds later is abandoned.
   */
  readonly signal: AbortSignal;
  /** Says how far the operation is, in per cent; call it as often as you like. */
  report(percent: number, message?: string): void;
  /** Adds a diagnostic to the operation; the newest ten are kept. */
  note(message: string, code?: string, detail?: unknown): void;
  /**
   * Adds operations to the running agenda, which run in this attempt. Appending the same again
   * changes nothing.
   *
   * @throws FinalError if one is not sound; then none is added.
   */
  append(operations: readonly Operation[]): Promise<void>;
  /**
   * A token by which this operation can be completed from outside, once and within so long. Hand
   * it over, and throw a `NotYet` of the kind `completion` with it.
   */
  completionToken(withinS: number): Promise<string>;
}

/** The state of one operation during an attempt. */
export class OperationRun {
  readonly dependsOn: ReadonlySet<string>;
  prior: PriorProgress | null = null;
  hasChanged = false;
  /** In this attempt; one that waits for something is, too. */
  isDone = false;
  state: Schemas["OperationReport"]["state"] = "waiting";
  tries = 1;
  percent = 0;
  message = "";
  /** JSON; null for none. */
  result: string | null = null;
  private startedAt: string | null = null;
  private endedAt: string | null = null;
  private diagnostics: Schemas["DiagnosticReport"][] = [];

  constructor(readonly operation: Operation) {
    this.dependsOn = new Set([...(operation.depends_on ?? []), ...referredOperations(operation.payload)]);
  }

  get name(): string {
    return this.operation.name;
  }

  get maxTries(): number {
    return this.operation.max_attempts ?? 1;
  }

  /** Milliseconds until the next try. */
  get pauseMs(): number {
    const { first_s = 1, factor = 2, most_s = 300, jitter = 0.2 } = this.operation.backoff ?? {};
    const pauseS = Math.min(first_s * factor ** (this.tries - 1), most_s);
    return 1_000 * pauseS * (1 - jitter * Math.random());
  }

  start(): void {
    this.state = "running";
    this.startedAt = new Date().toISOString();
  }

  end(state: OperationRun["state"], message = ""): void {
    this.state = state;
    this.endedAt = new Date().toISOString();
    this.isDone = true;
    if (message !== "") this.message = brief(message);
  }

  note(message: string, code = "", detail: unknown = null): void {
    const added = { message: brief(message, MAX_NOTE), code, detail: detail as Schemas["JsonValue"] };
    this.diagnostics = [...this.diagnostics, added].slice(-MAX_DIAGNOSTICS);
  }

  /** How far it is, as the API takes it. */
  report(): Schemas["OperationReport"] {
    return {
      name: this.name,
      state: this.state,
      percent: this.state === "succeeded" ? 100 : this.percent,
      message: this.message,
      started_at: this.startedAt,
      ended_at: this.endedAt,
      ...(this.result === null ? {} : { result: JSON.parse(this.result) as Schemas["JsonValue"] }),
      diagnostics: this.diagnostics,
      tries: this.tries,
    };
  }
}

/** JSON of a NUL or of half a surrogate pair, which no database keeps. */
const NO_TEXT = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f][0-9a-f]{2})/;

/**
 * A result as JSON; null for none.
 *
 * @throws FinalError if JSON cannot say it, or it is too large.
 */
export function encodeResult(value: unknown): string | null {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new FinalError(`the result is not JSON: ${String(error)}`);
  }
  if (text === undefined || text === "null") return null;
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_RESULT_BYTES) {
    throw new FinalError(
      `the result has ${bytes} bytes, at most ${MAX_RESULT_BYTES} are allowed; ` +
        "store it elsewhere and return where it is",
    );
  }
  if (NO_TEXT.test(text)) {
    throw new FinalError(
      "the result holds a NUL character or half a surrogate pair, which no database text can; leave it out",
    );
  }
  return text;
}

/** Cuts a text and leaves out what no database keeps. */
export function brief(text: string, most = MAX_MESSAGE): string {
  const letters = [...text.replaceAll("\0", "")].filter((one) => !/^[\ud800-\udfff]$/.test(one));
  return letters.length <= most ? letters.join("") : `${letters.slice(0, most - 1).join("")}…`;
}
