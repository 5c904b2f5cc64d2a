// The gallery's filters: what they say stands in the address, so that a choice can be linked and survives going back.
const form = document.querySelector("[data-filters]");
if (form) {
  const cards = [...document.querySelectorAll("[data-card]")];
  const sections = [...document.querySelectorAll("[data-section]")];
  const count = form.querySelector("[data-count]");
  const fields = [...form.elements].filter((field) => field.name);

  const matches = (card) => fields.every((field) => {
    const wanted = field.value.trim().toLowerCase();
    if (!wanted) return true;
    if (field.name === "text") return wanted.split(/\s+/).every((word) => card.dataset.words.includes(word));
    return (card.dataset[field.name] || "").toLowerCase().split("|").includes(wanted);
  });

  const apply = () => {
    let shown = 0;
    for (const card of cards) {
      card.hidden = !matches(card);
      shown += !card.hidden;
    }
    for (const section of sections) section.hidden = !section.querySelector("[data-card]:not([hidden])");
    count.textContent = `${shown} of ${cards.length} papers`;
  };

  const read = () => {
    const query = new URLSearchParams(location.search);
    for (const field of fields) field.value = query.get(field.name) || "";
    apply();
  };

  const write = () => {
    const query = new URLSearchParams();
    for (const field of fields) if (field.value.trim()) query.set(field.name, field.value.trim());
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
    apply();
  };

  form.addEventListener("input", write);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(write));
  addEventListener("popstate", read);
  read();
}
