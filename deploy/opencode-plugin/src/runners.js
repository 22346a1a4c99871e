// Which shell commands are a run of tests whose exit status says how the tests went. A closed list: README.md has
// it for users, and a test holds the two together.

import { commandsOf } from "./shell.js"

// What may stand before the test command without a share in the status that is read: it prepares the shell.
const PREPARATIONS = new Set([":", ".", "cd", "export", "pushd", "set", "source", "true", "unset"])
// What a test command's output may be piped through under `pipefail`: these fail only when they cannot write.
const VIEWERS = new Set(["cat", "tail", "tee"])
// What stands before a command and ends with the command's status: the number of words of its own that are no
// flags. `timeout 60 go test` has one, the time.
const WRAPPERS = new Map([
  ["command", 0], ["env", 0], ["nice", 0], ["npx", 0], ["bunx", 0], ["stdbuf", 0], ["time", 0], ["timeout", 1],
  ["xvfb-run", 0],
])
// The same in two words.
const PAIRED_WRAPPERS = new Set([
  "bundle exec", "bun x", "hatch run", "npm exec", "pdm run", "pipenv run", "pnpm dlx", "pnpm exec", "poetry run",
  "rye run", "uv run", "yarn dlx", "yarn exec",
])
// With one of these nothing is run, or not to its end.
const NO_RUN = new Set([
  "--co", "--collect-only", "--dry-run", "--help", "--list", "--list-tests", "--listTests", "--no-run", "--version",
  "--watch", "--watchAll", "-DskipTests", "-Dmaven.test.skip=true", "-h",
])
const WRAPPERS_MAX = 8

const first = (...names) => (words) => names.includes(words[0])
const all = (...names) => (words) => {
  const targets = words.filter((word) => !word.startsWith("-") && !word.includes("="))
  return targets.length > 0 && targets.every((target) => names.includes(target))
}
const always = () => true
const script = (words) => {
  const [head, next] = words
  const isTest = (name) => name !== undefined && /^(test|tests)(:[\w:.-]+)?$/.test(name) && !/watch/.test(name)
  return isTest(head) || head === "t" || (["run", "run-script"].includes(head) && isTest(next))
}
// Packages that `yarn`, `pnpm` and `bun` run by their bare names.
const BARE = ["ava", "jest", "mocha", "vitest"]
const scriptOrBare = (words) => script(words) || BARE.includes(words[0])
const cargo = (words) => {
  const own = words[0]?.startsWith("+") ? words.slice(1) : words
  return ["t", "test"].includes(own[0]) || (own[0] === "nextest" && own[1] === "run")
}
const PYTHON_MODULES = ["nose2", "pytest", "unittest"]
const python = {
  kind: (words) => words[1],
  runs: (words) => words[0] === "-m" && PYTHON_MODULES.includes(words[1]),
}

/** Program, as its file is called: its kind in the report, and whether its arguments make it a run of tests. */
export const RUNNERS = new Map([
  ["ava", { kind: "ava", runs: always }],
  ["bun", { kind: "bun", runs: scriptOrBare }],
  ["cargo", { kind: "cargo", runs: cargo }],
  ["ctest", { kind: "ctest", runs: always }],
  ["deno", { kind: "deno", runs: first("test") }],
  ["dotnet", { kind: "dotnet", runs: first("test") }],
  ["go", { kind: "go", runs: first("test") }],
  ["gotestsum", { kind: "go", runs: always }],
  ["gradle", { kind: "gradle", runs: all("check", "cleanTest", "test") }],
  ["gradlew", { kind: "gradle", runs: all("check", "cleanTest", "test") }],
  ["jest", { kind: "jest", runs: always }],
  ["make", { kind: "make", runs: all("check", "test", "tests") }],
  ["mix", { kind: "mix", runs: first("test") }],
  ["mocha", { kind: "mocha", runs: always }],
  ["mvn", { kind: "maven", runs: all("clean", "test", "verify") }],
  ["mvnw", { kind: "maven", runs: all("clean", "test", "verify") }],
  ["node", { kind: "node", runs: (words) => words.includes("--test") }],
  ["nox", { kind: "nox", runs: always }],
  ["npm", { kind: "npm", runs: script }],
  ["phpunit", { kind: "phpunit", runs: always }],
  ["playwright", { kind: "playwright", runs: first("test") }],
  ["pnpm", { kind: "pnpm", runs: scriptOrBare }],
  ["py.test", { kind: "pytest", runs: always }],
  ["pytest", { kind: "pytest", runs: always }],
  ["python", python],
  ["python3", python],
  ["rspec", { kind: "rspec", runs: always }],
  ["swift", { kind: "swift", runs: first("test") }],
  ["tox", { kind: "tox", runs: always }],
  ["vitest", { kind: "vitest", runs: (words) => words[0] !== "watch" && words[0] !== "dev" }],
  ["yarn", { kind: "yarn", runs: scriptOrBare }],
])

