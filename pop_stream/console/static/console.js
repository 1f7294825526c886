// Live updates in place, and keyboard shortcuts. Pages work without it.
// @ts-check

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const liveState = /** @type {HTMLElement} */ (document.getElementById("live-state"));

/**
 * Make an element's children those of another, keeping what is the same: what has the focus,
 * is typed into or is open stays as it is, wherever it stands.
 * @param {Element} old
 * @param {Element} next
 */
function morphChildren(old, next) {
  /** @type {ChildNode | null} */
  let at = old.firstChild;
  for (const node of next.childNodes) {
    const same = firstSame(at, node);
    if (same === null) {
      old.insertBefore(node.cloneNode(true), at);
      continue;
    }
    // What has the focus would lose it if it were moved, so the others are.
    while (at !== null && at !== same && same.contains(document.activeElement)) {
      const skipped = at;
      at = at.nextSibling;
      old.append(skipped);
    }
    if (at === same) at = same.nextSibling;
    else old.insertBefore(same, at);
    if (same instanceof Element && node instanceof Element) morph(same, node);
    else if (same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
  }
  while (at !== null) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

/**
 * @param {ChildNode | null} from
 * @param {Node} node
 */
function firstSame(from, node) {
  for (let one = from; one !== null; one = one.nextSibling) {
    if (identity(one) === identity(node)) return one;
  }
  return null;
}

/**
 * What an element is known by among its siblings: the first of these that it has.
 * @param {Node} node
 */
function identity(node) {
  if (!(node instanceof Element)) return node.nodeName;
  const names = ["id", "data-row", "name", "aria-label", "action", "for", "href"];
  const name = names.find((one) => node.hasAttribute(one));
  return `${node.nodeName} ${name === undefined ? "" : node.getAttribute(name)}`;
}

/**
 * @param {Element} old
 * @param {Element} next
 */
function morph(old, next) {
  if (old.matches("input, select, textarea")) {
    return; // what a person has entered is not taken away
  }
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, next);
}

/** @type {EventSource | null} */
let stream = null;

function follow() {
  if (stream !== null || document.hidden) return;
  stream = new EventSource(location.href);
  stream.addEventListener("open", () => say("Live"));
  stream.addEventListener("error", () => say("Not live: trying again"));
  stream.addEventListener("ended", () => location.reload());
  stream.addEventListener("trouble", (event) => say(`Not up to date: ${event.data}`));
  stream.addEventListener("main", (event) => {
    const parsed = new DOMParser().parseFromString(`<main>${event.data}</main>`, "text/html");
    const next = parsed.querySelector("main");
    const notice = main.querySelector(":scope > .notice");
    if (next === null) return;
    if (notice !== null) next.prepend(notice.cloneNode(true));
    morphChildren(main, next);
    say("Live");
  });
}

function leave() {
  stream?.close();
  stream = null;
}

/** @param {string} text */
function say(text) {
  if (liveState.textContent !== text) liveState.textContent = text;
}

if (document.body.hasAttribute("data-live")) {
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  window.addEventListener("pagehide", leave);
  follow();
}

// A form that is asked about while one types: what its answer says of it is put in place. The
// button that was not pressed is not sent, so nothing but asking comes of it.
const judged = main.querySelector("form[data-check]");
const verdict = document.getElementById(judged?.getAttribute("data-check") ?? "");
if (judged instanceof HTMLFormElement && verdict !== null) {
  const [form, place] = [judged, verdict];
  /** @type {AbortController | null} */
  let asking = null;
  const ask = async () => {
    asking?.abort();
    asking = new AbortController();
    const body = new URLSearchParams();
    for (const [name, value] of new FormData(form)) body.append(name, String(value));
    try {
      const answer = await fetch(form.action, { method: "POST", body, signal: asking.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById(place.id);
      if (next !== null) morphChildren(place, next);
    } catch {
      // Aborted, or the server is away: the next key asks again.
    }
  };
  /** @type {number | undefined} */
  let soon;
  form.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(ask, 400);
  });
}

// Shortcuts: a key of its own for each link that names one, and / for the first field.
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.closest("input, select, textarea");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const field = main.querySelector("input:not([type=hidden])");
    if (field instanceof HTMLElement) {
      event.preventDefault();
      field.focus();
    }
    return;
  }
  if (!/^[a-z]$/.test(event.key)) return;
  const link = document.querySelector(`a[data-key="${event.key}"]`);
  if (link instanceof HTMLElement) link.click();
});
