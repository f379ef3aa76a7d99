// Package docs_test keeps the documentation true: what it shows is in the sources
// or compiles, what it links to is there, and what it names exists.
package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/zkdriver"
)

const root = ".."

// pages returns the documentation by path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{"README.md": read(t, "README.md")}
	found, err := filepath.Glob("*.md")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, name := range found {
		pages["docs/"+name] = read(t, "docs/"+name)
	}
	return pages
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

// block is a fenced block of code.
type block struct {
	page, info, text string
	line             int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// blocks returns the blocks of one language, in all pages.
func blocks(t *testing.T, language string) (found []block) {
	t.Helper()
	for page, text := range pages(t) {
		for _, b := range fenced(t, page, text) {
			if first, _, _ := strings.Cut(b.info, " "); first == language {
				found = append(found, b)
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

func fenced(t *testing.T, page, text string) (found []block) {
	t.Helper()
	var open *block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		fence := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(fence, "```"):
			open = &block{page: page, info: strings.TrimPrefix(fence, "```"), line: i + 1}
			indent = line[:strings.Index(line, "`")]
		case open != nil && fence == "```":
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	require.Nil(t, open, "%s: a block is not closed", page)
	return found
}

func TestEveryBlockOfGoIsExcerptOrProgram(t *testing.T) {
	for _, b := range blocks(t, "go") {
		kind, path, _ := strings.Cut(strings.TrimPrefix(b.info, "go "), "=")
		switch kind {
		case "excerpt":
			assert.True(t, occurs(read(t, path), b.text), "%v: this is not in %s:\n%s", b, path, b.text)
		case "complete":
			compiles(t, b)
		default:
			t.Errorf("%v: a block of Go is marked neither complete nor excerpt=path", b)
		}
	}
}

// occurs tells whether text is part of a file, in whole lines.
func occurs(file, text string) bool { return strings.Contains("\n"+file, "\n"+text) }

func TestAnExcerptIsFoundInWholeLinesOnly(t *testing.T) {
	assert.True(t, occurs("a\nb\nc\n", "b\n"))
	assert.True(t, occurs("a\nb\n", "a\nb\n"))
	assert.False(t, occurs("a\nbb\n", "b\n"))
	assert.False(t, occurs("a\nb\n", "a\n\nb\n"))
}

func compiles(t *testing.T, b block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(b.text), 0o600))
	vet := exec.Command("go", "vet", file)
	vet.Dir = root
	out, err := vet.CombinedOutput()
	assert.NoError(t, err, "%v: go vet: %s", b, out)
	formatted, err := exec.Command("gofmt", "-l", file).CombinedOutput()
	assert.NoError(t, err)
	assert.Empty(t, string(formatted), "%v is not as gofmt has it", b)
}

// The quick start is an example, so that its output is checked.
func TestTheQuickStartIsTheExample(t *testing.T) {
	for _, b := range blocks(t, "go") {
		if b.page != "README.md" {
			continue
		}
		_, functions, found := strings.Cut(b.text, "func ship(")
		require.True(t, found)
		assert.True(t, occurs(read(t, "example_test.go"), "func ship("+functions))
		return
	}
	t.Fatal("no quick start in README.md")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	all := pages(t)
	links := 0
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
				_, err := os.Stat(filepath.Join(root, target))
				assert.NoError(t, err, "%s: link to %s", page, m[1])
			}
			if anchor != "" {
				assert.Contains(t, anchors(all[target]), anchor, "%s: link to %s", page, m[1])
			}
		}
	}
	assert.NotZero(t, links)
	for page := range all {
		if page != "README.md" {
			assert.Contains(t, all["README.md"], "]("+page+")", "README.md does not link to %s", page)
		}
	}
}

