import type { UseFeed, UseLog } from "./strandline.js";

/** A log inside a component. It is open while a component shows it. */
export declare const useLog: UseLog;
/** A feed inside a component. It is open while a component shows it. */
export declare const useFeed: UseFeed;
