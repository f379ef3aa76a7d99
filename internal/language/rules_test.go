package language

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A wordRule reports whether it finds a word or a sentence form in a line of
// prose. The name says what the rule finds.
type wordRule struct {
	name  string
	finds func(line string) bool
}

var wordRules = []wordRule{
	{"a sentence begins with Who, Whoever or What as a noun", beginsWithNounClause},
	{"who or whoever is a subject without a noun", hasWhoAsSubject},
	{"a person stands for a goroutine or a process",
		regexp.MustCompile(`(?i)\b(?:somebody|nobody|everybody|anybody|he|his|him|himself)\b`).MatchString},
	{`"tells whether" instead of "reports whether"`, regexp.MustCompile(`\btells? whether\b`).MatchString},
	{`"takes down" instead of "records"`, regexp.MustCompile(`\btakes? (?:it |that |this )?down\b`).MatchString},
	{`"X is for when" or "X is that of" instead of what X is or does`,
		regexp.MustCompile(`^\w+ is (?:for (?:when|who|those|somebody|a )|that of)\b`).MatchString},
}

// Limits of a line, in columns. A tab stands for as many columns as lead to the
// next multiple of four.
const (
	commentColumns  = 88
	markdownColumns = 100
)

var (
	beginsWithWho  = regexp.MustCompile(`(?:^|[.:;] )(?:Who|Whoever)\b`)
	questionAbout  = regexp.MustCompile(`^ (?:is|are|can|may|holds|does|did|has)\b[^.]*\?`)
	beginsWithWhat = regexp.MustCompile(`(?:^|[.:;] )What `)
	statement      = regexp.MustCompile(`^[a-z]+ [^?]*$`)
	condition      = regexp.MustCompile(`^if\b`)
)

// beginsWithNounClause reports whether a sentence in the line begins with a
// noun clause. Questions and "What if" do not count.
func beginsWithNounClause(line string) bool {
	for _, at := range beginsWithWho.FindAllStringIndex(line, -1) {
		if !questionAbout.MatchString(line[at[1]:]) {
			return true
		}
	}
	for _, at := range beginsWithWhat.FindAllStringIndex(line, -1) {
		if rest := line[at[1]:]; statement.MatchString(rest) && !condition.MatchString(rest) {
			return true
		}
	}
	return false
}

var (
	whoever   = regexp.MustCompile(`\bwhoever\b`)
	whoActs   = regexp.MustCompile(`\bwho (?:waits|holds|enters|asks|unlocks|leaves|needs|comes|cannot)\b`)
	afterNoun = regexp.MustCompile(`(?:[a-z], |\w )$`)
)

// hasWhoAsSubject reports whether a "who" is the subject of a sentence. A "who"
// that follows its noun does not count.
func hasWhoAsSubject(line string) bool {
	for _, at := range whoActs.FindAllStringIndex(line, -1) {
		if !afterNoun.MatchString(line[:at[0]]) {
			return true
		}
	}
	return whoever.MatchString(line)
}

// columns returns the width of a line.
func columns(line string) (n int) {
	for _, r := range line {
		if n++; r == '\t' {
			n = (n + 3) / 4 * 4
		}
	}
	return n
}

func TestWordRules(t *testing.T) {
	for _, test := range []struct {
		line string
		rule int // the index of the only rule that finds something in the line; -1 if none does
	}{
		{"Who waits is told.", 0},
		{"It is free. Whoever asks first gets it.", 0},
		{"What is left goes with the session", 0},
		{"Who holds the lock? The oldest node.", -1},
		{"What is a lock?", -1},
		{"What if the reply is lost", -1},
		{"it wakes whoever waits", 1},
		{"(who holds it)", 1},
		{"the waiter who holds it, who waits", -1},
		{"Nobody waits", 2},
		{"it waits for his node", 2},
		{"the node, the hinge, this", -1},
		{"ok tells whether it is held", 3},
		{"tell whether", 3},
		{"stells whether", -1},
		{"a hook takes that down", 4},
		{"a server takes down the session", 4},
		{"loose is for when the watch has ended", 5},
		{"owner is that of the node", 5},
		{"the name is that of the node", -1},
	} {
		for i, rule := range wordRules {
			assert.Equal(t, i == test.rule, rule.finds(test.line), "%q, rule %d: %s", test.line, i, rule.name)
		}
	}
}

func TestColumns(t *testing.T) {
	for line, want := range map[string]int{"": 0, "abc": 3, "größe": 5, "\ta": 5, "abc\ta": 5, "abcd\ta": 9, "\t\t": 8} {
		assert.Equal(t, want, columns(line), "%q", line)
	}
}
