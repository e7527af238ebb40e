/** The words of a query, to highlight in the hits. */

const TOKEN = /(-|NOT\s+)?(?:([\w.@$-]+):)?(?:([<>]=?|=)?)("(?:[^"\\]|\\.)*"|[^\s()"]+)/g;

/** @param {string} query @returns {RegExp|null} a pattern for the words, or null without words */
export function wordsOf(query) {
  const words = [];
  for (const [, not, field, relation, value] of query.matchAll(TOKEN)) {
    if (not || (relation && relation !== "=") || field === "has" || ["AND", "OR", "NOT"].includes(value)) continue;
    const text = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value;
    const word = text.replace(/\*$/, "");
    if (word && /[\p{L}\p{N}]/u.test(word)) words.push(text.endsWith("*") ? `${escape(word)}[\\p{L}\\p{N}_-]*` : escape(word));
  }
  if (!words.length) return null;
  words.sort((a, b) => b.length - a.length);
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})(?![\\p{L}\\p{N}])`, "giu");
}

function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
}
