// Package docs_test checks the documentation against the sources. Code that a page
// shows is in the sources or compiles, links lead to files and headings that exist,
// and the commands, tests, cases, options and packages that a page names exist.
package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/zkdriver"
)

const root = ".."

func pages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{
		"README.md":       read(t, "README.md"),
		"CONTRIBUTING.md": read(t, "CONTRIBUTING.md"),
		"CHANGELOG.md":    read(t, "CHANGELOG.md"),
		"SECURITY.md":     read(t, "SECURITY.md"),
	}
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			pages["docs/"+name] = read(t, "docs/"+name)
		}
		return err
	}))
	require.Greater(t, len(pages), 2)
	return pages
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

type block struct {
	page, info, text string
	line             int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

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
	vet.Dir, vet.Env = root, append(os.Environ(), "GOWORK=") // use the workspace, which has all drivers
	out, err := vet.CombinedOutput()
	assert.NoError(t, err, "%v: go vet: %s", b, out)
	formatted, err := exec.Command("gofmt", "-l", file).CombinedOutput()
	assert.NoError(t, err)
	assert.Empty(t, string(formatted), "%v is not as gofmt has it", b)
}

func TestTheQuickStartRuns(t *testing.T) {
	readme := fenced(t, "README.md", read(t, "README.md"))
	first := func(info string) block {
		at := slices.IndexFunc(readme, func(b block) bool { return b.info == info })
		require.GreaterOrEqual(t, at, 0, "README.md has no block of %s", info)
		return readme[at]
	}
	program := first("go complete")
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program.text), 0o600))
	run := exec.Command("go", "run", file)
	run.Dir = root
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "shipping with token 1\n", string(out))

	diff := strings.Split(first("diff").text, "\n")
	for i := 0; i+1 < len(diff); i += 2 {
		old, changed := strings.TrimPrefix(diff[i], "-"), strings.TrimPrefix(diff[i+1], "+")
		require.Equal(t, 1, strings.Count(program.text, old+"\n"), "%q", old)
		program.text = strings.Replace(program.text, old, changed, 1)
	}
	require.Contains(t, program.text, `dlock.Open("redis", `)
	compiles(t, program)
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

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors returns the anchors that GitHub derives from the headings.
func anchors(text string) (names []string) {
	for line := range strings.Lines(text) {
		heading, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !found || line[0] != '#' {
			continue
		}
		name := strings.ToLower(strings.TrimSpace(heading))
		name = notInAnchors.ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// word matches a word of a shell command. Double quotes keep spaces in a word.
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
			case words[0] == ".ci/run":
				_, err := exec.LookPath(filepath.Join(root, words[0]))
				assert.NoError(t, err, "%v: %s", b, line)
			case strings.HasPrefix(line, "go run ./cmd/dlock "), strings.HasPrefix(line, "go run ./contrib/cmd/dlock "):
				hasFlags(t, b, words[3], words[4:])
			case words[0] == "dlock":
				hasFlags(t, b, words[1], words[2:])
			case strings.HasPrefix(line, "go install ./"):
				assert.Contains(t, readAll(t, words[2]), "\nfunc main() ", "%v: %s", b, line)
			case words[0] == "sh":
				for _, path := range words[1:] {
					_, err := os.Stat(filepath.Join(root, path))
					assert.NoError(t, err, "%v: %s", b, line)
				}
			case strings.HasPrefix(line, "go test "):
				hasTests(t, b, words)
			case strings.HasPrefix(line, "go doc ./"):
				assert.Contains(t, readAll(t, words[2]), "\n// Package "+path.Base(words[2])+" ", "%v: %s", b, line)
			default:
				t.Errorf("%v: nothing checks the command %q", b, line)
			}
		}
	}
}

