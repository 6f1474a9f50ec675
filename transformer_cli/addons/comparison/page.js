"use strict";

// The page is complete without this script, which shows some of the sentences at a time and copies signatures.

const STEP = 10; // sentences that are shown at first, and more at each press of the button

const form = document.getElementById("choose");
if (form) chooseSentences();
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
}
addEventListener("beforeprint", () => {
  // But not the tables of dev scores, which the charts show and which may be long.
  for (const details of document.querySelectorAll("details:not(:has(.wide))")) details.open = true;
});

function chooseSentences() {
  const lists = [...document.querySelectorAll(".sentences")];
  const more = document.getElementById("more");
  let limit = STEP;

  function show() {
    const { system, direction } = Object.fromEntries(new FormData(form));
    const wanted = document.getElementById("find").value.trim().toLocaleLowerCase();
    for (const list of lists) {
      list.hidden = list.dataset.system !== system || list.dataset.direction !== direction;
      if (list.hidden) continue;
      const cards = [...list.querySelectorAll(".card")];
      const found = cards.filter((card) => card.textContent.toLocaleLowerCase().includes(wanted));
      const shown = new Set(found.slice(0, limit));
      for (const card of cards) card.hidden = !shown.has(card);
      const kind = wanted ? `sentences with “${wanted}”` : "sentences";
      document.getElementById("shown").textContent = found.length
        ? `${shown.size} of ${found.length} ${kind}` : cards.length ? `No ${kind} among these` : "";
      more.hidden = found.length <= limit;
      more.textContent = `Show ${Math.min(STEP, found.length - limit)} more`;
    }
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { limit = STEP; show(); });
  more.addEventListener("click", () => {
    const first = document.querySelector(".sentences:not([hidden]) .card[hidden]");
    limit += STEP;
    show();
    // The next sentence takes the focus if the button that had it is gone.
    if (more.hidden && first) { first.tabIndex = -1; first.focus(); }
  });
  show();
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch { // not allowed here: leave it selected, for the reader to copy
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
