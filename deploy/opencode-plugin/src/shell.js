// Splits a command line of a POSIX shell into its simple commands, as far as an exit status can be told from it.
//
// Refuses (null) what needs a real shell to say whose status counts: `||`, `&`, subshells, substitutions, here
// documents, control structures. A refused line costs a report; a misread one would report a falsehood.

const LINE_CHARS_MAX = 8192
const COMMANDS_MAX = 64
const WORDS_MAX = 512

const RESERVED = new Set([
  "!", "{", "}", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
  "select", "then", "until", "while",
])

// A word: bare characters, escapes and quotes in any order. A double quote without `$(` or a backquote.
const WORD = /(?:[^\s\\'"`$&|;<>()#]|\\[^\n]|'[^']*'|"(?:[^"\\`$]|\\[\s\S]|\$(?!\())*"|\$(?![('"])|(?<=[^\s;&|])#)+/y
const REDIRECTION = /(?:\d*(?:>>|>\||>&|<&|>|<(?![<(&]))|&>>?)[ \t]*/y
const BLANKS = /(?:[ \t]|\\\n)+/y
const COMMENT = /#[^\n]*/y
const SEPARATOR = /&&|\|(?![|&])|;(?!;)|\n/y

/**
 * The simple commands of a line, in order: `{ words, before }`, where `before` is what joins a command to the one
 * before it: `&&`, `;` (also for a line feed) or `|`, and null for the first. Redirections are left out.
 */
export function commandsOf(line) {
  if (typeof line !== "string" || line.length > LINE_CHARS_MAX) return null
  const commands = []
  let words = []
  let before = null
  let at = 0
  const take = (pattern) => {
    pattern.lastIndex = at
    const found = pattern.exec(line)
    if (found !== null) at = pattern.lastIndex
    return found?.[0]
  }
  const close = () => {
    commands.push({ words, before })
    words = []
  }
  while (at < line.length) {
    if (take(BLANKS) !== undefined) continue
    if (atWordStart(line, at) && take(COMMENT) !== undefined) continue
    if (take(REDIRECTION) !== undefined) {
      if (take(WORD) === undefined) return null
      continue
    }
    const separator = take(SEPARATOR)
    if (separator !== undefined) {
      const empty = words.length === 0
      if (separator === "\n" || separator === ";") {
        // An empty line; or a line that goes on after `&&` or `|`.
        if (empty && separator === ";") return null
        if (empty) continue
      } else if (empty) {
        return null
      }
      close()
      before = separator === "\n" ? ";" : separator
    } else {
      const word = take(WORD)
      if (word === undefined || words.length >= WORDS_MAX || commands.length >= COMMANDS_MAX) return null
      const plain = unquoted(word)
      if (words.length === 0 && RESERVED.has(word)) return null
      words.push(plain)
    }
  }
  if (words.length > 0) close()
  else if (before === "&&" || before === "|") return null
  return commands.length > 0 ? commands : null
}

function atWordStart(line, at) {
  return at === 0 || /[\s;&|]/.test(line[at - 1])
}

function unquoted(word) {
  return word.replace(/'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])/g, (_, single, double, escaped) => {
    if (single !== undefined) return single
    if (double !== undefined) return double.replace(/\\([\\"$`])/g, "$1")
    return escaped
  })
}
