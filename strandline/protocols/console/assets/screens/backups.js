/** Backups: what survives the loss of this machine: the backups, the replica and the cold tier. */

import { get } from "../api.js";
import { codeBlock, curl, python, snippet } from "../parts/code.js";
import { heading, stats } from "../parts/heading.js";
import { empty, failure, liveMark, loading, repeat } from "../parts/states.js";
import { plainTable } from "../parts/table.js";
import { h, replace } from "../shell/dom.js";
import { absolute, ago, bytes, count, duration, plural, relative, short } from "../shell/format.js";

const REFRESH_MS = 5000;
const PATH = "/v0/backups";
/** A backup or a replica that is further behind is worth a look. */
const OLD_MS = 26 * 3_600_000;
const LATE_MS = 10_000;

export function open(root) {
  const live = liveMark();
  const place = h("div.stack.backups", {}, loading());
  const code = codeBlock();
  code.set({
    curl: curl({ path: PATH }),
    python: python([`copies = json.loads(client.call("GET", "${PATH}").body)`, 'if copies["found"]:', '    print([(one["name"], one["missing_files"]) for one in copies["found"]["backups"]])', 'print(copies["replica"])']),
  });
  let before = "";
  const ask = async (signal) => {
    const answer = await get(PATH);
    if (signal.aborted) return;
    live.set("live");
    // Unchanged parts are not drawn again, so that they keep the keyboard focus.
    const { now, checked_at: checked, ...rest } = answer;
    const text = JSON.stringify([rest, Math.floor(now / 60_000)]);
    if (text === before) return;
    before = text;
    replace(place, verdict(answer), figures(answer), h("div.columns", {}, replicaCard(answer), coldCard(answer)), backupsCard(answer), commandsCard(answer));
  };
  const failed = (error) => {
    live.set(error.status ? "refused" : "waiting");
    if (!before) replace(place, failure(error, () => refresher.now()));
  };
  const refresher = repeat(REFRESH_MS, ask, failed);
  replace(root, heading("Backups", [live.element]), place, code.element);
  return () => refresher.stop();
}

/** The newest backup of this data directory whose files are all there. */
function newest({ found }) {
  return found?.backups.find((one) => one.own && !one.missing_files) ?? null;
}

/** Whether another server could start from the replica. */
function works(replica) {
  return replica !== null && replica.has_state && replica.role === "leader";
}

// --- what survives -------------------------------------------------------------------------------------------------

function verdict(answer) {
  const { replica, now } = answer;
  const backup = newest(answer);
  const lines = [];
  let kind = "good";
  if (answer.follower) {
    lines.push(h("b", {}, "Nothing is lost: this server only follows another one."));
    lines.push(`Its data is that of the leader${answer.follower.leader ? `, ${answer.follower.leader}` : ""}. Look there for what survives the loss of the leader.`);
  } else if (works(replica)) {
    const late = replica.away || replica.lag_ms > LATE_MS;
    kind = late ? "warn" : "good";
    lines.push(h("b", {}, late ? `Another server can take over, without the last ${bytes(replica.waiting_bytes)} of the journal.` : "Another server can take over from the replica."));
    lines.push(replica.away ? `The store of the replica accepts nothing, for ${duration(replica.lag_ms)} now. Writes to logs of the durability “replicated” get 503 until it does.` : `Acknowledged records of logs of the durability “replicated” are in it. Of other logs, the last ${duration(Math.max(replica.lag_ms, replica.interval_ms))} can be lost.`);
  } else if (backup) {
    const old = now - backup.until > OLD_MS;
    kind = old ? "bad" : "warn";
    lines.push(h("b", {}, `The state of ${relative(backup.until, now)} can be restored from a backup.`));
    lines.push("Everything that was written since is lost, because the server has no replica that another one could start from.");
  } else {
    kind = "bad";
    lines.push(h("b", {}, "Everything on its disk is lost."));
    lines.push(answer.location ? "The location of the backups has no complete backup of this data directory, and there is no replica that another server could start from." : "The server has no replica, and its settings do not say where its backups are.");
  }
  if (answer.follower) return card(kind, lines);
  if (works(replica) && backup) lines.push(`Against mistakes, the state of ${relative(backup.until, now)} is in a backup.`);
  else if (works(replica)) lines.push("A replica repeats mistakes, such as a delete: only a backup has the state before them.");
  return card(kind, lines);
}

function card(kind, lines) {
  return h("section.card.verdict", { "aria-label": "If this machine is lost", dataset: { kind } }, h("h2", {}, "If this machine is lost now"), h("div.pad", {}, lines.map((line) => h("p", {}, line))));
}

