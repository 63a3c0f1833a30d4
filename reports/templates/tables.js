"use strict";
// A click on a header sorts its table. Without scripts the tables keep the order of the suite.
for (const table of document.querySelectorAll(".wide table")) {
  const [head, body] = [table.tHead, table.tBodies[0]];
  // Rows that continue a group do not show its name: sorting would hide what they belong to.
  if (!head || !body || body.rows.length < 3 || body.querySelector("th > .visually-hidden")) continue;
  const groups = [];
  for (const row of body.rows) {
    if (row.classList.contains("why") && groups.length) groups.at(-1).push(row);
    else groups.push([row]);
  }
  const text = (group, place) => {
    const cell = group[0].cells[place].cloneNode(true);
    cell.querySelectorAll("small").forEach((note) => note.remove());
    return cell.textContent.trim();
  };
  const number = (words) => {
    const found = words.replaceAll(",", "").replace("−", "-").match(/^[≥≤<>~ ]*([+-]?\d*\.?\d+(?:e[+-]?\d+)?)/i);
    return found ? Number(found[1]) : NaN;
  };
  const compared = (one, other) => {
    const [a, b] = [number(one), number(other)];
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b) || one.localeCompare(other);
    return a - b;
  };
  const headers = [...head.rows[0].cells];
  headers.forEach((header, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headers.forEach((one) => one.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      groups.sort((one, other) => sign * compared(text(one, place), text(other, place)));
      body.append(...groups.flat());
    });
  });
}
// Every table can be saved as CSV; a text that a spreadsheet would take for a formula is quoted.
for (const table of document.querySelectorAll(".wide table")) {
  const region = table.closest(".wide");
  const quoted = (cell) => {
    const words = cell.innerText.replace(/\s+/g, " ").trim();
    const safe = /^[=+@\t-]/.test(words) && Number.isNaN(Number(words)) ? `'${words}` : words;
    return `"${safe.replaceAll('"', '""')}"`;
  };
  const saved = document.createElement("button");
  saved.type = "button";
  saved.className = "save";
  saved.textContent = "CSV";
  saved.setAttribute("aria-label", `${region.getAttribute("aria-label") || "Table"}: save as CSV`);
  saved.addEventListener("click", () => {
    const rows = [...table.rows].filter((row) => !row.classList.contains("why"));
    const lines = rows.map((row) => [...row.cells].map(quoted).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = `${(region.getAttribute("aria-label") || "table").toLowerCase().replace(/[^a-z0-9]+/g, "_")}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  region.after(saved);
}
