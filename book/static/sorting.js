// Tables that sort by a click on a column's name; a second click turns the order round.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  for (const header of table.querySelectorAll("th[data-key]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const key = header.dataset.key;
      const up = header.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.dataset[key] ?? "";
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === ""); // what has no value stays below
        const both = Number(x) - Number(y);
        return (Number.isNaN(both) ? order.compare(x, y) : both) * (up ? 1 : -1);
      };
      body.append(...[...body.rows].sort(compare));
    });
  }
}
