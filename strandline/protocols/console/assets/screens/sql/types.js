/** What the types of DuckDB mean for the display of a column. */

const NUMBER = /^(?:U?(?:TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DECIMAL\(.*\)|DOUBLE|FLOAT)$/;

/** @param {{type: string}} column */
export function isNumber({ type }) {
  return NUMBER.test(type);
}

/** @param {{type: string}} column */
export function isTime({ type }) {
  return type === "DATE" || type.startsWith("TIMESTAMP");
}
