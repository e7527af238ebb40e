/** Two records of a log side by side: the values that differ. */

import { get } from "../api.js";
import { field, openDialog } from "../shell/dialogs.js";
import { h, replace } from "../shell/dom.js";
import { absolute, count, plural } from "../shell/format.js";
import { scalars } from "./paths.js";
import { failure } from "./states.js";
import { plainTable } from "./table.js";

const SHOWN = 500;

/**
 * Asks for another record; proposes the one before with the same key.
 * @param {string} log @param {{seq: number, key?: string, data?: any, text?: string, base64?: string}} record
 */
export async function openComparison(log, record) {
  const path = `/console/api/log/${encodeURIComponent(log)}/records`;
  const other = h("input", { type: "number", min: 1, required: true, autofocus: true });
  const place = h("div.stack");
  const hint = record.key === undefined ? "Another sequence number of this log." : `The record before with the key ${record.key}, or any other one.`;
  const compare = async () => {
    const { records } = await get(path, { after: Number(other.value) - 1, limit: 1 });
    if (records[0]?.seq !== Number(other.value)) throw new Error(`Record ${other.value} does not exist.`);
    const [before, after] = records[0].seq < record.seq ? [records[0], record] : [record, records[0]];
    replace(place, differences(before, after));
  };
  const show = () => compare().catch((error) => replace(place, failure(error)));
  other.addEventListener("change", show);
  openDialog({ title: `Compare record ${count(record.seq)}`, wide: true, body: [field("With record", other, hint), place] });
  if (record.key === undefined && record.seq < 2) return;
  const { records } = await get(path, { before: record.seq, limit: 1, key: record.key });
  if (!records.length) return void replace(place, h("p.muted", {}, record.key === undefined ? "There is no earlier record." : "There is no earlier record with this key."));
  other.value = records[0].seq;
  await show();
}

function differences(before, after) {
  const [old, now] = [before, after].map((record) => scalars(record.data ?? record.text ?? record.base64));
  const rows = [...new Set([...old.keys(), ...now.keys()])].filter((path) => !old.has(path) || !now.has(path) || old.get(path) !== now.get(path));
  const title = h("p.muted", {}, `${absolute(before.ts)} → ${absolute(after.ts)}: `, rows.length ? plural(rows.length, "difference") : "the records are equal", rows.length > SHOWN ? `, the first ${SHOWN} are shown` : "");
  if (!rows.length) return [title];
  const cell = (values, path, kind) => (values.has(path) ? h(`span.${kind}`, { title: String(values.get(path)) }, JSON.stringify(values.get(path))) : h("span.none", {}, "–"));
  return [title, plainTable("Differences", [
    { title: "Path", cell: (path) => h("code", { title: path }, path) },
    { title: `Record ${count(before.seq)}`, class: "data", cell: (path) => cell(old, path, "was") },
    { title: `Record ${count(after.seq)}`, class: "data", cell: (path) => cell(now, path, "is") },
  ], rows.slice(0, SHOWN))];
}
