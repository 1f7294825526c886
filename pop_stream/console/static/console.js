// Live updates in place, and keyboard shortcuts. Pages work without it.
// @ts-check

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const liveState = /** @type {HTMLElement} */ (document.getElementById("live-state"));

/**
 * Make an element's children those of another, keeping what is the same: what has the focus,
 * is typed into or is open stays as it is.
 * @param {Element} old
 * @param {Element} next
 */
function morphChildren(old, next) {
  const before = [...old.childNodes];
  const after = [...next.childNodes];
  after.forEach((node, index) => {
    const present = before[index];
    if (present === undefined) {
      old.append(node.cloneNode(true));
    } else if (!isSameKind(present, node)) {
      present.replaceWith(node.cloneNode(true));
    } else if (present instanceof Element && node instanceof Element) {
      morph(present, node);
    } else if (present.nodeValue !== node.nodeValue) {
      present.nodeValue = node.nodeValue;
    }
  });
  before.slice(after.length).forEach((node) => node.remove());
}

/**
 * @param {Element} old
 * @param {Element} next
 */
function morph(old, next) {
  if (old instanceof HTMLInputElement || old instanceof HTMLSelectElement) {
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

/**
 * @param {Node} one
 * @param {Node} other
 */
function isSameKind(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
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