func hasTests(t *testing.T, b block, words []string) {
	t.Helper()
	module := ""
	if words[2] == "-C" {
		module = words[3]
	}
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "./") })
	require.Positive(t, at, "%v: %v names no package", b, words)
	pkg, all := strings.CutSuffix(words[at], "...")
	dir := filepath.Join(module, pkg)
	_, err := os.Stat(filepath.Join(root, dir))
	assert.NoError(t, err, "%v: %v", b, words)
	source := readAll(t, dir)
	for _, flag := range words[at+1:] { // these flags are defined by the package's tests
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		assert.Contains(t, source, `"`+name+`",`, "%v: %s has no flag %s", b, dir, flag)
	}
	if all {
		return
	}
	for _, pattern := range patterns(words) {
		assert.True(t, hasTest(readAll(t, dir), pattern), "%v: no test of %s matches %s", b, dir, pattern)
	}
}

// patterns returns the test, benchmark and fuzz patterns of a go test command,
// except ^$.
func patterns(words []string) (found []string) {
	for i, word := range words {
		name, pattern, joined := strings.Cut(word, "=")
		if !slices.Contains([]string{"-run", "-bench", "-fuzz"}, name) {
			continue
		}
		if !joined {
			pattern = words[i+1]
		}
		pattern, _, _ = strings.Cut(strings.Trim(pattern, `'"`), "/") // the part after the slash selects subtests
		if pattern != "^$" {
			found = append(found, pattern)
		}
	}
	return found
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`)

func hasTest(source, pattern string) bool {
	matches, err := regexp.Compile(pattern)
	return err == nil && slices.ContainsFunc(testFunc.FindAllStringSubmatch(source, -1), func(m []string) bool {
		return matches.MatchString(m[1])
	})
}

func TestPatternsSelectTestsThatExist(t *testing.T) {
	const source = "func TestA(t *testing.T) {}\nfunc BenchmarkB(b *testing.B) {}\n"
	assert.Equal(t, []string{"A$", "B|C"}, patterns([]string{"go", "test", "-run=A$/sub", "-run", "'^$'", "-bench", "'B|C'", "./x"}))
	assert.True(t, hasTest(source, "A$"))
	assert.True(t, hasTest(source, "B|C"))
	assert.False(t, hasTest(source, "D"))
	assert.False(t, hasTest(source, "("))
}

func hasBenchFlags(t *testing.T, b block, words []string) {
	for _, flag := range words {
		if name, is := strings.CutPrefix(flag, "-"); is {
			assert.Contains(t, readAll(t, "bench"), `"`+name+`",`, "%v: bench has no flag %s", b, flag)
		}
	}
}

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

var helpTexts = make(map[string]string) // what hasFlags has read, by command

func hasFlags(t *testing.T, b block, command string, args []string) {
	t.Helper()
	out, known := helpTexts[command]
	if !known {
		help := exec.Command("go", "run", "./cmd/dlock", command, "-h")
		help.Dir = root
		text, err := help.CombinedOutput()
		require.NoError(t, err, "%v: dlock %s -h: %s", b, command, text)
		out = string(text)
		helpTexts[command] = out
	}
	for _, arg := range args {
		if arg == "--" {
			break // the user's own command follows
		}
		if strings.HasPrefix(arg, "-") {
			assert.Regexp(t, `(?m)^ +`+regexp.QuoteMeta(arg)+`\b`, out, "%v: dlock %s has no flag %s", b, command, arg)
		}
	}
}

func TestTroubleshootingNamesEveryMessageOfTheLog(t *testing.T) {
	page := read(t, "docs/operate/troubleshooting.md")
	code := readTree(t, "recipes", func(name string) bool {
		return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
	})
	var logged []string
	for _, m := range regexp.MustCompile(`(?i)(?:logger|alarms)(?:\(\))?\.(?:Debug|Info|Warn|Error)\("([^"]+)"`).FindAllStringSubmatch(code, -1) {
		logged = append(logged, m[1])
		assert.Contains(t, page, "| `"+m[1]+"` |")
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(dlock: [^`]+)`").FindAllStringSubmatch(page, -1) {
		assert.Contains(t, logged, m[1], "this is not logged")
	}
}

func TestTroubleshootingNamesEveryError(t *testing.T) {
	page := read(t, "docs/operate/troubleshooting.md")
	exported := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(read(t, "api.go"), -1)
	require.Greater(t, len(exported), 10)
	for _, m := range exported {
		assert.Contains(t, page, "| `"+m[1]+"` |")
	}
}

