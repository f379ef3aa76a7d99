package dlock_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	rootPath    = "github.com/dlock-go/dlock"
	recipesPath = rootPath + "/recipes"
)

func typesOf(t *testing.T, paths ...string) map[string]*types.Package {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, paths...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	require.NoError(t, err)
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", open)
	found := make(map[string]*types.Package)
	for _, path := range paths {
		found[path], err = compiled.Import(path)
		require.NoError(t, err)
	}
	return found
}

func docOf(t *testing.T) *doc.Package {
	t.Helper()
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, rootPath)
	require.NoError(t, err)
	return pkg
}

var spaces = regexp.MustCompile(`\s+`)

func plainText(pkg *doc.Package, text string) string {
	printed := (&comment.Printer{TextWidth: -1}).Text(pkg.Parser().Parse(text))
	return spaces.ReplaceAllString(string(printed), " ")
}

func methodsOf(root *types.Package, t types.Type) map[string]string {
	short := func(p *types.Package) string {
		if p.Path() == recipesPath || p == root {
			return ""
		}
		return p.Name()
	}
	signatures := make(map[string]string)
	set := types.NewMethodSet(types.NewPointer(types.Unalias(t)))
	for i := range set.Len() {
		if method := set.At(i).Obj(); method.Exported() {
			signatures[method.Name()] = strings.TrimPrefix(types.TypeString(method.Type(), short), "func")
		}
	}
	return signatures
}

// mainTypes list their methods in comments, because go doc shows none for an
// alias.
var mainTypes = []string{"Client", "RWMutex", "Semaphore", "Lock", "Locks", "Election"}

func TestTheOverviewNamesOnlyMethodsThatExist(t *testing.T) {
	root, pkg := typesOf(t, rootPath)[rootPath], docOf(t)
	linked := regexp.MustCompile(`\brecipes\.(\w+)\.(\w+)`).FindAllStringSubmatch(plainText(pkg, pkg.Doc), -1)
	assert.Greater(t, len(linked), 10)
	for _, m := range linked {
		assert.Contains(t, methodsOf(root, root.Scope().Lookup(m[1]).Type()), m[2], "methods of %s", m[1])
	}
}

func TestTheMainTypesDeclareTheirMethods(t *testing.T) {
	root, pkg := typesOf(t, rootPath)[rootPath], docOf(t)
	for _, described := range pkg.Types {
		if !slices.Contains(mainTypes, described.Name) {
			continue
		}
		text := plainText(pkg, described.Doc)
		methods := methodsOf(root, root.Scope().Lookup(described.Name).Type())
		for name, signature := range methods {
			assert.Contains(t, text, ") "+name+signature, "the comment of type %s", described.Name)
		}
		assert.Equal(t, len(methods), strings.Count(text, " func ("), "methods in the comment of type %s", described.Name)
	}
}

// special matches names that only package recipes exports, because few programs
// need them.
var special = regexp.MustCompile(`^(Trace|\w+Info|Wait|Watch\w+|Poll|ParseMode|WithRecipe)$`)

// Most applications import only dlock, so it exports every name that is not
// special.
func TestEachNameOfRecipesIsExported(t *testing.T) {
	found := typesOf(t, rootPath, recipesPath)
	for _, name := range found[recipesPath].Scope().Names() {
		exported := found[rootPath].Scope().Lookup(name) != nil
		assert.Equal(t, ast.IsExported(name) && !special.MatchString(name), exported, "dlock.%s", name)
	}
}

// go doc prints a broken link in brackets, so no comment may contain one.
func TestEveryLinkOfACommentLeadsSomewhere(t *testing.T) {
	pkg := docOf(t)
	comments := map[string]string{"package": pkg.Doc}
	add := func(functions []*doc.Func) {
		for _, f := range functions {
			comments[f.Name] = f.Doc
		}
	}
	add(pkg.Funcs)
	for _, described := range pkg.Types {
		comments[described.Name] = described.Doc
		add(described.Funcs)
	}
	brackets := regexp.MustCompile(`\[[A-Za-z][\w./]*\]`)
	for name, text := range comments {
		assert.NotEmpty(t, text, name)
		assert.Empty(t, brackets.FindAllString(plainText(pkg, text), -1), "the comment of %s", name)
	}
}

// go doc silently drops examples that belong to no name.
func TestEveryExampleIsAttachedToWhatItShows(t *testing.T) {
	pkg := docOf(t)
	attached := len(pkg.Examples)
	for _, f := range pkg.Funcs {
		attached += len(f.Examples)
	}
	for _, described := range pkg.Types {
		attached += len(described.Examples)
		for _, f := range described.Funcs {
			attached += len(f.Examples)
		}
	}
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	written := regexp.MustCompile(`(?m)^func Example\w*\(`).FindAllString(string(source), -1)
	assert.Equal(t, len(written), attached, fmt.Sprint("examples of package dlock: ", written))
}
