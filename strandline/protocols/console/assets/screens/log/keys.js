/** The keys of a log, with the number of records of each. */

import { get } from "../../api.js";
import { curl, literal, python } from "../../parts/code.js";
import { empty, failure, loading } from "../../parts/states.js";
import { virtualTable } from "../../parts/table.js";
import { h, replace } from "../../shell/dom.js";
import { count, plural } from "../../shell/format.js";
import { isTopicName, streamPath, topicPath } from "../../parts/kinds.js";

const PAGE = 500;

export function openKeys(place, log, { code, toTab }) {
  let keys = [];
  let more = false;
  let generation = 0;
  let busy = false;
  const search = h("input.grow", { type: "search", placeholder: "Key prefix…", "aria-label": "Key prefix", dataset: { search: "" }, autocomplete: "off", spellcheck: "false" });
  const found = h("span.muted", { role: "status" });
  const list = h("div.list", {}, loading());
  const table = virtualTable({
    label: "Keys",
    columns: [
      { title: "Key", cell: (row) => h("button.link", { type: "button" }, row.key) },
      { title: "Records", class: "number", width: "120px", cell: (row) => count(row.records) },
      { title: "Last record", class: "number.wide-only", width: "140px", cell: (row) => count(row.last_seq) },
    ],
    onopen: (row) => toTab("records", { key: row.key }),
    onscroll: (_, last) => more && last > keys.length - 50 && next(),
  });
  table.element.classList.add("openable");

  const next = async () => {
    if (busy) return;
    busy = true;
    const number = generation;
    try {
      const answer = await get(`/console/api/log/${encodeURIComponent(log.name)}/keys`, { prefix: search.value.trim(), after: keys.at(-1)?.key, limit: PAGE });
      if (number !== generation) return;
      keys = [...keys, ...answer.keys];
      more = answer.more;
      show();
    } catch (error) {
      if (number === generation) replace(list, failure(error, begin));
    } finally {
      busy = false;
    }
  };
  const show = () => {
    found.textContent = more ? `more than ${plural(keys.length, "key")}` : plural(keys.length, "key");
    if (!keys.length) return void replace(list, empty("No keys", search.value ? "No key starts with this text." : "No record of this log has a key. A key selects records: a tag in topics, a routing key in streams."));
    if (!table.element.isConnected) replace(list, table.element);
    table.set(keys);
    return undefined;
  };
  const begin = () => {
    generation += 1;
    busy = false;
    keys = [];
    more = false;
    table.choose(-1);
    next();
  };
  let typing = 0;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(begin, 200);
  });
  const path = isTopicName(log.name) ? topicPath(log.name) : streamPath(log.name);
  code.set({
    curl: isTopicName(log.name) ? curl({ path: `${path}/diff`, method: "POST", json: { view: "latest", include_tags: true } }) : curl({ path: `${path}?view=latest` }),
    python: python([`topic = client.topic(${literal(log.name)})`, "for record in topic.read(latest=True):  # the last record of each key", "    print(record.tag, record.seq, record.data)"]),
  });
  replace(place, h("div.row.toolbar", {}, search, found), list);
  table.bindKeys();
  begin();
  return {
    close: () => {
      generation += 1;
      clearTimeout(typing);
      table.close();
    },
  };
}
