// The page is complete without this script. It selects the same round in the text, the time line and the cards.
const marked = [...document.querySelectorAll("[data-round]")];
const peek = document.getElementById("peek"), last = Math.max(0, ...marked.map((e) => +e.dataset.round));
let selected = 0;

function select(round, from) {
  selected = round;
  for (const e of marked) e.classList.toggle("selected", +e.dataset.round === round);
  const card = document.getElementById("round-" + round), isCard = from && from.closest("article");
  const pane = card.parentElement;
  if (!isCard && pane.scrollHeight > pane.clientHeight) pane.scrollTop = card.offsetTop - pane.offsetTop;
  peek.hidden = Boolean(isCard);
  const copy = card.cloneNode(true);
  copy.removeAttribute("id");
  copy.removeAttribute("tabindex");
  peek.lastElementChild.replaceChildren(copy);
}

function selectAt(event) {
  const at = event.target.closest && event.target.closest("[data-round]");
  if (!at || peek.contains(at)) return;
  if (peek.hidden || +at.dataset.round !== selected) select(+at.dataset.round, at);
}

document.addEventListener("pointerover", (event) => {
  if (event.pointerType !== "touch") selectAt(event); // a finger may only want to scroll
});
document.addEventListener("focusin", selectAt);
document.addEventListener("click", (event) => {
  selectAt(event);
  const token = event.target.closest(".tokens a");
  if (token && getComputedStyle(peek).display !== "none") event.preventDefault(); // the card is in view already
  if (!event.target.closest("[data-round]")) peek.hidden = true; // such as at its button
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") peek.hidden = true;
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey || !last) return;
  select(Math.min(Math.max(selected + step, 1), last));
  document.querySelector(`.tokens [data-round="${selected}"]`).focus({ preventScroll: false });
});