// TestEveryParameterIsTaken checks that zkdriver accepts exactly the parameters
// that its package comment lists.
func TestEveryParameterIsTaken(t *testing.T) {
	values := map[string]string{
		"session_timeout": "20s", "connect_timeout": "5s", "lease_margin": "2s", "acl": "open", "tls": "true",
		"tls_ca": "ca.pem&tls=true", "tls_cert": "cert.pem&tls_key=key.pem&tls=true", "tls_key": "key.pem&tls_cert=cert.pem&tls=true",
		"tls_server_name": "zk&tls=true", "sequence_limit": "2146435072", "tick_time": "2s", "handover": "list", "names": "kazoo",
		"password_file": "/f",
	}
	users := map[string]string{"password_file": "shop@"}
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z_]+)  +\S`).FindAllStringSubmatch(read(t, "zkdriver/doc.go"), -1) {
		documented = append(documented, m[1])
		_, err := zkdriver.Driver{}.OpenConnector("zk://" + users[m[1]] + "localhost/locks?" + m[1] + "=" + values[m[1]])
		assert.NoError(t, err, "parameter %s", m[1])
	}
	taken := regexp.MustCompile(`(?m)^\t\t"([a-z_]+)": +(?:dsn\.|func)`).FindAllStringSubmatch(read(t, "zkdriver/dsn.go"), -1)
	require.Greater(t, len(taken), 5)
	for _, m := range taken {
		assert.Contains(t, documented, m[1], "a parameter that zkdriver/doc.go does not name")
	}
	_, err := memdriver.Driver{}.OpenConnector("jobs?session_timeout=5s")
	assert.NoError(t, err)
}

func readTree(t *testing.T, dir string, want func(name string) bool) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !want(d.Name()) {
			return err
		}
		content, err := os.ReadFile(path)
		all.Write(content)
		return err
	}))
	return all.String()
}

func TestEveryTestThatIsNamedExists(t *testing.T) {
	code := readTree(t, ".", func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	named := 0
	for page, text := range pages(t) {
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
			named++
			assert.Contains(t, code, "func "+m[1]+"(t *testing.T)", page)
		}
	}
	assert.NotZero(t, named)
}

// caseOfKit matches a case's name in a page: at least three words joined by
// hyphens.
var caseOfKit = regexp.MustCompile("(?:`|//)([a-z][a-z']*(?:-[a-z']+){2,})(?:`|')")

// Only one page is checked. Others name settings that look like cases.
func TestEveryCaseThatIsNamedExists(t *testing.T) {
	cases := make(map[string]bool)
	for _, m := range regexp.MustCompile(`\bname: "([^"]+)"`).FindAllStringSubmatch(readAll(t, "dlocktest"), -1) {
		cases[m[1]] = true
	}
	require.Greater(t, len(cases), 100)
	named := caseOfKit.FindAllStringSubmatch(read(t, "docs/contribute/writing-a-driver.md"), -1)
	assert.Greater(t, len(named), 5)
	for _, m := range named {
		assert.True(t, cases[m[1]], "dlocktest has no case %s", m[1])
	}
}

func TestEveryNameForDriversExists(t *testing.T) {
	page := read(t, "docs/contribute/writing-a-driver.md")
	for dir, names := range map[string]string{
		"driver": "driver", "driver/session": "session", "driver/watches": "watches", "dlocktest": "dlocktest",
	} {
		code := readAll(t, dir)
		found := regexp.MustCompile("`"+names+`\.([A-Z]\w+)`).FindAllStringSubmatch(page, -1)
		assert.NotEmpty(t, found, "the page names nothing of package %s", names)
		for _, m := range found {
			exported := regexp.MustCompile(`(?m)^(?:func|type|\t|var|const) ?` + m[1] + `\b`)
			assert.True(t, exported.MatchString(code), "package %s has no %s", names, m[1])
		}
	}
	for receiver, dir := range map[string]string{"Host": "driver/session", "Snapshot": "driver/session", "Result": "driver/session"} {
		code := readAll(t, dir)
		for _, m := range regexp.MustCompile("`"+receiver+`\.([A-Z]\w+)`).FindAllStringSubmatch(page, -1) {
			field := regexp.MustCompile(`(?m)^type ` + receiver + ` struct \{[^}]*^\t` + m[1] + ` `).MatchString(code)
			method := strings.Contains(code, " "+receiver+") "+m[1]+"(")
			assert.True(t, field || method, "%s has no field or method %s", receiver, m[1])
		}
	}
}

