"use strict";
// Shows tooltips at the pointer, highlights chosen phones, and filters by workload.
(() => {
  const box = document.getElementById("tip");
  const chosen = new Set();
  for (const title of document.querySelectorAll("svg title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  for (const cell of document.querySelectorAll("td[title]")) {
    cell.dataset.tip = cell.title;
    cell.removeAttribute("title");
  }
  const show = (event) => {
    const mark = event.target.closest("[data-tip]");
    box.hidden = !mark;
    if (!mark) return;
    box.textContent = mark.dataset.tip;
    const x = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 16;
    const fits = below + box.offsetHeight < innerHeight;
    box.style.left = `${Math.max(8, x)}px`;
    box.style.top = `${fits ? below : event.clientY - box.offsetHeight - 12}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  const dim = () => {
    for (const mark of document.querySelectorAll("[data-phone]")) {
      const other = mark.dataset.phone && chosen.size && !chosen.has(mark.dataset.phone);
      mark.classList.toggle("dim", Boolean(other));
    }
  };
  for (const chip of document.querySelectorAll("[data-pick]")) {
    chip.addEventListener("click", () => {
      const phone = chip.dataset.pick;
      if (!chosen.delete(phone)) chosen.add(phone);
      chip.setAttribute("aria-pressed", String(chosen.has(phone)));
      dim();
    });
  }
  const workload = document.getElementById("workload");
  if (workload) {
    workload.addEventListener("change", () => {
      for (const part of document.querySelectorAll("[data-workload]")) {
        const own = part.dataset.workload;
        part.classList.toggle("filtered", Boolean(workload.value && own && own !== workload.value));
      }
    });
  }
})();
