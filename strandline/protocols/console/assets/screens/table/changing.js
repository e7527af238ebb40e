/** Dialogs that change rows, through the routes of tables. */

import { get, send } from "../../api.js";
import { plainTable } from "../../parts/table.js";
import { attempt, field, notice, openDialog } from "../../shell/dialogs.js";
import { h, replace } from "../../shell/dom.js";
import { ago, plural } from "../../shell/format.js";
import { actingHeaders, actingWords } from "./acting.js";
import { fieldsOf, payloadForm, payloadOf, shownValue } from "./fields.js";

export function tablePath(table, operation) {
  return `/tables/${encodeURIComponent(table)}/${operation}`;
}

/** Opens a dialog that appends a row. */
export function addRow(table, parent, done) {
  const fields = fieldsOf(table.schema);
  const form = payloadForm(fields, Object.fromEntries(fields.filter((one) => one.fallback !== undefined).map((one) => [one.name, one.fallback])));
  const key = h("input", { autocomplete: "off", spellcheck: "false", placeholder: "none" });
  openDialog({
    title: `New row in ${parent}`,
    action: "Append",
    wide: true,
    body: [form.elements, field("Idempotency key", key, "Appending with the same key again has no effect."), h("p.hint", {}, `The row is written by ${actingWords("anonymous")}.`)],
    submit: () => marked(form, async () => {
      const body = { parent, payload: form.values() };
      if (key.value) body.idempotencyKey = key.value;
      const { id, created } = await send("POST", tablePath(table.name, "append"), body, actingHeaders());
      notice(created ? `Row ${id} was appended.` : `Row ${id} already has this idempotency key; nothing was appended.`);
      done(id);
    }),
  });
}

/** Opens a dialog that edits a row. If the row has changed meanwhile, it shows what, and saving again keeps both. */
export function editRow(table, row, owner, done) {
  const form = payloadForm(fieldsOf(table.schema), payloadOf(row));
  const place = h("div.stack", { hidden: true });
  const first = payloadOf(row);
  let base = row;
  const { button } = openDialog({
    title: `Edit row ${row.id}`,
    action: "Save",
    wide: true,
    body: [place, form.elements, h("p.hint", {}, `The row is changed by ${actingWords(row.userId, owner)}. Only the fields that you change are written.`)],
    submit: () => marked(form, async () => {
      const patch = changesOf(payloadOf(base), form.values());
      if (!Object.keys(patch).length) throw new Error("Nothing was changed.");
      try {
        await send("POST", tablePath(table.name, "update"), { id: row.id, patch, expectedUpdatedAt: base.updatedAt }, actingHeaders(row.userId, owner));
      } catch (error) {
        if (error.code !== "CONFLICT" || error.members.updatedAt === undefined) throw error;
        await showConflict(patch);
        return Promise.reject(new Error("The row was changed by another request. Check your fields and save again."));
      }
      notice(`Row ${row.id} was saved.`);
      return done(row.id);
    }),
  });

  /** The row as it is stored now becomes the base; the fields that the user changed keep the user's values. */
  async function showConflict(patch) {
    const { row: now, edits } = await get(`/console/api/table/${encodeURIComponent(table.name)}/row`, { id: row.id });
    base = now;
    const stored = payloadOf(now);
    form.set({ ...stored, ...patch });
    button.textContent = "Save anyway";
    place.hidden = false;
    const last = edits.at(-1);
    const names = [...new Set([...Object.keys(changesOf(first, stored)), ...Object.keys(patch)])];
    replace(place,
      h("p", {}, h("b", {}, last?.user ?? "The program"), " changed this row ", ago(now.updatedAt), ", after you opened it."),
      plainTable("Conflict", [
        { title: "Field", width: "24%", cell: (name) => h("code", {}, name) },
        { title: "When you opened it", cell: (name) => shownValue(first[name]) },
        { title: "Stored now", cell: (name) => (same(first[name], stored[name]) ? shownValue(stored[name]) : h("span.is", {}, shownValue(stored[name]))) },
        { title: "Yours", cell: (name) => (name in patch ? shownValue(patch[name]) : h("span.muted", {}, "unchanged")) },
      ], names));
    place.scrollIntoView({ block: "nearest" });
  }
}

/** The members of a payload that differ. Rows cannot lose fields. */
export function changesOf(before, after) {
  const lost = Object.keys(before).filter((name) => !(name in after));
  if (lost.length) throw new Error(`A field cannot be removed from a row: ${lost.join(", ")}. Set it to null or to its default.`);
  return Object.fromEntries(Object.entries(after).filter(([name, value]) => !same(before[name], value)));
}

function same(one, other) {
  return JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
}

function sorted(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(sorted);
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, sorted(value[name])]));
}

/** Runs a submit, and shows errors of single fields at the fields. */
async function marked(form, run) {
  form.mark({});
  try {
    return await run();
  } catch (error) {
    form.mark(error.members?.fieldErrors ?? {});
    throw error;
  }
}

/** Opens a dialog that removes a row. */
export function removeRow(table, row, owner, done, { hard = false } = {}) {
  const permanent = h("input", { type: "checkbox", checked: hard || !table.soft_delete, disabled: hard || !table.soft_delete });
  openDialog({
    title: `Remove row ${row.id}?`,
    action: hard || !table.soft_delete ? "Remove permanently" : "Remove",
    danger: true,
    body: [
      h("p", {}, table.soft_delete && !hard ? "The row moves to the trash, where it can be restored." : "The row and its history are deleted. This cannot be undone."),
      table.soft_delete && !hard ? h("label.check", {}, permanent, "Remove it permanently, with its history") : null,
      h("p.hint", {}, `The row is removed by ${actingWords(row.userId, owner)}.`),
    ],
    submit: async () => {
      const { deleted } = await send("POST", tablePath(table.name, "rm"), { id: row.id, hard: permanent.checked }, actingHeaders(row.userId, owner));
      notice(deleted ? `Row ${row.id} was removed.` : `Row ${row.id} had been removed before.`);
      done();
    },
  });
}

/** Restores a row from the trash. */
export async function restoreRow(table, row, owner, done) {
  const remover = row.deletedBy === row.userId ? row.userId : owner ?? row.userId;
  await attempt(() => send("POST", tablePath(table.name, "restore"), { id: row.id }, actingHeaders(remover)), `Row ${row.id} was restored.`);
  done();
}

/** Opens a dialog that removes all rows of a parent. */
export function removeAll(table, parent, owner, done) {
  const permanent = h("input", { type: "checkbox", checked: !table.soft_delete, disabled: !table.soft_delete });
  openDialog({
    title: `Remove all rows of ${parent}?`,
    action: "Remove all rows",
    danger: true,
    body: [
      h("p", {}, table.soft_delete ? "All rows move to the trash, where they can be restored." : "All rows and their history are deleted. This cannot be undone."),
      table.soft_delete ? h("label.check", {}, permanent, "Remove them permanently, and those in the trash as well") : null,
      h("p.hint", {}, `The rows are removed by ${actingWords(owner)}.`),
    ],
    submit: async () => {
      const { deleted } = await send("POST", tablePath(table.name, "purgeByParent"), { parent, hard: permanent.checked }, actingHeaders(owner));
      notice(`${plural(deleted, "row")} removed.`);
      done();
    },
  });
}

/** Restores all rows of a parent that are in the trash. */
export async function restoreAll(table, parent, owner, done) {
  await attempt(() => send("POST", tablePath(table.name, "restoreByParent"), { parent }, actingHeaders(owner)), ({ restored }) => `${plural(restored, "row")} restored.`);
  done();
}
