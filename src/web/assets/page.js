// Without this file each page can be read; with it the changing part follows the records.
"use strict";

const enter = document.getElementById("enter");
if (enter) enter.submit();

const live = document.getElementById("live");
if (live && live.dataset.from) {
  const stale = document.getElementById("stale");
  const source = new EventSource(live.dataset.from);
  source.onmessage = (event) => {
    stale.hidden = true;
    // Whoever selects text or uses a control keeps it.
    const busy = live.contains(document.activeElement) || !getSelection().isCollapsed;
    if (busy) return;
    live.innerHTML = event.data;
    live.dispatchEvent(new Event("drawn"));
  };
  source.onerror = () => { stale.hidden = false; };
  window.addEventListener("pagehide", () => source.close());
}
