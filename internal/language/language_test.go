package language

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var lower = flag.Bool("lower", false, "lower the ceilings to the hits that there are")

// Limits of the lists of hits that are right.
const (
	maxWords     = 15
	maxLongLines = 80
)

func TestTheRepositoryKeepsItsLanguage(t *testing.T) {
	hits, err := scan(os.DirFS("../.."))
	require.NoError(t, err)
	hits = spare(t, hits, false, "words.txt", maxWords)
	hits = spare(t, hits, true, "long-lines.txt", maxLongLines)
	ceilings := readCeilings(t)
	if *lower {
		ceilings = lowered(ceilings, hits)
		writeCeilings(t, ceilings)
	}
	for _, failure := range above(ceilings, hits) {
		t.Error(failure)
	}
}

// spare returns the hits that are not in a list. Each entry of the list has the
// form "file: text of the line". An entry that matches no hit fails the test.
func spare(t *testing.T, hits []hit, long bool, list string, limit int) []hit {
	t.Helper()
	matched := make(map[string]int)
	for _, entry := range entries(t, list) {
		matched[entry] = 0
	}
	spared := 0
	hits = slices.DeleteFunc(hits, func(h hit) bool {
		entry := h.file + ": " + h.text
		n, listed := matched[entry]
		if h.long != long || !listed {
			return false
		}
		matched[entry] = n + 1
		spared++
		return true
	})
	assert.LessOrEqual(t, spared, limit, "hits that %s spares", list)
	for entry, n := range matched {
		assert.NotZero(t, n, "%s has an entry that is no hit: %s", list, entry)
	}
	return hits
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

// byDirectory returns the hits of each directory.
func byDirectory(hits []hit) map[string][]hit {
	found := make(map[string][]hit)
	for _, h := range hits {
		dir := path.Dir(h.file)
		found[dir] = append(found[dir], h)
	}
	return found
}

// shownHits limits the hits that a message about a directory lists.
const shownHits = 50

// above returns a message for each directory with more hits than its ceiling.
func above(ceilings map[string]int, hits []hit) (failures []string) {
	found := byDirectory(hits)
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if len(found[dir]) <= ceilings[dir] {
			continue
		}
		var message strings.Builder
		fmt.Fprintf(&message, "directory %s has %d hits, expected at most %d:", dir, len(found[dir]), ceilings[dir])
		for _, h := range found[dir][:min(shownHits, len(found[dir]))] {
			fmt.Fprintf(&message, "\n%s:%d: %s: %s", h.file, h.line, h.rule, h.text)
		}
		failures = append(failures, message.String())
	}
	return failures
}

// lowered returns ceilings that are no higher than the number of hits.
func lowered(ceilings map[string]int, hits []hit) map[string]int {
	found := byDirectory(hits)
	low := make(map[string]int)
	for dir, ceiling := range ceilings {
		if n := min(ceiling, len(found[dir])); n > 0 {
			low[dir] = n
		}
	}
	return low
}

const ceilingsFile = "ceilings.txt"

func readCeilings(t *testing.T) map[string]int {
	t.Helper()
	ceilings := make(map[string]int)
	for _, entry := range entries(t, ceilingsFile) {
		dir, number, _ := strings.Cut(entry, " ")
		n, err := strconv.Atoi(strings.TrimSpace(number))
		require.NoError(t, err, "%s: %s", ceilingsFile, entry)
		ceilings[dir] = n
	}
	return ceilings
}

func writeCeilings(t *testing.T, ceilings map[string]int) {
	t.Helper()
	var text strings.Builder
	text.WriteString("# How many hits each directory may have: see doc.go. Others may have none.\n")
	for _, dir := range slices.Sorted(maps.Keys(ceilings)) {
		fmt.Fprintf(&text, "%s %d\n", dir, ceilings[dir])
	}
	require.NoError(t, os.WriteFile(filepath.Join("testdata", ceilingsFile), []byte(text.String()), 0o600))
}

func TestCeilings(t *testing.T) {
	hits := []hit{{file: "a/x.go"}, {file: "a/y.go"}, {file: "b/x.go"}, {file: "c/x.go"}}
	ceilings := map[string]int{"a": 1, "b": 5, "d": 3}
	var dirs []string
	for _, failure := range above(ceilings, hits) {
		dirs = append(dirs, strings.Fields(failure)[1])
	}
	assert.Equal(t, []string{"a", "c"}, dirs)
	assert.Equal(t, map[string]int{"a": 1, "b": 1}, lowered(ceilings, hits))
}
