package language

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hit is a line in which a rule has found something.
type hit struct {
	file string // the path of the file, relative to the root of the repository
	line int
	text string // the text of the line, without the white space around it
	rule string
	long bool // the hit is a line that is too long
}

// line is a line of prose.
type line struct {
	number  int
	text    string
	tooLong string // says that the line is too long, and what the limit is; empty if it is not too long
}

// passage is a comment, a string, or a part of a Markdown file: lines that belong
// together.
type passage []line

// thisDirectory is not scanned, because its tests hold the words that the rules
// find.
const thisDirectory = "internal/language"

// scan returns the hits in all Go and Markdown files, in the order of files and
// lines.
func scan(repository fs.FS) (hits []hit, err error) {
	err = fs.WalkDir(repository, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if file == thisDirectory || slices.Contains([]string{".git", "testdata", "node_modules"}, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		var read func(source []byte) ([]passage, error)
		switch path.Ext(file) {
		case ".go":
			read = goPassages
		case ".md":
			read = markdownPassages
		default:
			return nil
		}
		source, err := fs.ReadFile(repository, file)
		if err != nil {
			return err
		}
		passages, err := read(source)
		for _, p := range passages {
			hits = append(hits, p.hits(file)...)
		}
		return err
	})
	slices.SortStableFunc(hits, func(a, b hit) int {
		if a.file != b.file {
			return strings.Compare(a.file, b.file)
		}
		return a.line - b.line
	})
	return hits, err
}

// hits applies the rules to each line. It also applies them to each line
// together with the next one, because a line break may split what a rule finds.
func (p passage) hits(file string) (hits []hit) {
	for i, l := range p {
		for _, rule := range wordRules {
			found := rule.finds(l.text)
			if !found && i+1 < len(p) && !rule.finds(p[i+1].text) {
				found = rule.finds(l.text + " " + p[i+1].text)
			}
			if found {
				hits = append(hits, hit{file: file, line: l.number, text: l.text, rule: rule.name})
			}
		}
		if l.tooLong != "" {
			hits = append(hits, hit{file: file, line: l.number, text: l.text, rule: l.tooLong, long: true})
		}
	}
	return hits
}

// goPassages returns the comments and the strings of a Go file.
func goPassages(source []byte) (passages []passage, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, "", source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(source), "\n")
	for _, group := range parsed.Comments {
		var p passage
		for _, comment := range group.List {
			first := files.Position(comment.Pos()).Line
			for i, text := range strings.Split(comment.Text, "\n") {
				p = append(p, commentLine(first+i, text, lines[first+i-1]))
			}
		}
		passages = append(passages, p)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				passages = append(passages, stringPassage(files.Position(n.Pos()).Line, n.Value))
			}
		}
		return true
	})
	return passages, nil
}

var instruction = regexp.MustCompile(`^//(?:go:|\s*Output|\s*Unordered)`)

// commentLine returns the line of a comment. The length of the line is measured
// only if the line holds nothing but the comment.
func commentLine(number int, text, whole string) line {
	l := line{number: number}
	if instruction.MatchString(text) {
		return l
	}
	alone := strings.TrimSpace(whole) == strings.TrimSpace(text)
	if alone && columns(whole) > commentColumns && !strings.Contains(whole, "http") {
		l.tooLong = "a comment is longer than " + strconv.Itoa(commentColumns) + " columns"
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "/*"), "*/")
	l.text = strings.TrimSpace(strings.TrimPrefix(text, "//"))
	return l
}

// stringPassage returns the lines of a string. Only the lines of a raw string
// are lines of the file as well.
func stringPassage(number int, quoted string) (p passage) {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		text = quoted // never reached, because the parser has accepted the string
	}
	raw := strings.HasPrefix(quoted, "`")
	for i, text := range strings.Split(text, "\n") {
		l := line{number: number, text: strings.TrimSpace(text)}
		if raw {
			l.number += i
		}
		p = append(p, l)
	}
	return p
}

// markdownPassages returns what stands between blank lines, tables and blocks of
// code.
func markdownPassages(source []byte) (passages []passage, err error) {
	inBlock := false
	var p passage
	for i, text := range strings.Split(string(source), "\n") {
		fence := strings.HasPrefix(text, "```")
		if fence {
			inBlock = !inBlock
		}
		if fence || inBlock || text == "" || strings.HasPrefix(text, "|") {
			passages, p = append(passages, p), nil
			continue
		}
		l := line{number: i + 1, text: strings.TrimSpace(text)}
		if columns(text) > markdownColumns && !strings.Contains(text, "http") && !strings.Contains(text, "](") {
			l.tooLong = "a line of Markdown is longer than " + strconv.Itoa(markdownColumns) + " columns"
		}
		p = append(p, l)
	}
	return append(passages, p), nil
}

func TestScan(t *testing.T) {
	wide := strings.Repeat("wide ", 21)
	repository := fstest.MapFS{}
	for file, text := range map[string]string{
		"a.go": "package a\n" + // line 1
			"// It tells\n// whether.\n" +
			"/* his\nhim */\n" + // line 4
			"import _ \"nobody\" // nobody imports it\n" +
			"//go:embed nobody\n" +
			"var a = \"nobody\" + `the\nanybody`\n" + // line 8
			"// " + wide + "\n" +
			"// http " + wide + "\n" +
			"var b int // " + wide + "\n",
		"docs/a.md": "Nobody.\n" + // line 1
			"```go\nnobody\n```\n" +
			"| nobody |\n" +
			wide + "\n" + // line 6
			"[a](b) " + wide + "\n" +
			"It tells\n" + // line 8
			"\nwhether\n",
		"a/testdata/a.md":       "nobody",
		"a.txt":                 "nobody",
		thisDirectory + "/a.go": "package a // nobody",
	} {
		repository[file] = &fstest.MapFile{Data: []byte(text)}
	}
	hits, err := scan(repository)
	require.NoError(t, err)
	type place struct {
		file string
		line int
		long bool
	}
	var places []place
	for _, h := range hits {
		places = append(places, place{h.file, h.line, h.long})
	}
	assert.Equal(t, []place{
		{"a.go", 2, false}, {"a.go", 4, false}, {"a.go", 5, false}, {"a.go", 6, false},
		{"a.go", 8, false}, {"a.go", 9, false}, {"a.go", 10, true},
		{"docs/a.md", 1, false}, {"docs/a.md", 6, true},
	}, places)

	repository["b.go"] = &fstest.MapFile{Data: []byte("not Go")}
	_, err = scan(repository)
	assert.Error(t, err)
}
