// How a program here talks with the test that started it: lines of JSON out, lines in.
import { createInterface } from "node:readline"

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

export function say(what) {
  process.stdout.write(JSON.stringify(what) + "\n")
}

export async function listen() {
  const { value, done } = await lines.next()
  if (done) throw new Error("nobody is there any more")
  return value
}

// A program that waits for something that never comes must not wait for ever.
export function inTime(promise, what, milliseconds = 30_000) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${milliseconds} ms`)), milliseconds)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
