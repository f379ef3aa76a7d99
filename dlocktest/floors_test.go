package dlocktest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// floors defines the layers of the package, top first. A file may use only
// declarations of lower layers.
var floors = [][]string{
	{"run.go"},
	{"abilities.go"},
	{"attempt.go"},
	{"remove.go", "loss.go"},
	{
		"rule01_order.go", "rule02_names.go", "rule03_tokens.go", "rule04_create.go", "rule05_ahead.go", "rule06_watch.go",
		"rule07_delete.go", "rule08_end.go", "rule09_close.go", "rule10_methods.go", "rule11_leaks.go", "rule12_replace.go",
		"rule13_released.go", "read.go", "value.go", "checks.go", "locks.go",
	},
	{"rule06_queue.go", "heartbeat.go", "units.go"},
	{"doubt.go", "watching.go", "client.go"},
	{"step.go"},
	{"hook.go", "want.go"},
	{"nodes.go"},
	{"check.go"},
	{"case.go"},
	{"config.go", "lease.go", "doc.go"},
}

func TestFilesUseOnlyLowerFloors(t *testing.T) {
	floorOf := make(map[string]int)
	for i, files := range floors {
		for _, name := range files {
			floorOf[name] = i
		}
	}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range paths {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if _, ok := floorOf[name]; !ok {
			t.Errorf("%s is on no floor", name)
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	// Imports are replaced by empty packages. That causes type errors, but
	// references within the package still resolve.
	config := types.Config{Importer: emptyPackages{}, Error: func(error) {}}
	pkg, _ := config.Check("dlocktest", set, files, info)
	arrows := make(map[[2]string][]string)
	for ident, used := range info.Uses {
		if used.Pkg() != pkg {
			continue
		}
		from, to := set.Position(ident.Pos()).Filename, set.Position(used.Pos()).Filename
		if arrow := [2]string{from, to}; from != to && !slices.Contains(arrows[arrow], used.Name()) {
			arrows[arrow] = append(arrows[arrow], used.Name())
		}
	}
	for arrow, names := range arrows {
		if from, to := arrow[0], arrow[1]; floorOf[from] >= floorOf[to] {
			t.Errorf("%s uses %v of %s, which is not on a lower floor", from, names, to)
		}
	}
	t.Logf("%d files, %d pairs of files of which one uses the other", len(files), len(arrows))
	if len(arrows) < len(files) {
		t.Error("these are too few to be all")
	}
}

type emptyPackages struct{}

func (emptyPackages) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}