// The workflow must run the demo and make test, the first commands of
// README.md.
func TestTheWorkflowRunsTheTwoCommands(t *testing.T) {
	workflow := read(t, ".github/workflows/ci.yml")
	for _, line := range []string{
		"run: go run ./cmd/dlock demo\n", "run: .ci/run\n", // .ci/run includes make test
		"go-version-file: go.mod\n", "permissions:\n  contents: read\n",
	} {
		assert.Contains(t, workflow, line)
	}
	assert.Contains(t, read(t, "README.md"), "go run ./cmd/dlock demo\nmake test\n")
	assert.Contains(t, read(t, ".ci/run"), "\tmake test ")
	for _, m := range regexp.MustCompile(`(?m)uses: (\S+)$`).FindAllStringSubmatch(workflow, -1) {
		assert.Regexp(t, `^[\w./-]+@v\d+(\.\d+)*$`, m[1], "an action without the tag of a release")
	}
}

func packages(t *testing.T) []string {
	t.Helper()
	found := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || name == ".git"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			dir, err := filepath.Rel(root, filepath.Dir(path))
			found[filepath.ToSlash(dir)] = true
			return err
		}
		return nil
	}))
	require.Greater(t, len(found), 10)
	return slices.Sorted(maps.Keys(found))
}

func isPublic(t *testing.T, dir string) bool {
	return !strings.Contains("/"+dir+"/", "/internal/") && !strings.Contains("\n"+readAll(t, dir), "\npackage main\n")
}

// A row also covers packages below its directory, except those that other
// modules can import.
func TestTheMapNamesEveryPackage(t *testing.T) {
	_, table, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Map of the packages\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	named := make(map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			_, err := os.Stat(filepath.Join(root, name[1]))
			assert.NoError(t, err, "the map of CONTRIBUTING.md")
			named[name[1]] = true
		}
	}
	for _, dir := range packages(t) {
		row := dir
		for !named[row] && row != "." && !isPublic(t, dir) {
			row = path.Dir(row)
		}
		assert.True(t, named[row] && (row != "." || dir == "."), "the map of CONTRIBUTING.md has no row for %s", dir)
	}
}

func TestTheArrowsOfTheMapAreTheImports(t *testing.T) {
	_, diagram, found := strings.Cut(read(t, "CONTRIBUTING.md"), "```mermaid\nflowchart TD\n")
	require.True(t, found)
	diagram, _, _ = strings.Cut(diagram, "```")
	const module = "github.com/dlock-go/dlock"
	ids := make(map[string]string) // ids in the diagram, by import path
	for _, m := range regexp.MustCompile(`(\w+)\["([^"]+)"\]`).FindAllStringSubmatch(diagram, -1) {
		ids[module+"/"+m[2]] = m[1]
	}
	require.NotEmpty(t, ids)
	ids[module] = "dlock"
	var arrows, imports []string
	for _, m := range regexp.MustCompile(`(?m)^ *(\w+)(?:\[.*?\])? --> (\w+)`).FindAllStringSubmatch(diagram, -1) {
		arrows = append(arrows, m[1]+" --> "+m[2])
	}
	for _, i := range importsOf(t, "./...") {
		from, to := ids[i.from], ids[i.to]
		if from != "" && to != "" {
			imports = append(imports, from+" --> "+to)
		}
	}
	assert.ElementsMatch(t, imports, arrows)
}

type imported struct{ from, to string } // import paths

