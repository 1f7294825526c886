/**
 * Runs operations of agendas that it pulls from pop_stream over HTTP.
 *
 * A `Worker` claims agendas of one insight, runs the operations of each in the order of their
 * dependencies, in parallel where they are ready, and reports what becomes of them. While an
 * agenda runs its lease is renewed. A worker that is killed loses nothing: once the lease has
 * expired another one goes on, with the results of what had succeeded.
 *
 * Requests and their types are made from the API's OpenAPI document: see `api.gen.ts`.
 */
export type { Call, Operation, PriorProgress } from "./operation.js";
export { FinalError, NotYet, ProblemError, StopError } from "./errors.js";
export type { StopReason } from "./errors.js";
export { Worker } from "./worker.js";
export type { Handler, Logger, WorkerOptions } from "./worker.js";