// anchors returns what the headings of a page are called in links.
func anchors(text string) (names []string) {
	for line := range strings.Lines(text) {
		heading, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !found || line[0] != '#' {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(heading))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// word is a word of a command; quotes keep spaces in it.
var word = regexp.MustCompile(`[^\s"]*"[^"]*"|\S+`)

func TestEveryCommandExists(t *testing.T) {
	for _, b := range blocks(t, "sh") {
		for line := range strings.Lines(b.text) {
			words := word.FindAllString(line, -1)
			switch {
			case len(words) == 0:
			case words[0] == "make":
				for _, word := range words[1:] {
					if variable, value, is := strings.Cut(word, "="); is {
						assert.Contains(t, read(t, "Makefile"), "$("+variable+")", "%v: no such variable", b)
						if variable == "BENCHFLAGS" {
							hasBenchFlags(t, b, strings.Fields(strings.Trim(value, `"`)))
						}
					} else {
						assert.Contains(t, read(t, "Makefile"), "\n"+word+":", "%v: no such target", b)
					}
				}
			case strings.HasPrefix(line, "go run ./cmd/dlock "):
				hasFlags(t, b, words[3], words[4:])
			case strings.HasPrefix(line, "go test "):
				module := ""
				if words[2] == "-C" {
					module = words[3]
				}
				i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") })
				require.Positive(t, i, "%v: %s names no package", b, line)
				dir := filepath.Join(module, words[i])
				_, err := os.Stat(filepath.Join(root, dir))
				assert.NoError(t, err, "%v: %s", b, line)
				for _, flag := range words[i+1:] { // flags of the test itself
					name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
					assert.Contains(t, readAll(t, dir), `"`+name+`",`, "%v: %s has no flag %s", b, dir, flag)
				}
			default:
				t.Errorf("%v: nothing checks the command %q", b, line)
			}
		}
	}
}

// hasBenchFlags checks that bench knows each flag among the words.
func hasBenchFlags(t *testing.T, b block, words []string) {
	for _, flag := range words {
		if name, is := strings.CutPrefix(flag, "-"); is {
			assert.Contains(t, readAll(t, "bench"), `"`+name+`",`, "%v: bench has no flag %s", b, flag)
		}
	}
}

// readAll returns the Go files of a package.
func readAll(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// hasFlags asks the program itself.
func hasFlags(t *testing.T, b block, command string, args []string) {
	t.Helper()
	help := exec.Command("go", "run", "./cmd/dlock", command, "-h")
	help.Dir = root
	out, err := help.CombinedOutput()
	require.NoError(t, err, "%v: dlock %s -h: %s", b, command, out)
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			assert.Regexp(t, `(?m)^ +`+regexp.QuoteMeta(arg)+`\b`, string(out), "%v: dlock %s has no flag %s", b, command, arg)
		}
	}
}

func TestTheReadmeNamesEveryOptionAndError(t *testing.T) {
	readme := read(t, "README.md")
	names := regexp.MustCompile(`(?m)^func (With\w+)|^\t(Err\w+) +=`).FindAllStringSubmatch(readAll(t, "."), -1)
	require.Greater(t, len(names), 10)
	for _, m := range names {
		assert.Contains(t, readme, "`"+m[1]+m[2]+"`")
	}
}

func TestTheReadmeNamesEveryMethod(t *testing.T) {
	readme := read(t, "README.md")
	for receiver, of := range map[string]reflect.Type{
		"client": reflect.TypeFor[*dlock.Client](),
		"mutex":  reflect.TypeFor[*dlock.RWMutex](),
		"lock":   reflect.TypeFor[*dlock.Lock](),
	} {
		for i := range of.NumMethod() {
			name := receiver + "." + of.Method(i).Name
			if name != "mutex.Name" && !strings.HasSuffix(name, "String") { // which are for package fmt
				assert.Contains(t, readme, "`"+name+"(")
			}
		}
	}
}

func TestOperatingNamesEveryHook(t *testing.T) {
	page := read(t, "docs/operating.md")
	hooks := reflect.TypeFor[dlock.Trace]()
	for i := range hooks.NumField() {
		assert.Contains(t, page, "`"+hooks.Field(i).Name+"`")
	}
}

func TestOperatingNamesEveryMessageOfTheLog(t *testing.T) {
	page := read(t, "docs/operating.md")
	sources, err := filepath.Glob(filepath.Join(root, "recipes", "*.go"))
	require.NoError(t, err)
	var code strings.Builder
	for _, path := range sources {
		if !strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			code.Write(b)
		}
	}
	var logged []string
	for _, m := range regexp.MustCompile(`logger\.(?:Debug|Info|Warn|Error)\("([^"]+)"`).FindAllStringSubmatch(code.String(), -1) {
		logged = append(logged, m[1])
		assert.Contains(t, page, "| `"+m[1]+"` |")
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(dlock: [^`]+)`").FindAllStringSubmatch(page, -1) {
		assert.Contains(t, logged, m[1], "this is not logged")
	}
}

// TestEveryParameterIsTaken gives each parameter of the tables to its driver.
func TestEveryParameterIsTaken(t *testing.T) {
	values := map[string]string{
		"session_timeout": "20s", "connect_timeout": "5s", "lease_margin": "2s", "acl": "open", "tls": "true",
		"tls_ca": "ca.pem&tls=true", "tls_cert": "cert.pem&tls_key=key.pem&tls=true", "tls_key": "key.pem&tls_cert=cert.pem&tls=true",
		"tls_server_name": "zk&tls=true", "sequence_limit": "2146435072", "tick_time": "2s", "handover": "list",
	}
	zk, mem, found := strings.Cut(read(t, "docs/operating.md"), "`mem` (import")
	require.True(t, found)
	mem, _, _ = strings.Cut(mem, "\n## ")
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(zk, -1) {
		for _, name := range regexp.MustCompile("[a-z_]+").FindAllString(row[1], -1) {
			documented = append(documented, name)
			_, err := zkdriver.Driver{}.OpenConnector("zk://localhost/locks?" + name + "=" + values[name])
			assert.NoError(t, err, "parameter %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\t"([a-z_]+)": +func`).FindAllStringSubmatch(read(t, "zkdriver/dsn.go"), -1) {
		assert.Contains(t, documented, m[1], "a parameter that docs/operating.md does not name")
	}
	slices.Sort(documented)
	assert.Equal(t, slices.Compact(slices.Clone(documented)), documented, "a parameter is there twice")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(mem, -1) {
		_, err := memdriver.Driver{}.OpenConnector("?" + m[1] + "=" + values[m[1]])
		assert.NoError(t, err, "parameter %s", m[1])
	}
}

// TestEveryTestThatIsNamedExists looks for the tests that docs/reliability.md relies on.
func TestEveryTestThatIsNamedExists(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			content, err := os.ReadFile(path)
			code.Write(content)
			return err
		}
		return err
	}))
	names := regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(read(t, "docs/reliability.md"), -1)
	require.NotEmpty(t, names)
	for _, m := range names {
		assert.Contains(t, code.String(), "func "+m[1]+"(t *testing.T)")
	}
}