func importsOf(t *testing.T, pattern string) (found []imported) {
	list := exec.Command("go", "list", "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}`, pattern)
	list.Dir, list.Env = root, append(os.Environ(), "GOWORK=")
	out, err := list.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		found = append(found, imported{from, to})
	}
	return found
}

// Drivers below contrib may import only what drivers of other projects can
// import.
func TestDriversOfContribImportPublicPackages(t *testing.T) {
	const module = "github.com/dlock-go/dlock/"
	checked := 0
	for _, i := range importsOf(t, module+"contrib/...") {
		to, ours := strings.CutPrefix(i.to, module)
		if !ours || strings.HasPrefix(i.from, module+"contrib/cmd/") || strings.HasSuffix(i.from, "test") {
			continue
		}
		checked++
		internal := strings.Contains("/"+to+"/", "/internal/") && !strings.HasPrefix(to, "contrib/")
		assert.False(t, internal || strings.HasSuffix(to, "test"), "%s imports %s, which is internal or for tests", i.from, to)
	}
	require.Greater(t, checked, 20)
}

func TestThePathsOfContributingExist(t *testing.T) {
	_, tables, found := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Where a change belongs\n")
	require.True(t, found)
	tables, _, found = strings.Cut(tables, "\n## Running tests\n")
	require.True(t, found)
	rows := regexp.MustCompile(`(?m)^\|.*$`).FindAllString(tables, -1)
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(rows, "\n"), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		_, err := os.Stat(filepath.Join(root, name[1]))
		assert.NoError(t, err)
	}
}

func TestEveryPublicPackageHasADocFileAndAnExample(t *testing.T) {
	for _, dir := range packages(t) {
		if !isPublic(t, dir) {
			continue
		}
		assert.Regexp(t, `(?m)^// Package `, read(t, dir+"/doc.go"))
		tests := readTree(t, dir, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
		assert.Regexp(t, `(?m)^func Example`, tests, "package %s has no example", dir)
	}
}

// scripts/test.sh searches tests for testing.Short, so a helper that called it
// would be missed.
func TestOnlyTestsAskWhetherTheRunIsShort(t *testing.T) {
	code := readTree(t, ".", func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	asked := 0
	for _, f := range regexp.MustCompile(`(?ms)^func [^\n]*\{\n.*?^\}`).FindAllString(code, -1) {
		if strings.Contains(f, "testing"+".Short()") {
			asked++
			assert.Regexp(t, `^func Test`, f)
		}
	}
	assert.NotZero(t, asked)
}

// A session survives an outage that leaves time for one more heartbeat.
func TestThePagesOfStoresShowTheTimesOfALease(t *testing.T) {
	for _, store := range []string{"redis", "postgresql", "mysql", "sqlite", "nats", "etcd"} {
		page := strings.ReplaceAll(read(t, "docs/stores/"+store+".md"), " s |", "s |")
		rows := regexp.MustCompile(`(?m)^\| (\d+s) (?:\| (\S+) to (\S+) )?\| (\S+) \| (\S+) \| (\S+) \|`).FindAllStringSubmatch(page, -1)
		require.Len(t, rows, 3, store)
		for _, row := range rows {
			timeout, err := time.ParseDuration(row[1])
			require.NoError(t, err)
			term, beat := driver.NewLease(timeout, 0).Term(), beatOf(t, timeout)
			want := []time.Duration{term - 2*beat, timeout, beat}
			if store == "etcd" { // an etcd client pauses between two dials
				want[0] -= min(beat, time.Second) * 6 / 5
				want, row = append(want, term-beat, term), append(row, row[2]+"s", row[3])
			}
			for i, want := range want {
				got, err := time.ParseDuration(row[4+i])
				require.NoError(t, err)
				assert.Equal(t, want, got, "%s: %s", store, row[0])
			}
		}
	}
}

func beatOf(t *testing.T, timeout time.Duration) (beat time.Duration) {
	synctest.Test(t, func(*testing.T) {
		lease, began := driver.NewLease(timeout, 0), time.Now()
		lease.Run(func(context.Context) error {
			beat = time.Since(began)
			lease.End(errors.New("enough"))
			return nil
		})
	})
	return beat
}
