// What is wider than its place can be scrolled by keyboard too, and only that is a stop on the way; its right edge fades
// as long as there is more.
const scrollable = ".formula, .wide-table, .curves, .cell .output, .hero .figure > a";
const mark = (box) => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
const stops = () => {
  for (const box of document.querySelectorAll(scrollable)) {
    mark(box);
    if (box.href) continue; // a stop already
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
for (const box of document.querySelectorAll(scrollable)) box.addEventListener("scroll", () => mark(box), { passive: true });
addEventListener("load", stops);
addEventListener("resize", stops);
