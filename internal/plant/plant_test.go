package plant

import (
	"context"
	"encoding/json"
	"flag"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

var put = flag.Bool("put", false, "put each fault in and see that its seeds, or its test, see it")

const (
	root     = "../.."
	atLeast  = 250    // fewest patches that must be found
	quick    = 40     // patches that a run without -short puts in
	limit    = 20_000 // the last seed to try
	batch    = 900    // seeds in one run
	patience = time.Minute
)

// kits lists, by a patch's Kit, the drivers whose own kits must catch it.
var kits = map[string][]string{
	"":         nil,
	"each":     {"contrib/redisdriver", "contrib/sqldriver/postgres", "contrib/sqldriver/mysql", "contrib/sqldriver/sqlite"},
	"networks": {"contrib/redisdriver", "contrib/sqldriver/postgres", "contrib/sqldriver/mysql"},
	"polling":  {"contrib/sqldriver/mysql"},
}

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestFaults(t *testing.T) {
	t.Setenv(history.Directory, t.TempDir()) // keeps records of faulty runs apart
	all, err := readPatches()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < atLeast {
		t.Errorf("%d faults are there, and %d at least are expected", len(all), atLeast)
	}
	inEachRun := 0
	for _, p := range all {
		if p.quick {
			inEachRun++
		}
		t.Run(p.name, func(t *testing.T) {
			files := p.check(t)
			if !*put && (!p.quick || testing.Short()) {
				return
			}
			t.Parallel()
			if p.test == "" {
				p.seeSeeds(t, files)
			} else {
				p.seeTest(t, files, p.test, p.dir)
			}
			for _, dir := range kits[p.kit] {
				if *put {
					t.Run(filepath.Base(dir), func(t *testing.T) { p.seeTest(t, files, "TestConformance$", dir) })
				}
			}
		})
	}
	if inEachRun != quick {
		t.Errorf("%d faults are put in by each run, and %d are expected", inEachRun, quick)
	}
}

func (p *patch) check(t *testing.T) (files map[string]string) {
	files, err := p.apply(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil && strings.HasSuffix(path, ".go") {
			t.Fatalf("with the fault put in: %v", err)
		}
	}
	var tests strings.Builder
	paths, _ := filepath.Glob(filepath.Join(root, p.dir, "*_test.go"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	for name := range strings.SplitSeq(p.test, "|") {
		name, _, _ = strings.Cut(name, "/")
		if !strings.Contains(tests.String(), "\nfunc "+strings.TrimSuffix(name, "$")) && p.test != "" {
			t.Fatalf("there is no test %s in %s", name, p.dir)
		}
	}
	if _, known := kits[p.kit]; !known {
		t.Fatalf("unknown kit: %s", p.kit)
	}
	return files
}

func (p *patch) seeTest(t *testing.T, files map[string]string, test, dir string) {
	t.Helper()
	out, err := goTool(t, files, dir, "test", "-vet=off", "-count=1", "-failfast", "-timeout=5m", "-ldflags=-s", "-run=^"+strings.ReplaceAll(test, "|", "|^"), ".")
	switch {
	case err == nil:
		t.Errorf("%s in %s does not see that %s\n%s", test, dir, p.fault, out)
	case !strings.Contains(out, "--- FAIL: ") && !strings.Contains(out, "panic: "):
		t.Errorf("%s in %s did not run: %s", test, dir, out)
	}
}

var failure = regexp.MustCompile(`(?m)^.*\bseed \d+: .*$`)

// seeSeeds fails the test unless a seed of the patch sees the fault.
func (p *patch) seeSeeds(t *testing.T, files map[string]string) {
	binary := filepath.Join(t.TempDir(), "simulation.test")
	if out, err := goTool(t, files, ".", "test", "-c", "-vet=off", "-ldflags=-s", "-o", binary, "./internal/history"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, seed := range p.seeds {
		if says, seen := simulate(t, binary, seed, "1"); seen {
			t.Logf("seed %s: %s", seed, says)
			return
		}
	}
	for first := 1; first <= limit; first += batch {
		if says, seen := simulate(t, binary, strconv.Itoa(first), strconv.Itoa(batch)); seen {
			t.Logf("its own seeds see nothing: %s", says)
			return
		}
	}
	t.Errorf("no seed of %d sees that %s", limit, p.fault)
}

// simulate runs n seeds, and reports whether the run failed or took too long.
func simulate(t *testing.T, binary, seed, n string) (says string, seen bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^TestNoSeedBreaksTheLock$", "-seeds="+n, "-seed="+seed)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return failure.FindString(string(out)), err != nil
}

// goTool runs the go command with these files in place of the repository's.
func goTool(t *testing.T, files map[string]string, dir, verb string, args ...string) (string, error) {
	t.Helper()
	temp := t.TempDir()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := make(map[string]string)
	for path, text := range files {
		changed := filepath.Join(temp, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(top, path)] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{verb, "-overlay=" + file, "-toolexec=env GOGC=400"}, args...)...)
	cmd.Dir, cmd.Env = filepath.Join(top, dir), append(os.Environ(), planted+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
