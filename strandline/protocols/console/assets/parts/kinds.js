/** Kinds of logs, and their paths in the protocols. */

import { h } from "../shell/dom.js";

export function kindChip(kind) {
  return h("span.chip", { dataset: kind === "queue" ? { kind: "accent" } : {} }, kind);
}

const TOPIC = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$/;

/** Whether the topics protocol accepts this name. */
export function isTopicName(name) {
  return TOPIC.test(name);
}

/** @returns {string} */
export function topicPath(name) {
  return `/v0/topics/${encodeURIComponent(name)}`;
}

/** Slashes are part of a stream's path. @returns {string} */
export function streamPath(name) {
  return `/v1/stream/${name.split("/").map(encodeURIComponent).join("/")}`;
}

const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** The sequence number in an offset of the streams protocol: 64 of its 128 bits, in base 32. @returns {number} */
export function seqOfOffset(offset) {
  let value = 0n;
  for (const character of offset) value = (value << 5n) | BigInt(ALPHABET.indexOf(character));
  return Number((value >> 34n) & ((1n << 64n) - 1n));
}