/**
 * The kind of test run that the exit status of a command line speaks of, or null. With several test runs joined by
 * `&&` it is that of the last.
 */
export function testKind(line) {
  const commands = commandsOf(line)
  if (commands === null) return null
  const end = withoutViewers(commands)
  if (end === null) return null
  const kinds = end.map(({ words }) => kindOf(words))
  const last = kinds.at(-1)
  if (last === null) return null
  for (let at = 0; at < end.length - 1; at += 1) {
    const tests = kinds[at] !== null
    // `a; b` forgets the status of `a`, so a test run may stand before `&&` only.
    if (tests ? end[at + 1].before !== "&&" : !isPreparation(end[at].words)) return null
  }
  return last
}

// The commands without the viewers behind the last; null if a pipe hides the status.
function withoutViewers(commands) {
  const piped = commands.findIndex(({ before }) => before === "|")
  if (piped === -1) return commands
  const viewers = commands.slice(piped)
  const areViewers = viewers.every(({ before, words }) => before === "|" && VIEWERS.has(words[0]))
  const kept = commands.slice(0, piped)
  return areViewers && kept.some(({ words }) => setsPipefail(words)) ? kept : null
}

// `set -o pipefail`, `set -eo pipefail`, `set -euo pipefail`.
function setsPipefail(words) {
  const at = words.indexOf("pipefail")
  return words[0] === "set" && at > 0 && /^-[a-z]*o$/.test(words[at - 1])
}

function isPreparation(words) {
  const own = withoutAssignments(words)
  return own.length === 0 || PREPARATIONS.has(own[0])
}

function kindOf(words) {
  const own = withoutWrappers(words)
  if (own === null || own.length === 0) return null
  const runner = RUNNERS.get(programName(own[0]))
  const rest = own.slice(1)
  if (runner === undefined || rest.some((word) => NO_RUN.has(word))) return null
  if (!runner.runs(rest)) return null
  return typeof runner.kind === "function" ? runner.kind(rest) : runner.kind
}

function withoutAssignments(words) {
  const from = words.findIndex((word) => !/^[A-Za-z_]\w*=/.test(word))
  return from === -1 ? [] : words.slice(from)
}

function withoutWrappers(words) {
  let own = withoutAssignments(words)
  for (let count = 0; count < WRAPPERS_MAX; count += 1) {
    const paired = PAIRED_WRAPPERS.has(own.slice(0, 2).join(" "))
    const skipped = paired ? 0 : WRAPPERS.get(programName(own[0] ?? ""))
    if (skipped === undefined) return own
    own = own.slice(paired ? 2 : 1)
    // A flag may have a value that looks like a program; `npx --package jest jest` is then not recognised.
    while (own[0]?.startsWith("-")) own = own.slice(1)
    own = withoutAssignments(own.slice(skipped))
  }
  return null
}

// `./gradlew`, `node_modules/.bin/jest`, `python3.12`.
function programName(word) {
  return word.slice(word.lastIndexOf("/") + 1).replace(/^(python3)\.\d+$/, "$1")
}