function figures(answer) {
  const { found, replica, follower, cold_tier: cold, now } = answer;
  const backup = newest(answer);
  return stats([
    ["Newest backup", backup ? ago(backup.time) : "none", backup ? (now - backup.time > OLD_MS ? "warn" : "good") : "bad"],
    ["Backups", found ? count(found.total) : "–"],
    ["Size of all backups", found && found.bytes !== null ? bytes(found.bytes) : "–"],
    ["Replica", replica ? (replica.away ? "away" : replica.role) : follower ? "follower" : "none", replica ? (replica.away || replica.role !== "leader" ? "bad" : "good") : undefined],
    follower ? ["Behind the replica", duration(follower.lag_ms), follower.lag_ms > LATE_MS ? "warn" : undefined] : ["Replica lacks", replica ? bytes(replica.waiting_bytes) : "–", replica && replica.lag_ms > LATE_MS ? "warn" : undefined],
    ["Not sealed yet", bytes(answer.journal_bytes)],
    ["In the cold tier", cold ? bytes(cold.bytes) : "–", cold?.error ? "bad" : undefined],
    ["Replicated logs", count(answer.logs.replicated ?? 0)],
  ]);
}

// --- the replica and the cold tier -------------------------------------------------------------------------------------

function replicaCard({ replica, follower, logs }) {
  const title = h("h2", {}, "Replica");
  if (follower) {
    return h("section.card", { "aria-label": "Replica" }, h("header", {}, title, h("span.chip", { dataset: { kind: "accent" } }, "follower")), h("div.pad", {}, facts([
      ["Follows", h("code", {}, follower.location)],
      ["Leader", follower.leader || "unknown"],
      ["Term", count(follower.term)],
      ["Last chunk", count(follower.chunk)],
      ["Behind", duration(follower.lag_ms)],
    ])));
  }
  if (!replica) {
    return h("section.card", { "aria-label": "Replica" }, title, h("div.pad", {}, h("p.muted", {}, "None. With the setting ", h("code", {}, "replica"), ", a copy of the data directory follows in an object store while the server writes, and a standby can take over from it."), logs.replicated ? h("p.problem", {}, `${plural(logs.replicated, "log")} of the durability “replicated” cannot be written to without one.`) : null));
  }
  return h("section.card", { "aria-label": "Replica" }, h("header", {}, title, h("span.chip", { dataset: { kind: replica.role === "leader" ? "good" : "bad" } }, replica.role), replica.away ? h("span.chip", { dataset: { kind: "bad" } }, "store away") : null),
    h("div.pad.stack", {},
      replica.away ? h("p.problem", {}, "The store does not accept chunks. The log of the server says why, and it tries again.") : null,
      replica.has_state ? null : h("p.problem", {}, "The replica has no state yet, so no other server could start from it."),
      facts([
        ["Location", h("code", {}, replica.location)],
        ["Term", count(replica.term)],
        ["Last chunk", count(replica.chunk)],
        ["Lacks", replica.waiting_bytes ? `${bytes(replica.waiting_bytes)}, since ${duration(replica.lag_ms)}` : "nothing"],
        ["Waiting writes", replica.waiting_commits ? `${count(replica.waiting_commits)}, the oldest for ${duration(replica.waiting_ms)}` : "none"],
        ["Missing segments", replica.missing_segments ? h("span.bad-text", {}, `${count(replica.missing_segments)} are fetched from the replica`) : "none"],
        ["Standby takes over", replica.lease_ms ? `after ${duration(replica.lease_ms)} without a sign of life` : "when an operator runs “strandline takeover”"],
      ])));
}

function coldCard({ cold_tier: cold }) {
  const title = h("h2", {}, "Cold tier");
  if (!cold) return h("section.card", { "aria-label": "Cold tier" }, title, h("p.pad.muted", {}, "None. With the setting ", h("code", {}, "cold_url"), ", old segments move to a directory or an object store."));
  const all = cold.bytes + cold.hot_bytes;
  return h("section.card", { "aria-label": "Cold tier" }, h("header", {}, title, h("span.chip", { dataset: { kind: cold.error ? "bad" : "good" } }, cold.error ? "store away" : "reachable")),
    h("div.pad.stack", {},
      cold.error ? h("p.problem", {}, cold.error) : null,
      h("span.bar", { title: `${bytes(cold.bytes)} in the cold tier, ${bytes(cold.hot_bytes)} on this machine` }, all ? [h("i", { style: { flex: `${cold.bytes} 0 0`, background: "var(--series-1)" } }), h("i", { style: { flex: `${cold.hot_bytes} 0 0`, background: "var(--series-2)" } })] : null),
      facts([
        ["Location", h("code", {}, cold.location)],
        ["In the cold tier", `${plural(cold.segments, "segment")}, ${bytes(cold.bytes)}`],
        ["Only on this machine", `${plural(cold.hot_segments, "segment")}, ${bytes(cold.hot_bytes)}`],
        ["Cached here", bytes(cold.cached_bytes)],
      ]),
      h("p.muted", {}, "Its segments survive the machine, but only a backup or the replica says which logs they belong to.")));
}

