/** Formats of numbers, sizes, durations and times. */

import { h } from "./dom.js";
import { shifted, zone } from "./zone.js";

const THIN = "\u202f";

/** 1234567 → "1 234 567", with thin separators. */
export function count(value) {
  if (value === null || value === undefined) return "–";
  return String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
}

/** Three significant digits: 1234567 → "1.23 M". */
export function short(value) {
  if (value === null || value === undefined) return "–";
  return scaled(value, 1000, ["", "k", "M", "G", "T"]);
}

/** 12345 → "12.3 kB" */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  return scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

/** A rate per second. */
export function rate(value) {
  if (!value) return `0${THIN}/s`;
  return value < 10 ? `${trim(value.toFixed(1))}${THIN}/s` : `${short(value)}/s`.replace(/(\d)\/s/, `$1${THIN}/s`);
}

/** A fraction: 0.125 → "12.5 %". */
export function percent(value) {
  return `${trim((value * 100).toFixed(1))}${THIN}%`;
}

/** A duration in microseconds. */
export function micros(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${Math.round(value)}${THIN}µs`;
  return duration(value / 1000);
}

/** A duration in milliseconds: 1500 → "1.5 s", 90000 → "1 min 30 s". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${trim(ms.toFixed(1))}${THIN}ms`;
  if (ms < 1000) return `${Math.round(ms)}${THIN}ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${trim(seconds.toFixed(seconds < 10 ? 1 : 0))}${THIN}s`;
  const whole = Math.round(seconds);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  return units
    .slice(first, first + 2)
    .map(([unit, size], index) => [Math.floor((index ? whole % units[first][1] : whole) / size), unit])
    .filter(([number], index) => number || !index)
    .map(([number, unit]) => `${number}${THIN}${unit}`)
    .join(" ");
}

const UNITS = { w: 604_800_000, d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/** What `parseDuration` accepts, as the pattern of a field. */
export const DURATION = "\\s*0\\s*|(\\s*[0-9]+\\s*(ms|[wdhms]))+\\s*";

/** A duration as users type it: 5400000 → "1h 30m". */
export function durationText(ms) {
  let rest = ms;
  const parts = Object.entries(UNITS).slice(1).map(([unit, size]) => {
    const number = Math.floor(rest / size);
    rest -= number * size;
    return number ? `${number}${unit}` : "";
  });
  return parts.filter(Boolean).join(" ") || "0";
}

/** "1h 30m" → 5400000 */
export function parseDuration(text) {
  return [...text.matchAll(/([0-9]+)\s*(ms|[wdhms])/g)].reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0);
}

/** "3 s ago", "in 20 s", "just now" */
export function relative(ms, now = Date.now()) {
  if (!ms) return "never";
  const distance = now - ms;
  if (Math.abs(distance) < 1000) return "just now";
  const text = duration(Math.abs(distance) < 60000 ? Math.round(Math.abs(distance) / 1000) * 1000 : Math.abs(distance));
  const words = Math.abs(distance) < 60000 ? text : text.split(" ")[0];
  return distance < 0 ? `in ${words}` : `${words} ago`;
}

/** "2026-11-15 21:07:03.123", in the chosen zone. */
export function absolute(ms) {
  return `${shifted(ms).toISOString().slice(0, 10)} ${clock(ms)}`;
}

/** "21:07:03.123" */
export function clock(ms) {
  return shifted(ms).toISOString().slice(11, 23);
}

/** A time element: relative, with the absolute time as its title; updated while it is shown. */
export function ago(ms) {
  if (!ms) return h("span.muted", {}, "never");
  return h("time.ago", { datetime: new Date(ms).toISOString(), title: absolute(ms), dataset: { at: ms } }, relative(ms));
}

/** "1 record", "2 records" */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * Parses a time that a user typed, in the chosen zone: "2026-11-15", "2026-11-15 10:30", "10:30", "-15m", "2h ago".
 * @returns {number|null} milliseconds since 1970
 */
export function parseMoment(text, now = Date.now()) {
  const words = text.trim();
  const back = /^-?\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)(?:\s+ago)?$/.exec(words);
  if (back) return now - Number(back[1]) * { s: 1e3, m: 6e4, min: 6e4, h: 36e5, d: 864e5 }[back[2]];
  const time = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/.exec(words);
  if (time) {
    const at = new Date(now);
    const parts = [Number(time[1]), Number(time[2]), Number(time[3] ?? 0), Number((time[4] ?? "0").padEnd(3, "0"))];
    return zone() === "utc" ? at.setUTCHours(...parts) : at.setHours(...parts);
  }
  if (!/^\d{4}-\d{2}-\d{2}/.test(words)) return null;
  const complete = words.length === 10 ? `${words}T00:00` : words.replace(" ", "T");
  const parsed = Date.parse(zone() === "utc" && !/(Z|[+-]\d{2}:?\d{2})$/i.test(complete.slice(10)) ? `${complete}Z` : complete);
  return Number.isNaN(parsed) ? null : parsed;
}

function scaled(value, base, units) {
  let step = 0;
  let number = value;
  while (Math.abs(number) >= base * 0.9995 && step < units.length - 1) {
    number /= base;
    step += 1;
  }
  const digits = step === 0 ? (Number.isInteger(number) || number >= 100 ? 0 : 1) : number < 10 ? 2 : number < 100 ? 1 : 0;
  const text = trim(number.toFixed(digits));
  return units[step] ? `${text}${THIN}${units[step]}` : text;
}

function trim(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

setInterval(() => {
  const now = Date.now();
  for (const element of document.querySelectorAll("time.ago")) {
    const text = relative(Number(element.dataset.at), now);
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);
