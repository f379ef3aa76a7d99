package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
)

var (
	put   = flag.Bool("put", false, "put each fault in and see that its seeds, or its test, see it")
	find  = flag.Bool("find", false, "put each fault in, find its seeds anew and write them into the patches")
	fresh = flag.Bool("refresh", false, "write the line numbers of the code as it is, and its lines around each change, into the patches")
	limit = flag.Int("limit", 20_000, "the last seed to try")
)

const (
	root       = "../../.." // root of the module
	simulation = "./internal/simulation"
	atLeast    = 37 // minimum number of patches, in case some are not found
	enough     = 3  // number of failing seeds to write into each patch
	batch      = 900
	patience   = time.Minute // timeout of one batch of seeds, which usually takes seconds
)

func TestFaults(t *testing.T) {
	all, err := readPatches(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < atLeast {
		t.Errorf("%d faults are there, and %d at least are expected", len(all), atLeast)
	}
	if *put || *find {
		lockIsSound(t)
	}
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			files := checkApplies(t, p)
			switch {
			case *find:
				p.findSeeds(t, files)
			case *put:
				checkHeader(t, p)
				p.seeIt(t, files)
			case *fresh:
				p.write(t)
				checkHeader(t, p)
			default:
				checkHeader(t, p)
			}
		})
	}
}

// checkApplies fails the test unless the patch applies and the result is valid
// Go. It returns the patched files.
func checkApplies(t *testing.T, p *patch) (files map[string]string) {
	t.Helper()
	files, err := p.apply(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution); err != nil {
			t.Fatalf("with the fault of %s put in: %v", p.path, err)
		}
		if before, _ := os.ReadFile(filepath.Join(root, path)); string(before) == text {
			t.Fatalf("%s changes nothing in %s", p.path, path)
		}
	}
	return files
}

func checkHeader(t *testing.T, p *patch) {
	t.Helper()
	switch {
	case p.fault == "":
		t.Fatalf("%s does not say what the fault is", p.path)
	case p.test == "" && len(p.seeds) == 0:
		t.Fatalf("%s names neither seeds nor a test that see it: see make fault-seeds", p.path)
	case p.test != "" && !isTest(t, p):
		t.Fatalf("%s: there is no test %s in %s", p.path, p.test, p.pkg)
	}
	want, err := p.text(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	if header(string(got)) != header(want) {
		t.Fatalf("the header of %s is not as it should be:\n%s", p.path, header(want))
	}
}

func header(patch string) string {
	h, _, _ := strings.Cut(patch, "\n\n")
	return h
}

func isTest(t *testing.T, p *patch) bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, p.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+p.test+"(t *testing.T) {") {
			return true
		}
	}
	return false
}

func lockIsSound(t *testing.T) {
	t.Helper()
	sim := build(t, nil)
	if seed, says := sim.first(t, 1, batch); seed != 0 {
		t.Fatalf("seed %d fails without a fault: %s", seed, says)
	}
}

// seeIt fails the test unless the fault is detected by one of the patch's
// seeds, or by its test.
func (p *patch) seeIt(t *testing.T, files map[string]string) {
	if len(p.seeds) == 0 {
		p.seeInTest(t, files)
		return
	}
	sim := build(t, files)
	for _, seed := range p.seeds {
		if seen, says := sim.first(t, seed, 1); seen != 0 {
			t.Logf("seed %d: %s", seen, says)
			return
		}
	}
	if seen, says := sim.firstOf(t, 1); seen != 0 {
		t.Logf("its own seeds see nothing; seed %d: %s", seen, says)
		return
	}
	t.Errorf("no seed of %d sees that %s", *limit, p.fault)
}

func (p *patch) seeInTest(t *testing.T, files map[string]string) {
	t.Helper()
	out, err := goTool(t, files, "test", "-count=1", "-timeout=2m", "-run=^"+p.test+"$", p.pkg)
	switch {
	case err == nil:
		t.Errorf("%s in %s does not see that %s", p.test, p.pkg, p.fault)
	case strings.Contains(out, "build failed"), strings.Contains(out, "setup failed"):
		t.Errorf("%s", out)
	}
}

// findSeeds searches for seeds that detect the fault and writes them into the
// patch. A seed counts only if it fails twice, because some runs are not
// repeatable.
func (p *patch) findSeeds(t *testing.T, files map[string]string) {
	p.seeds, p.none, p.says = nil, *limit, ""
	sim := build(t, files)
	for next := 1; len(p.seeds) < enough; next++ {
		seed, _ := sim.firstOf(t, next)
		if seed == 0 {
			break
		}
		next = seed
		if again, says := sim.first(t, seed, 1); again != 0 {
			if p.says == "" {
				p.says = says
			}
			p.seeds = append(p.seeds, seed)
		}
	}
	t.Logf("%s", header(p.write(t)))
	checkHeader(t, p)
	if len(p.seeds) == 0 {
		p.seeInTest(t, files)
	}
}

// write updates the patch file and returns its text.
func (p *patch) write(t *testing.T) string {
	t.Helper()
	text, err := p.text(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return text
}

type simulator string

func build(t *testing.T, files map[string]string) simulator {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "simulation.test")
	if out, err := goTool(t, files, "test", "-c", "-ldflags=-s -w", "-o", binary, simulation); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return simulator(binary)
}

// goTool runs the go command with an overlay, in which files replace those of
// the module.
func goTool(t *testing.T, files map[string]string, verb string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for path, text := range files {
		changed := filepath.Join(dir, strconv.Itoa(len(overlay.Replace))+".go")
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[filepath.Join(top, filepath.FromSlash(path))] = changed
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{verb, "-overlay=" + file}, args...)...)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// firstOf searches the seeds from the given one to the limit for one that
// fails. It returns that seed and its message, or 0 if none fails.
func (s simulator) firstOf(t *testing.T, from int) (seed int, says string) {
	t.Helper()
	for n := 10; from <= *limit; n = min(10*n, batch) {
		n = min(n, *limit-from+1)
		if seed, says = s.first(t, from, n); seed != 0 {
			return seed, says
		}
		from += n
	}
	return 0, ""
}

var failure = regexp.MustCompile(`(?m)^.*\bseed (\d+): (.*)$`)

// first runs n seeds and returns the first that fails and its message, or 0 if
// none fails. If the test binary crashed without naming a seed, first bisects.
func (s simulator) first(t *testing.T, from, n int) (seed int, says string) {
	t.Helper()
	out, err := s.run(t, from, n)
	switch found := failure.FindStringSubmatch(out); {
	case err == nil:
		return 0, ""
	case found != nil:
		seed, err = strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return seed, found[2]
	case n == 1:
		return from, reason(out)
	}
	if seed, says = s.first(t, from, n/2); seed != 0 {
		return seed, says
	}
	return s.first(t, from+n/2, n-n/2)
}

// run runs n seeds and returns the output. n must be below 1000, because longer
// runs fail unless every kind of event occurs.
func (s simulator) run(t *testing.T, from, n int) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, string(s), "-test.run=^TestNoSeedBreaksTheLock$",
		fmt.Sprint("-seeds=", n), fmt.Sprint("-seed=", from))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil && t.Context().Err() == nil:
		return "it comes to no end", ctx.Err()
	case err != nil && !errors.As(err, &exit):
		t.Fatal(err)
	}
	return string(out), err
}

func reason(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return line
}
