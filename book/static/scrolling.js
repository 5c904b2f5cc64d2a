// What is wider than its place can be scrolled by keyboard too, and only that is a stop on the way.
const scrollable = ".formula, .wide-table, .cell .output";
const stops = () => {
  for (const box of document.querySelectorAll(scrollable)) {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
addEventListener("load", stops);
addEventListener("resize", stops);
