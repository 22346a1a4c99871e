import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"

import { RUNNERS, testKind } from "../src/runners.js"

function holds(cases) {
  for (const [line, kind] of cases) assert.equal(testKind(line), kind, JSON.stringify(line))
}

test("test commands are known by program and arguments", () => {
  holds([
    ["cargo test", "cargo"],
    ["cargo +nightly test --release -- --nocapture", "cargo"],
    ["cargo nextest run", "cargo"],
    ["npm test", "npm"],
    ["npm t", "npm"],
    ["npm run test:unit -- --grep 'a b'", "npm"],
    ["pnpm test", "pnpm"],
    ["pnpm exec vitest run", "vitest"],
    ["yarn jest src", "yarn"],
    ["bun test", "bun"],
    ["pytest -q tests/test_x.py::test_a", "pytest"],
    ["python3.12 -m pytest", "pytest"],
    ["python -m unittest discover", "unittest"],
    [".venv/bin/pytest", "pytest"],
    ["go test ./...", "go"],
    ["npx jest", "jest"],
    ["vitest", "vitest"],
    ["node --test tests/", "node"],
    ["make test", "make"],
    ["make -j4 check V=1", "make"],
    ["./mvnw -q test", "maven"],
    ["mvn clean verify", "maven"],
    ["./gradlew test --info", "gradle"],
    ["dotnet test", "dotnet"],
    ["ctest --output-on-failure", "ctest"],
    ["bundle exec rspec", "rspec"],
    ["vendor/bin/phpunit", "phpunit"],
    ["tox -e py312", "tox"],
    ["mix test", "mix"],
    ["swift test", "swift"],
    ["deno test", "deno"],
  ])
})

test("other commands of the same programs are none", () => {
  holds([
    ["cargo build", null],
    ["cargo test --no-run", null],
    ["cargo test --help", null],
    ["npm install", null],
    ["npm run build", null],
    ["npm run test:watch", null],
    ["npm install test", null],
    ["python3 test.py", null],
    ["go vet ./...", null],
    ["make", null],
    ["make test install", null],
    ["mvn package -DskipTests", null],
    ["mvn test -DskipTests", null],
    ["gradle build", null],
    ["pytest --collect-only", null],
    ["jest --watch", null],
    ["test -f cargo", null],
    ["echo cargo test", null],
    ["cat pytest", null],
    ["git commit -m 'cargo test'", null],
    ["", null],
    ["'cargo test'", null],
  ])
})

test("preparations, assignments and wrappers do not hide a test command", () => {
  holds([
    ["cd backend && cargo test", "cargo"],
    ["cd 'a b'; npm test", "npm"],
    ["# the tests\ncd x\npytest", "pytest"],
    ["RUST_BACKTRACE=1 cargo test", "cargo"],
    ["env CI=1 npm test", "npm"],
    ["CI=1\nnpm test", "npm"],
    ["timeout 60 go test ./...", "go"],
    ["timeout -k 5 60 go test", null],
    ["time uv run pytest", "pytest"],
    ["source .venv/bin/activate && pytest", "pytest"],
    ["cargo test --lib && cargo test --test it", "cargo"],
    ["cargo \\\n  test", "cargo"],
    ["cargo test 2>&1", "cargo"],
    ["cargo test > out.txt 2> err.txt", "cargo"],
    ["cargo test &> out.txt", "cargo"],
    ["pytest -k \"a and not b\" --cov=$SRC", "pytest"],
  ])
})

test("a line whose status is not the test command's is refused", () => {
  holds([
    ["cargo test; echo done", null],
    ["cargo test; cargo test", null],
    ["cargo test\necho done", null],
    ["cargo test && git push", null],
    ["cargo build && cargo test", null],
    ["cargo test || true", null],
    ["cargo test &", null],
    ["cargo test | tail -5", null],
    ["cargo test 2>&1 | grep FAILED", null],
    ["(cargo test)", null],
    ["! cargo test", null],
    ["if cargo test; then echo; fi", null],
    ["for i in 1 2; do cargo test; done", null],
    ["cargo test $(cat names)", null],
    ["cargo test `cat names`", null],
    ["cargo test \"$(cat names)\"", null],
    ["cargo test <<EOF\nx\nEOF", null],
    ["diff <(cargo test) x", null],
    ["cargo test 'unclosed", null],
    ["cargo test &&", null],
    ["bash -c 'cargo test'", null],
    ["cargo test |& tee x", null],
  ])
})

test("under pipefail the output may go through a viewer", () => {
  holds([
    ["set -o pipefail; cargo test 2>&1 | tail -20", "cargo"],
    ["set -euo pipefail && pytest | tee log.txt", "pytest"],
    ["set -o pipefail; cargo test | grep x", null],
    ["set -e; cargo test | tail", null],
    ["set -o pipefail; cargo test | tail; echo", null],
    ["set -o pipefail; cat x | pytest", null],
  ])
})

test("no line takes long or throws", () => {
  const lines = [
    "a".repeat(9000), "'".repeat(8000), "\"\\".repeat(4000), "$".repeat(8000), "a ".repeat(4000), "\\\n".repeat(4000),
    "a;".repeat(4000), "#".repeat(8000), "x#".repeat(4000), "2".repeat(8000), "env ".repeat(500), undefined, 5, {},
  ]
  const begun = performance.now()
  for (const line of lines) assert.equal(testKind(line), null)
  assert.ok(performance.now() - begun < 1000)
})

test("the README lists every program that is known, and no other", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8")
  const list = readme.slice(readme.indexOf("<!-- programs -->"), readme.indexOf("<!-- end of programs -->"))
  const rows = [...list.matchAll(/^\| (`[^|]+) \|/gm)].flatMap(([, names]) => names.match(/`[^`]+`/g))
  assert.deepEqual(rows.map((name) => name.slice(1, -1)).sort(), [...RUNNERS.keys()].sort())
})
