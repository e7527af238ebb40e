/** How a table is kept current: in two words, and in a sentence. */
export const MODES = {
  append: ["streaming", "A streaming query appends rows as they arrive."],
  state: ["kept by state", "Streaming state keeps the groups, and each batch changes only the rows of its groups."],
  cdc: ["last row per key", "A streaming query keeps the last row of each key."],
  refresh: ["refreshed as a whole", "The query is computed as a whole, on a schedule and only if its inputs changed."],
  sink: ["written to a sink", "A streaming query writes rows to the sink as they arrive."],
};
