// Keys, their help, and the filters that a person keeps in this browser. Nothing here is needed to
// read a page.
"use strict";

const store = {
  read: (name) => { try { return JSON.parse(localStorage.getItem(name)); } catch { return null; } },
  write: (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); } catch { /* a private window */ } },
};

const KEYS = [
  ["/", "search: the filter, or the log"],
  ["j, k", "next and previous job; Enter opens it"],
  ["1 to 5", "jobs, machines, costs, tunings, prices"],
  ["?", "this help; Esc closes it"],
];

const help = document.createElement("dialog");
help.id = "keys";
help.setAttribute("aria-labelledby", "keys-title");
const rows = KEYS.map(([key, text]) => `<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`);
help.innerHTML = `<h2 id="keys-title">Keys</h2><dl class="keys">${rows.join("")}</dl>
<p><label><input type="checkbox" id="keys-on"> these keys work</label></p>
<form method="dialog"><button>Close</button></form>`;
document.body.append(help);
const on = help.querySelector("#keys-on");
on.checked = store.read("keys") !== false;
on.addEventListener("change", () => store.write("keys", on.checked));

const nav = document.querySelector("header nav");
if (nav) {
  const opens = document.createElement("button");
  opens.type = "button";
  opens.className = "plain";
  opens.textContent = "Keys";
  opens.addEventListener("click", () => help.showModal());
  nav.append(opens);
}

function step(by) {
  const links = [...document.querySelectorAll("#live .jobs a.name")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const to = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1);
  links[to].focus();
  links[to].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || help.open) return;
  const into = event.target.closest("input, textarea, select, [contenteditable]");
  if (into) {
    if (event.key === "Escape") into.blur();
    return;
  }
  // The help can always be reached, and there the others are switched on again.
  if (event.key === "?") { help.showModal(); event.preventDefault(); return; }
  if (!on.checked) return;
  const pages = nav ? [...nav.querySelectorAll("a")] : [];
  if (event.key === "/") {
    const field = document.querySelector("#q, #find");
    if (field) { field.focus(); field.select(); } else return;
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (pages[event.key - 1]) pages[event.key - 1].click();
  else return;
  event.preventDefault();
});

// The form stays while the page is open, so this is done once.
const presets = document.querySelector("#filter .presets");
if (presets) {
  const wanted = new URLSearchParams(location.search).get("q") ?? "";
  const given = [...presets.querySelectorAll("a")].map((link) => new URL(link.href).searchParams.get("q") ?? "");
  const saved = (store.read("filters") ?? []).filter((query) => typeof query === "string");
  for (const query of saved) {
    const link = document.createElement("a");
    link.href = `/?q=${encodeURIComponent(query)}`;
    link.textContent = query;
    if (query === wanted) link.setAttribute("aria-current", "page");
    presets.append(link);
  }
  const isSaved = saved.includes(wanted);
  if (wanted && !given.includes(wanted)) {
    const keep = document.createElement("button");
    keep.type = "button";
    keep.className = "plain";
    keep.textContent = isSaved ? "forget this filter" : "keep this filter";
    keep.addEventListener("click", () => {
      store.write("filters", isSaved ? saved.filter((query) => query !== wanted) : [...saved, wanted]);
      location.reload();
    });
    presets.append(keep);
  }
}
