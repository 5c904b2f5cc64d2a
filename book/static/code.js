// The switch that opens and closes all code of a page; without scripts each cell opens by itself. The choice is kept.
document.documentElement.classList.add("js");
const codeSwitch = document.querySelector(".code-switch");
if (codeSwitch) {
  const key = "hookbook-code";
  const folds = () => document.querySelectorAll("details.above-input");
  const show = (open) => {
    for (const fold of folds()) fold.open = open;
    codeSwitch.setAttribute("aria-pressed", String(open));
    codeSwitch.textContent = open ? "Fold all code" : "Show all code";
  };
  let kept = null;
  try { kept = localStorage.getItem(key); } catch { /* storage may be forbidden */ }
  if (kept === "open") show(true);
  codeSwitch.addEventListener("click", () => {
    const open = codeSwitch.getAttribute("aria-pressed") !== "true";
    show(open);
    try { localStorage.setItem(key, open ? "open" : "folded"); } catch { /* then it is not kept */ }
  });
}
