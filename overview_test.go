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

// typesOf returns the packages of these paths, as the compiler sees them.
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

// docOf returns the documentation of package dlock, with its examples.
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

// spaces matches the white space between two words of a comment.
var spaces = regexp.MustCompile(`\s+`)

// plainText returns a comment as go doc prints it, with single spaces.
func plainText(pkg *doc.Package, text string) string {
	printed := (&comment.Printer{TextWidth: -1}).Text(pkg.Parser().Parse(text))
	return spaces.ReplaceAllString(string(printed), " ")
}

// names reports whether the text has the name as a whole word. A text with
// "Lock.Unlock" does not have the name "Lock".
func names(text, name string) bool {
	return regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(name) + `($|[^\w.]|\.\W|\.$)`).MatchString(text)
}

func TestNamesFindsWholeNames(t *testing.T) {
	assert.True(t, names("see Lock.Err.", "Lock.Err"))
	assert.True(t, names("see Lock.Err. Then", "Lock.Err"))
	assert.True(t, names("Lock, Unlock", "Lock"))
	assert.False(t, names("see Lock.Error", "Lock.Err"))
	assert.False(t, names("see Lock.Err", "Lock"))
	assert.False(t, names("RLock", "Lock"))
	assert.False(t, names("RWMutex.Lock", "Lock"))
}

// member is a method or a field of an exported type.
type member struct {
	name        string
	declaration string // the declaration of the member, as in Go source
	called      bool   // whether it is a method, or a field of a function type
}

// membersOf returns the exported methods and fields of a type. Their
// declarations name types as package dlock itself does: without a package if
// package dlock exports a type of the same name.
func membersOf(root *types.Package, t types.Type) (found []member) {
	t = types.Unalias(t)
	short := func(p *types.Package) string {
		if p.Path() == recipesPath || p == root {
			return ""
		}
		return p.Name()
	}
	declare := func(t types.Type) string {
		text := types.TypeString(t, short)
		for _, name := range root.Scope().Names() {
			text = regexp.MustCompile(`\bdriver\.`+name+`\b`).ReplaceAllString(text, name)
		}
		return text
	}
	set := types.NewMethodSet(t)
	if !types.IsInterface(t) {
		set = types.NewMethodSet(types.NewPointer(t))
	}
	for i := range set.Len() {
		if method := set.At(i).Obj(); method.Exported() {
			signature := strings.TrimPrefix(declare(method.Type()), "func")
			found = append(found, member{method.Name(), method.Name() + signature, true})
		}
	}
	if s, ok := t.Underlying().(*types.Struct); ok {
		for i := range s.NumFields() {
			switch field := s.Field(i); {
			case field.Embedded() && field.Exported():
				found = append(found, member{field.Name(), field.Name(), false})
			case field.Exported():
				_, called := field.Type().Underlying().(*types.Signature)
				found = append(found, member{field.Name(), field.Name() + " " + declare(field.Type()), called})
			}
		}
	}
	return found
}

// The overview is the comment of the package. It names each exported name, each
// method of an exported type, and each hook.
func TestTheOverviewNamesEverything(t *testing.T) {
	root, pkg := typesOf(t, rootPath)[rootPath], docOf(t)
	overview := plainText(pkg, pkg.Doc)
	for _, name := range root.Scope().Names() {
		object := root.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		assert.True(t, names(overview, name), "the overview in doc.go does not name %s", name)
		if _, is := object.(*types.TypeName); !is {
			continue
		}
		for _, m := range membersOf(root, object.Type()) {
			if m.called {
				assert.True(t, names(overview, name+"."+m.name), "the overview in doc.go does not name %s.%s", name, m.name)
			}
		}
	}
}

// The comments of the package name only methods and hooks that exist.
func TestCommentsNameOnlyMethodsThatExist(t *testing.T) {
	root, pkg := typesOf(t, rootPath)[rootPath], docOf(t)
	texts := []string{plainText(pkg, pkg.Doc)}
	for _, described := range pkg.Types {
		texts = append(texts, plainText(pkg, described.Doc))
	}
	method := regexp.MustCompile(`(?:\bfunc \(\w \*?([A-Z]\w*)\) |\b([A-Z]\w*)\.)([A-Z]\w*)`)
	found := 0
	for _, m := range method.FindAllStringSubmatch(strings.Join(texts, " "), -1) {
		object, is := root.Scope().Lookup(m[1] + m[2]).(*types.TypeName)
		if !is {
			continue
		}
		found++
		exists := slices.ContainsFunc(membersOf(root, object.Type()), func(other member) bool { return other.name == m[3] })
		assert.True(t, exists, "%s has no method or hook %s", object.Name(), m[3])
	}
	assert.Greater(t, found, 50)
}

// The types are aliases, and go doc shows no methods and fields of an alias. So
// the comment of each type declares its methods and fields.
func TestEveryTypeDeclaresItsMethodsAndFields(t *testing.T) {
	root, pkg := typesOf(t, rootPath)[rootPath], docOf(t)
	members := 0
	for _, described := range pkg.Types {
		text := plainText(pkg, described.Doc)
		for _, m := range membersOf(root, root.Scope().Lookup(described.Name).Type()) {
			members++
			assert.Contains(t, text, " "+m.declaration, "the comment of type %s", described.Name)
		}
	}
	assert.Greater(t, members, 50)
}

// An application imports package dlock and a driver. So dlock exports each name
// of package recipes.
func TestEachNameOfRecipesIsExported(t *testing.T) {
	found := typesOf(t, rootPath, recipesPath)
	for _, name := range found[recipesPath].Scope().Names() {
		if ast.IsExported(name) {
			assert.NotNil(t, found[rootPath].Scope().Lookup(name), "dlock.%s is missing", name)
		}
	}
}

// If a link in a comment leads nowhere, go doc prints it in brackets. No link
// may do that.
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

// If an example belongs to no name of the package, go doc drops it silently.
// Examples of an alias's methods, for instance, belong to no name.
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
