package docs_test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Limits in columns, where a tab counts as four. Lines with URLs may be longer.
const (
	commentColumns  = 88
	markdownColumns = 100
)

func TestLinesAreNotTooLong(t *testing.T) {
	checked := 0
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case path.Ext(file) == ".go" || path.Ext(file) == ".md":
			checked++
			for number := range longLines(path.Ext(file), read(t, file)) {
				assert.Failf(t, "too long", "%s:%d", file, number)
			}
		}
		return nil
	}))
	assert.Greater(t, checked, 100)
}

// longLines returns the numbers of comment lines and Markdown lines that are
// too long.
func longLines(kind, text string) map[int]bool {
	found := make(map[int]bool)
	block := false
	for i, line := range strings.Split(text, "\n") {
		columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
		trimmed := strings.TrimSpace(line)
		switch {
		case kind == ".md" && strings.HasPrefix(line, "```"):
			block = !block
		case strings.Contains(line, "://"), block:
		case kind == ".go" && strings.HasPrefix(trimmed, "// ") && !strings.HasPrefix(trimmed, "// Output:"):
			found[i+1] = columns > commentColumns
		case kind == ".md" && !strings.HasPrefix(line, "|") && !strings.Contains(line, "]("):
			found[i+1] = columns > markdownColumns
		}
		if !found[i+1] {
			delete(found, i+1)
		}
	}
	return found
}

func TestLongLinesAreFound(t *testing.T) {
	wide := strings.Repeat("wide ", 21)
	assert.Equal(t, map[int]bool{2: true, 4: true}, longLines(".go", "// short\n// "+wide+"\ns := `"+wide+"`\n\t// "+wide+"\n// http://"+wide))
	assert.Equal(t, map[int]bool{1: true}, longLines(".md", wide+"\n| "+wide+"\n```\n"+wide+"\n```\n[a](b) "+wide))
}
