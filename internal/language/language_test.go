package language

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The greatest number of entries that testdata/words.txt and
// testdata/long-lines.txt may have.
const (
	maxWords     = 15
	maxLongLines = 80
)

func TestTheRepositoryKeepsItsLanguage(t *testing.T) {
	hits, err := scan(os.DirFS("../.."))
	require.NoError(t, err)
	long := func(h hit) bool { return h.long }
	words := slices.DeleteFunc(slices.Clone(hits), long)
	lines := slices.DeleteFunc(hits, func(h hit) bool { return !long(h) })
	for _, problem := range slices.Concat(
		judge(words, "words.txt", entries(t, "words.txt"), maxWords),
		judge(lines, "long-lines.txt", entries(t, "long-lines.txt"), maxLongLines),
	) {
		t.Error(problem)
	}
}

// entries returns the lines of a file of testdata that are no comments.
func entries(t *testing.T, file string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			found = append(found, line)
		}
	}
	return found
}

// judge returns a problem for each hit that is not in the list, and for each
// entry of the list that matches no hit. If the list matches more hits than the
// limit, that is a problem, too. An entry has the form "file: text of the
// line".
func judge(hits []hit, list string, entries []string, limit int) (problems []string) {
	listed := 0
	unused := slices.Clone(entries)
	for _, h := range hits {
		entry := h.file + ": " + h.text
		if !slices.Contains(entries, entry) {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", h.file, h.line, h.rule, h.text))
			continue
		}
		listed++
		unused = slices.DeleteFunc(unused, func(e string) bool { return e == entry })
	}
	for _, entry := range unused {
		problems = append(problems, fmt.Sprintf("%s has an entry that is no hit: %s", list, entry))
	}
	if listed > limit {
		problems = append(problems, fmt.Sprintf("%s matches %d hits, expected at most %d", list, listed, limit))
	}
	return problems
}

func TestJudge(t *testing.T) {
	a, b := hit{file: "a.go", line: 1, text: "text", rule: "rule"}, hit{file: "b.go", line: 2, text: "text", rule: "rule"}
	for name, test := range map[string]struct {
		hits    []hit
		entries []string
		want    []string
	}{
		"no hits":                  {nil, nil, nil},
		"a new hit":                {[]hit{a, b}, []string{"b.go: text"}, []string{"a.go:1: rule: text"}},
		"a listed hit":             {[]hit{a}, []string{"a.go: text"}, nil},
		"another text":             {[]hit{a}, []string{"a.go: other"}, []string{"a.go:1: rule: text", "list has an entry that is no hit: a.go: other"}},
		"more hits than the limit": {[]hit{a, a}, []string{"a.go: text"}, []string{"list matches 2 hits, expected at most 1"}},
	} {
		assert.Equal(t, test.want, judge(test.hits, "list", test.entries, 1), name)
	}
}
