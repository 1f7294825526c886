/**
 * References between operations: `@<fetch.out::/size?fallback>`. A string that is one whole token
 * becomes the node it points to; a token inside a longer text is substituted as text. Of several
 * `@` before a `<`, each two stand for one.
 */

const OUTPUT_SUFFIX = ".out";
const MARK = /(@+)</g;
const INNER = /([^<>]+)>/y;
const INDEX = /^(0|[1-9][0-9]{0,8})$/;

interface Reference {
  name: string;
  pointer: string;
  /** For a path that is missing; `null` stands for null, undefined for none. */
  fallback: string | null | undefined;
  token: string;
}

export const outputOf = (operation: string): string => operation + OUTPUT_SUFFIX;

function parse(inner: string): Reference {
  const [name, path] = cut(inner, "::");
  const [pointer, fallback] = cut(path ?? "", "?");
  return {
    name: name.trim(),
    pointer: pointer === "" || pointer === "/" ? "" : pointer.startsWith("/") ? pointer : `/${pointer}`,
    fallback: fallback === "" ? null : fallback,
    token: `@<${inner}>`,
  };
}

function cut(text: string, at: string): [string, string | undefined] {
  const index = text.indexOf(at);
  return index < 0 ? [text, undefined] : [text.slice(0, index), text.slice(index + at.length)];
}

/** The references of a text, and what stands between them. */
function pieces(text: string): (string | Reference)[] {
  const found: (string | Reference)[] = [];
  let literal = "";
  let at = 0;
  for (;;) {
    MARK.lastIndex = at;
    const mark = MARK.exec(text);
    if (mark === null) break;
    const marks = mark[1]?.length ?? 0;
    INNER.lastIndex = MARK.lastIndex;
    const rest = marks % 2 === 1 ? INNER.exec(text) : null;
    literal += text.slice(at, mark.index) + "@".repeat(Math.floor(marks / 2));
    if (rest === null) {
      literal += marks % 2 === 1 ? "@<" : "<";
      at = mark.index + mark[0].length;
      continue;
    }
    if (literal !== "") found.push(literal);
    found.push(parse(rest[1] ?? ""));
    literal = "";
    at = INNER.lastIndex;
  }
  literal += text.slice(at);
  if (literal !== "") found.push(literal);
  return found;
}

/** The operations whose outputs a JSON value refers to. */
export function referredOperations(value: unknown): string[] {
  if (typeof value === "string") {
    return pieces(value).flatMap((one) =>
      typeof one !== "string" && one.name.endsWith(OUTPUT_SUFFIX)
        ? [one.name.slice(0, -OUTPUT_SUFFIX.length)]
        : [],
    );
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.values(value).flatMap(referredOperations);
}

/**
 * The JSON value with every reference replaced; the argument stays as it was.
 *
 * @throws Error if a reference names nothing, or a path that is missing.
 */
export function resolve(value: unknown, names: ReadonlyMap<string, unknown>): unknown {
  if (typeof value === "string") return resolveText(value, names);
  if (Array.isArray(value)) return value.map((item) => resolve(item, names));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, names)]));
}

function resolveText(text: string, names: ReadonlyMap<string, unknown>): unknown {
  const parts = pieces(text);
  const [first] = parts;
  if (parts.length === 1 && first !== undefined && typeof first !== "string") return lookUp(first, names);
  return parts.map((one) => (typeof one === "string" ? one : asText(one, names))).join("");
}

function asText(reference: Reference, names: ReadonlyMap<string, unknown>): string {
  const node = lookUp(reference, names);
  if (typeof node === "object" && node !== null) {
    throw new Error(`${reference.token} stands inside a text but points to an object or a list`);
  }
  return typeof node === "string" ? node : JSON.stringify(node);
}

function lookUp(reference: Reference, names: ReadonlyMap<string, unknown>): unknown {
  if (!names.has(reference.name)) throw new Error(`@<${reference.name}> names nothing known here`);
  const node = walk(names.get(reference.name), reference.pointer);
  if (node !== undefined) return node;
  if (reference.fallback !== undefined) return reference.fallback;
  throw new Error(`@<${reference.name}> has nothing at "${reference.pointer}"`);
}

/** The node that an RFC 6901 pointer leads to; undefined if there is none. */
function walk(document: unknown, pointer: string): unknown {
  let node = document;
  for (const part of pointer.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(node)) node = INDEX.test(key) ? node[Number(key)] : undefined;
    else if (typeof node === "object" && node !== null && Object.hasOwn(node, key)) {
      node = (node as Record<string, unknown>)[key];
    } else return undefined;
  }
  return node;
}
