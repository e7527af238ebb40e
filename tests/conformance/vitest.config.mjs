import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["suite.test.mjs"],
    // The suite means 5 s, which a server alone on its machine keeps; here other tests run beside it.
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
})
