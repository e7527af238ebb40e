/** Appends a record by hand. */

import { send } from "../../api.js";
import { streamPath, topicPath } from "../../parts/kinds.js";
import { field, notice, openDialog } from "../../shell/dialogs.js";
import { h } from "../../shell/dom.js";
import { count } from "../../shell/format.js";

/** Opens a dialog that appends a record. @param {{name: string, writable_by: string[], media_type: string, kind: string}} log */
export function appendByHand(log, key, done) {
  const isJson = log.media_type === "application/json";
  const byTopics = log.writable_by.includes("topics");
  const data = h("textarea", { rows: 9, spellcheck: "false", required: true, autofocus: true });
  if (isJson) data.value = "{\n  \n}";
  const keyField = h("input", { value: key ?? "", autocomplete: "off", spellcheck: "false" });
  const node = h("input", { autocomplete: "off", spellcheck: "false" });
  const meta = h("textarea", { rows: 3, spellcheck: "false", placeholder: "none" });
  const priority = h("input", { type: "number", value: "0" });
  const delay = h("input", { type: "number", min: 0, value: "0" });
  openDialog({
    title: `Append to ${log.name}`,
    action: "Append",
    wide: true,
    body: [
      field(isJson ? "Data (JSON)" : `Data (${log.media_type})`, data),
      h("div.pair", {}, field("Key", keyField, "optional; records can be filtered by key"), byTopics ? field("Node", node, "optional; who writes the record") : null),
      log.kind === "queue" ? h("div.pair", {}, field("Priority", priority, "higher priorities are delivered first"), field("Delay (seconds)", delay)) : null,
      byTopics ? h("details", {}, h("summary", {}, "Meta"), h("div.pad-top", {}, field("Meta (JSON)", meta))) : null,
    ],
    submit: async () => {
      const body = isJson ? parseJson("The data", data.value) : data.value;
      const seq = byTopics ? await toTopic(body) : await toStream(body);
      notice(seq ? `Record ${count(seq)} appended.` : "Record appended.");
      done();
    },
  });

  async function toTopic(body) {
    const record = { data: body };
    if (keyField.value) record.tag = keyField.value;
    if (node.value) record.node = node.value;
    if (meta.value.trim()) record.meta = parseJson("The meta", meta.value);
    if (Number(priority.value)) record.priority = Number(priority.value);
    if (Number(delay.value) > 0) record.not_before_ts = Date.now() + Number(delay.value) * 1000;
    return (await send("POST", topicPath(log.name), { records: [record] })).last_seq;
  }

  async function toStream(body) {
    const headers = { "content-type": log.media_type };
    if (keyField.value) headers["stream-key"] = keyField.value;
    // An array would become one record per element, so the record is wrapped in an array.
    await send("POST", streamPath(log.name), isJson ? JSON.stringify([body]) : body, headers);
    return null;
  }
}

/** @param {string} what begins the message of an error */
export function parseJson(what, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not valid JSON: ${error.message}`);
  }
}