// --- backups -------------------------------------------------------------------------------------------------------

function backupsCard(answer) {
  const { found, location, error, checked_at: checked } = answer;
  const head = h("header", {}, h("h2", {}, "Backups"), location ? h("code.where", { title: location }, location) : null, h("span.grow"), checked && location ? h("span.muted", {}, "checked ", ago(checked)) : null);
  return h("section.card", { "aria-label": "Backups" }, head, content());

  function content() {
    if (!location) return empty("The location of the backups is not known", "Set “backups” in the settings of the server (STRANDLINE_BACKUPS) to the directory or s3://bucket/prefix that “strandline backup” writes to.");
    if (error) return h("div.pad", {}, h("p.problem", { role: "alert" }, error));
    if (!found) return loading("The location is being read…");
    return [
      found.damaged.length ? h("div.pad", {}, found.damaged.map((one) => h("p.problem", {}, one))) : null,
      found.backups.length ? backupTable(found.backups) : empty("No backups yet", "Take one with the command below."),
      found.total > found.backups.length + found.damaged.length ? h("p.pad.muted", {}, `The newest ${count(found.backups.length)} of ${count(found.total)} backups.`) : null,
      found.intervals.length ? h("div.pad.restorable", {}, h("h3", {}, "Besides the backups themselves, these moments can be restored"), h("ul", {}, found.intervals.map((one) => h("li", {}, one.start === one.end ? absolute(one.end) : `${absolute(one.start)} to ${absolute(one.end)}`, one.own ? null : h("span.muted", {}, " (another data directory)"))))) : null,
    ];
  }
}

function backupTable(rows) {
  return plainTable("Backups", [
    { title: "Taken", cell: (one) => [h("b", { title: one.name }, absolute(one.time).slice(0, 19)), one.own ? null : h("span.chip", { title: `The data directory ${one.history}` }, "another directory")] },
    { title: "Age", width: "92px", cell: (one) => ago(one.time) },
    { title: "Kind", class: "wide-only", width: "110px", cell: (one) => h("span.muted", { title: "Every backup is complete. Files that the one before has are shared." }, one.new_bytes === one.bytes ? "full copy" : "shares files") },
    { title: "Size", class: "number", width: "92px", cell: (one) => bytes(one.bytes) },
    { title: "New", class: "number.wide-only", width: "92px", cell: (one) => bytes(one.new_bytes) },
    { title: "Sealed records", class: "number.wide-only", width: "124px", cell: (one) => short(one.sealed_records) },
    { title: "Files", class: "number.wide-only", width: "76px", cell: (one) => count(one.files) },
    { title: "Verified", class: "wide-only", width: "120px", cell: (one) => (one.verified_at ? h("span", { title: "Every file was read and found good since then" }, ago(one.verified_at)) : h("span.none", {}, "not all files")) },
    { title: "Complete", width: "104px", cell: complete },
  ], rows);
}

function complete(one) {
  if (one.missing_files === null) return h("span.chip", { title: "The files were not compared: there are too many, or the store is slow" }, "unknown");
  return one.missing_files ? h("span.chip", { dataset: { kind: "bad" }, title: "Files that the location lacks, or has with another size" }, `${count(one.missing_files)} missing`) : h("span.chip", { dataset: { kind: "good" }, title: "All files are there, with the right sizes" }, "complete");
}

function commandsCard({ data_dir: directory, location, cold_tier: cold }) {
  const target = location || "s3://bucket/prefix";
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const lines = [
    "# on the machine of the server, from a timer, one at a time",
    `strandline backup ${quoted(directory)} ${quoted(target)}${cold ? ` --cold ${quoted(cold.location)}` : ""} --keep 48`,
    "# read every file of every backup and compare its checksum",
    `strandline restore ${quoted(target)} --verify`,
    "# restore the newest backup, or with --at TIME a moment, into a new directory",
    `strandline restore ${quoted(target)} restored`,
  ];
  return h("section.card", { "aria-label": "Commands" }, h("h2", {}, "Take, check and restore a backup"), h("div.pad", {}, snippet("Shell", lines.join("\n"))));
}

function facts(rows) {
  return h("dl.facts.even", {}, rows.map(([title, value]) => h("div", {}, h("dt", {}, title), h("dd", {}, value))));
}
