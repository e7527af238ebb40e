/** A dialog for a change of a log's schema or fields. Before it is installed, the server tries it with the last records. */

import { send } from "../../api.js";
import { diffBlock } from "../../parts/diff.js";
import { plainTable } from "../../parts/table.js";
import { openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { count, plural } from "../../shell/format.js";

/**
 * `update` returns what to install, or throws an error for the user; `install` installs it.
 * @param {{log: {name: string}, title: string, body: any, update: () => any, install: (update: any) => Promise<any>}} options
 * @returns {{button: HTMLButtonElement}} the button that opens the review
 */
export function openReviewed({ log, title, body, update, install }) {
  const editor = h("div.stack", {}, body);
  const shown = h("div.stack.review", { hidden: true, tabindex: "-1", role: "group", "aria-label": "Review" });
  const back = h("button", { type: "button", hidden: true, onclick: () => turn(null) }, "Edit");
  let reviewed = null;
  const turn = (found) => {
    editor.hidden = Boolean(found);
    shown.hidden = back.hidden = !found;
    button.textContent = found ? "Install" : "Review";
    button.hidden = Boolean(found?.refused);
    if (found) {
      replace(shown, review(found));
      shown.focus();
    } else {
      reviewed = null;
      editor.querySelector("textarea, input")?.focus();
    }
  };
  const { button } = openDialog({
    title,
    action: "Review",
    wide: true,
    body: [editor, shown],
    submit: async () => {
      if (reviewed) return install(reviewed);
      const wanted = update();
      const found = await send("POST", `/console/api/log/${encodeURIComponent(log.name)}/dry-run`, wanted);
      reviewed = wanted;
      turn(found);
      return false;
    },
  });
  button.before(back);
  return { button };
}

function review(found) {
  return [
    found.refused ? h("p.problem", { role: "alert" }, `The server would refuse this: ${found.refused}.`) : null,
    h("h3", {}, "Difference to what is installed"),
    diffBlock(found.installed, found.proposed),
    h("h3", {}, "Dry run with the last records"),
    h("p", { role: "status" }, verdict(found)),
    found.rejections.length ? rejections(found) : null,
    found.fields.length && found.records ? fields(found) : null,
  ];
}

function verdict({ records, rejected, complete }) {
  if (!records) return complete ? "The log has no records to try it with." : "The time was over before a record was examined.";
  const cut = complete ? "" : " The time was over before more were examined.";
  const examined = `${plural(records, "record")} examined`;
  if (rejected === null) return `${examined}.${cut}`;
  return [`${examined}: `, rejected ? h("b.was", {}, `${count(rejected)} would be rejected`) : h("b.is", {}, "none would be rejected"), `.${cut}`];
}

function rejections({ rejected, rejections: rows }) {
  const more = rejected > rows.length ? h("p.muted", {}, `The newest ${count(rows.length)} are shown.`) : null;
  return [plainTable("Rejected records", [
    { title: "Seq", class: "seq", width: "92px", cell: (row) => count(row.seq) },
    { title: "Reason", cell: (row) => h("span", { title: row.message }, row.message) },
  ], rows), more];
}

function fields({ fields: rows, records }) {
  return plainTable("Values of fields", [
    { title: "Field", cell: (row) => h("b", { title: row.name }, row.name) },
    { title: "Kind", class: "wide-only", width: "84px", cell: (row) => row.kind },
    { title: "Records", class: "number", width: "84px", cell: (row) => h("span", { title: `${count(row.records)} of ${plural(records, "record")}` }, count(row.records)) },
    { title: "Values", class: "number", width: "76px", cell: (row) => count(row.values) },
    { title: "Unfit", class: "number", width: "70px", cell: (row) => (row.unfit ? h("span.chip", { dataset: { kind: "warn" }, title: `Not a ${row.kind}: ${row.unfit_examples.map((one) => JSON.stringify(one.value)).join(", ")}` }, count(row.unfit)) : "0") },
    { title: "Sample", class: "data.wide-only", width: "34%", cell: (row) => sample(row) },
  ], rows);
}

function sample({ examples, unfit_examples: unfit }) {
  const words = (list) => list.map((one) => JSON.stringify(one.value)).join(", ");
  if (!examples.length && !unfit.length) return h("span.none", {}, "–");
  return h("span", { title: [words(examples), words(unfit)].filter(Boolean).join("; not of this kind: ") }, words(examples), unfit.length ? h("span.was", {}, `${examples.length ? ", " : ""}${words(unfit)}`) : null);
}
