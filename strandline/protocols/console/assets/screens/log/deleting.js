/** Deletes records after a preview. */

import { get, send } from "../../api.js";
import { curl, snippet } from "../../parts/code.js";
import { segments } from "../../parts/heading.js";
import { topicPath } from "../../parts/kinds.js";
import { preview } from "../../parts/record.js";
import { field, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { bytes, clock, count, plural } from "../../shell/format.js";

/**
 * Opens a dialog that selects records, shows a preview and deletes them.
 * @param {{name: string}} log @param {{key?: string, before?: number}} suggested @param {() => void} done
 */
export function deleteRecords(log, suggested, done) {
  let by = "key";
  let asked = 0;
  let timer = 0;
  const inputs = {
    key: h("input", { autofocus: true, value: suggested.key ?? "", autocomplete: "off", spellcheck: "false", placeholder: "customer:ann" }),
    prefix: h("input", { autocomplete: "off", spellcheck: "false", placeholder: "customer:" }),
    before: h("input", { type: "number", min: 1, value: suggested.before ?? "" }),
  };
  const fields = {
    key: field("Key", inputs.key, "All records with exactly this key."),
    prefix: field("Key prefix", inputs.prefix, "All records whose key starts with this text."),
    before: field("Before sequence number", inputs.before, "All records with a lower sequence number."),
  };
  const outcome = h("div.removal", { role: "status" });
  const dialog = openDialog({
    title: `Delete records from ${log.name}`,
    action: "Delete",
    danger: true,
    wide: true,
    body: [
      segments("Which records", [["key", "By key"], ["prefix", "By prefix"], ["before", "Before seq"]], by, (value) => ((by = value), adapt())),
      ...Object.values(fields),
      outcome,
    ],
    submit: async () => {
      const deleted = await send("POST", `${topicPath(log.name)}/delete`, request());
      notice(`${plural(deleted.deleted, "record")} deleted.`);
      done();
    },
  });
  const { button } = dialog;

  function value() {
    return inputs[by].value;
  }

  function request() {
    if (by === "before") return { before_seq: Number(value()) };
    return { match: ["tag", by === "key" ? "Eq" : "Glob", by === "key" ? value() : `${value()}*`] };
  }

  function adapt() {
    for (const [name, element] of Object.entries(fields)) element.hidden = name !== by;
    look();
  }

  function look() {
    clearTimeout(timer);
    button.disabled = true;
    button.textContent = "Delete";
    if (!value()) return void replace(outcome, h("p.muted", {}, "A preview of the records to delete appears here."));
    replace(outcome, h("p.muted", {}, "Loading the preview…"));
    timer = setTimeout(ask, 250);
  }

  async function ask() {
    const number = (asked += 1);
    const which = by;
    try {
      const removal = await get(`/console/api/log/${encodeURIComponent(log.name)}/removal`, { [which]: value() });
      if (number === asked && which === by) tell(removal);
    } catch (error) {
      if (number === asked) replace(outcome, h("p.problem", {}, error.message));
    }
  }

  function tell(removal) {
    if (!removal.records) return void replace(outcome, h("p.muted", {}, "No records match. Nothing would be deleted."));
    button.disabled = false;
    button.textContent = `Delete ${plural(removal.records, "record")}`;
    replace(
      outcome,
      h("p", {}, h("b", {}, plural(removal.records, "record")), ` (${bytes(removal.bytes)}, sequence numbers ${count(removal.first_seq)} to ${count(removal.last_seq)}) will be deleted permanently. Readers get no tombstone for deleted records.`),
      h("ul.sample", {}, removal.sample.map((record) => h("li", {}, h("span.number", {}, count(record.seq)), h("span.muted", {}, clock(record.ts)), h("span.cut", {}, preview(record))))),
      removal.records > removal.sample.length ? h("p.muted", {}, `and ${count(removal.records - removal.sample.length)} more`) : null,
      snippet("curl", curl({ path: `${topicPath(log.name)}/delete`, method: "POST", json: request() })),
    );
    return undefined;
  }

  for (const input of Object.values(inputs)) input.addEventListener("input", look);
  adapt();
}
