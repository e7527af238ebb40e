/** The hooks for the React of your project. */

import * as React from "react";
import { makeUseFeed, makeUseLog } from "./hook.js";

export const useLog = makeUseLog(React);
export const useFeed = makeUseFeed(React);
